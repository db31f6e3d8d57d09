// Against a real server, whose address is in RTTS_URL; tests/clients/js/test_node.py runs it.
import assert from "node:assert/strict";
import test from "node:test";

import { AudioFlags, connect } from "../src/index.js";

const url = process.env.RTTS_URL;
const skip = url === undefined && "needs RTTS_URL, the address of a server with tones";
const apiKey = process.env.RTTS_KEY;
const WebSocket = globalThis.WebSocket ?? (await import("ws")).WebSocket;

async function read(context) {
  const events = [];
  for await (const event of context) events.push(event);
  return events;
}

for (const protocol of ["rtts.v1", "rtts.v1.json"]) {
  test(`a reply in PCM, ${protocol}`, { skip }, async (t) => {
    const client = await connect(url, { apiKey, protocol, WebSocket });
    t.after(() => client.close());
    const context = client.context({ format: { codec: "pcm_s16le" } });
    const events = await read(context.speak(["Hello ", "there. This is ", "a test 😀."]));
    const audio = events.filter(({ type }) => type === "audio");
    const done = events.at(-1);
    assert.equal(done.type, "done");
    assert.equal(audio.reduce((n, { data }) => n + data.length, 0), 2 * done.samples);
    assert.equal(audio.at(-1).seq, done.last_seq);
    assert.ok(audio.some(({ flags }) => flags & AudioFlags.LAST_OF_SEGMENT));
    const texts = events.filter(({ type }) => type === "segment").map(({ text }) => text);
    assert.equal(texts.join(" "), "Hello there. This is a test 😀."); // the space between is in neither
  });
}

test("a wrong key is told from a server that is not there", { skip }, async () => {
  const wrong = { apiKey: "not this one", WebSocket };
  await assert.rejects(connect(url, wrong), { name: "ConnectError", code: "unauthorized" });
});

test("Opus packets add up to what was said, flush and cancel are answered", { skip }, async (t) => {
  const client = await connect(url, { apiKey, WebSocket });
  t.after(() => client.close());
  assert.ok((await client.ping()) < 1000);
  const context = client.context();
  context.append("No full stop");
  const id = context.flush();
  let packets = 0;
  for await (const event of context) {
    if (event.type === "audio") packets += event.packets.length;
    if (event.type === "flushed") {
      assert.equal(event.id, id);
      break;
    }
  }
  assert.ok(packets > 10);
  const done = await context.cancel(100);
  assert.equal(done.reason, "cancelled");
  assert.equal(done.spoken + done.remaining, "No full stop");
});

test("a wrong voice is a typed error", { skip }, async (t) => {
  const client = await connect(url, { apiKey, WebSocket });
  t.after(() => client.close());
  const reading = read(client.context({ voice: "nobody" }).speak("Hello."));
  await assert.rejects(reading, { name: "ContextFailedError", code: "unknown_voice" });
});

test("a wrong key is refused", { skip: skip || apiKey === undefined }, async () => {
  await assert.rejects(connect(url, { apiKey: "wrong", WebSocket }), { name: "ConnectError" });
});
