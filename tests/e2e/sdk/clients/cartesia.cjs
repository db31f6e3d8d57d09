// The cartesia package of node: a context over TLS (it knows no other), a cancel, bytes.
const fs = require("node:fs");
const {default: Cartesia} = require("@cartesia/cartesia-js");

const {SDK_URL, SDK_KEY, SDK_TEXT, SDK_LONG, SDK_OUT} = process.env;
const how = {
  model_id: "sonic-3",
  voice: {mode: "id", id: "a0e99841-438c-4a64-b679-ae501e7d6091"},
  output_format: {container: "raw", encoding: "pcm_s16le", sample_rate: 24000},
};
const said = {};

(async () => {
  const client = new Cartesia({apiKey: SDK_KEY, baseURL: SDK_URL, maxRetries: 0});
  const ws = await client.tts.websocket();
  const context = ws.context({...how, contextId: "one", add_timestamps: true});
  for (const word of SDK_TEXT.split(" ")) await context.push({transcript: word + " "});
  await context.no_more_inputs();
  const audio = [];
  said.kinds = [];
  for await (const event of context.receive()) {
    said.kinds.push(event.type);
    if (event.type === "chunk") audio.push(event.audio ?? Buffer.from(event.data, "base64"));
  }
  fs.writeFileSync(`${SDK_OUT}/one.pcm`, Buffer.concat(audio));

  const barged = ws.context({...how, contextId: "two"});
  await barged.push({transcript: SDK_LONG});
  said.heard = 0;
  for await (const event of barged.receive()) {
    said.heard += event.type === "chunk";
    if (said.heard === 5) break;
  }
  await barged.cancel();
  ws.close();

  const response = await client.tts.generate({...how, transcript: SDK_TEXT});
  fs.writeFileSync(`${SDK_OUT}/bytes.pcm`, Buffer.from(await response.arrayBuffer()));
  console.log(JSON.stringify(said));
})();
