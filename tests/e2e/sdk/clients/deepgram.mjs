// The Deepgram package of node: both versions' sockets, a Clear, files, errors; a browser's key.
import fs from "node:fs";
import {DeepgramClient} from "@deepgram/sdk";
import WebSocket from "ws";

const {SDK_URL, SDK_WS_URL, SDK_KEY, SDK_TEXT, SDK_LONG, SDK_OUT} = process.env;
const environment = {base: SDK_URL, production: SDK_WS_URL, agent: SDK_WS_URL, agentRest: SDK_URL};
const client = new DeepgramClient({apiKey: SDK_KEY, environment});
const how = {model: "aura-2-thalia-en", encoding: "linear16", sample_rate: 24000};
const said = {};

// Messages of a socket, one at a time.
function reader(socket) {
  const waiting = [], asked = [];
  socket.on("message", (message) => {
    if (asked.length) asked.shift()(message);
    else waiting.push(message);
  });
  return () => waiting.length ? waiting.shift() : new Promise((give) => asked.push(give));
}

const isAudio = (message) => message instanceof ArrayBuffer || message instanceof Blob || ArrayBuffer.isView(message);
async function bytes(message) {
  return Buffer.from(message instanceof Blob ? await message.arrayBuffer() : message);
}
async function until(next, last) {
  const audio = [], kinds = [];
  for (;;) {
    const message = await next();
    const kind = isAudio(message) ? "audio" : message.type;
    if (kind === "audio") audio.push(await bytes(message));
    if (kind !== "audio" || kinds.at(-1) !== "audio") kinds.push(kind);
    if (kind === last) return {audio: Buffer.concat(audio), kinds};
  }
}

const v1 = await client.speak.v1.connect({...how, reconnectAttempts: 0});
let next = reader(v1);
v1.connect();
await v1.waitForOpen();
for (const word of SDK_TEXT.split(" ")) v1.sendText({type: "Speak", text: word + " "});
v1.sendFlush({type: "Flush"});
let heard = await until(next, "Flushed");
fs.writeFileSync(`${SDK_OUT}/v1.pcm`, heard.audio);
said.kinds = heard.kinds;
v1.sendText({type: "Speak", text: SDK_LONG});
await until(next, "audio");
v1.sendClear({type: "Clear"});
said.cleared = (await until(next, "Cleared")).kinds.at(-1);
v1.sendClose({type: "Close"});
v1.close();

const v2 = await client.speak.v2.connect({...how, model: "flux-alexis-en", reconnectAttempts: 0});
next = reader(v2);
v2.connect();
await v2.waitForOpen();
v2.sendSpeak({type: "Speak", text: SDK_TEXT});
v2.sendFlush({type: "Flush"});
heard = await until(next, "SpeechMetadata");
fs.writeFileSync(`${SDK_OUT}/v2.pcm`, heard.audio);
said.turn = heard.kinds;
v2.close();

const response = await client.speak.v1.audio.generate({text: SDK_TEXT, model: "aura-2-thalia-en"});
fs.writeFileSync(`${SDK_OUT}/speech.mp3`, Buffer.from(await response.arrayBuffer()));
try {
  await client.speak.v1.audio.generate({text: "Hi.", model: "nobody"});
} catch (error) {
  said.wrong = [error.statusCode, error.body.err_code];
}

const browser = new WebSocket(`${SDK_WS_URL}/v1/speak?model=aura-2-thalia-en`, ["token", SDK_KEY]);
await new Promise((open, fail) => { browser.onopen = open; browser.onerror = fail; });
said.protocol = browser.protocol;
browser.close();
console.log(JSON.stringify(said));
process.exit(0);
