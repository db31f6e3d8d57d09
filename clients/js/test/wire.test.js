// The wire, against what the server's own codec makes (vectors.json; the Python tests keep it true).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { decode, encode } from "../src/wire.js";

const vectors = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
const arrayBuffer = (hex) => new Uint8Array(Buffer.from(hex, "hex")).buffer;

test("audio headers and packets", () => {
  for (const { hex, json, fields, data, packets } of vectors.audio) {
    for (const message of [decode(arrayBuffer(hex)), decode(json)]) {
      for (const [name, value] of Object.entries(fields)) assert.equal(message[name], value, name);
      assert.equal(Buffer.from(message.data).toString("hex"), data);
      assert.deepEqual(message.packets.map((packet) => Buffer.from(packet).toString("hex")), packets);
    }
  }
});

test("every message of the server is read as it was meant", () => {
  for (const { wire, fields } of vectors.server) assert.deepEqual({ ...decode(wire) }, fields);
});

test("every message of the client is spelled as the server reads it", () => {
  for (const { type, fields, wire } of vectors.client) {
    assert.deepEqual(JSON.parse(encode(type, fields)), JSON.parse(wire));
  }
});

test("what is not known is no message, what is broken is an error", () => {
  assert.equal(decode('{"type":"of_the_future"}'), null);
  const kind = new ArrayBuffer(24);
  new Uint8Array(kind).set([1, 2]);
  assert.equal(decode(kind), null);
  for (const broken of ["{", "5", "null", '{"no":"type"}', new ArrayBuffer(23)]) {
    assert.throws(() => decode(broken), { code: "bad_message" });
  }
  const cut = new Uint8Array(arrayBuffer(vectors.audio.find(({ packets }) => packets.length > 1).hex));
  assert.throws(() => decode(cut.slice(0, -1).buffer).packets, { code: "bad_message" });
});

test("what is null is left out, at any depth", () => {
  const text = encode("start", { ctx: "c", voice: null, format: { codec: "opus", bitrate: undefined } });
  assert.equal(text, '{"type":"start","ctx":"c","format":{"codec":"opus"}}');
});
