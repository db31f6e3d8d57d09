// The @elevenlabs/elevenlabs-js package: formats, times, lists, errors, a stream that is dropped.
import fs from "node:fs";
import {ElevenLabsClient} from "@elevenlabs/elevenlabs-js";

const {SDK_URL, SDK_KEY, SDK_TEXT, SDK_LONG, SDK_OUT} = process.env;
const client = new ElevenLabsClient({apiKey: SDK_KEY, baseUrl: SDK_URL, maxRetries: 0});
const speech = client.textToSpeech;
const voice = "JBFqnCBsd6RMkjVDRZzb";
const said = {};

async function all(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

const ask = {text: SDK_TEXT, modelId: "eleven_flash_v2_5", voiceSettings: {speed: 1.0}};
const pcm = await all(await speech.convert(voice, {...ask, outputFormat: "pcm_24000"}));
fs.writeFileSync(`${SDK_OUT}/convert.pcm`, pcm);
fs.writeFileSync(`${SDK_OUT}/stream.mp3`, await all(await speech.stream(voice, ask)));

const timed = await speech.convertWithTimestamps(voice, {...ask, outputFormat: "pcm_24000"});
said.timed = timed.alignment.characters.join("");
said.bytes = 0;
said.lines = "";
for await (const line of await speech.streamWithTimestamps(voice, {...ask, outputFormat: "pcm_24000"})) {
  said.bytes += Buffer.from(line.audioBase64, "base64").length;
  said.lines += (line.alignment?.characters ?? []).join("");
}

said.voices = (await client.voices.getAll()).voices.map((each) => each.voiceId);
said.found = (await client.voices.search({pageSize: 1})).voices.length;
said.models = (await client.models.list()).map((each) => each.modelId);
said.limit = (await client.user.subscription.get()).characterLimit;
said.voice = (await client.voices.get(said.voices[0])).voiceId;
said.settings = (await client.voices.settings.get(voice)).speed;
said.tier = (await client.user.get()).subscription.tier;
try {
  await client.voices.get("nobody");
} catch (error) {
  said.wrong = [error.statusCode, error.body.detail.status];
}
const reader = (await speech.stream(voice, {text: SDK_LONG, outputFormat: "pcm_24000"})).getReader();
said.first = (await reader.read()).value.length;
await reader.cancel();
console.log(JSON.stringify(said));
