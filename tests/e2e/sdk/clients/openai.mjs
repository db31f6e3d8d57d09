// The openai package of node: formats, streaming, errors, a stream that is dropped.
import fs from "node:fs";
import OpenAI from "openai";

const {SDK_URL, SDK_KEY, SDK_TEXT, SDK_LONG, SDK_OUT} = process.env;
const client = new OpenAI({apiKey: SDK_KEY, baseURL: SDK_URL + "/v1", maxRetries: 0});
const ask = {model: "tts-1", voice: "coral", input: SDK_TEXT};
const said = {};

for (const response_format of ["pcm", "mp3"]) {
  const response = await client.audio.speech.create({...ask, response_format});
  fs.writeFileSync(`${SDK_OUT}/speech.${response_format}`, Buffer.from(await response.arrayBuffer()));
  said[response_format] = response.headers.get("content-type");
}
said.models = [];
for await (const model of client.models.list()) said.models.push(model.id);
try {
  await client.audio.speech.create({...ask, voice: "nobody"});
} catch (error) {
  said.wrong = [error.constructor.name, error.status, error.code, error.param];
}
const stop = new AbortController();
const response = await client.audio.speech.create(
  {...ask, input: SDK_LONG, response_format: "pcm"}, {signal: stop.signal});
for await (const piece of response.body) {
  said.first = piece.length;
  break;
}
stop.abort();
console.log(JSON.stringify(said));
