// Contexts and connections against a server in memory.
import assert from "node:assert/strict";
import test from "node:test";

import * as rtts from "../src/index.js";
import { FakeServer } from "./fake.js";

const URL = "ws://fake/v1/tts";
const settle = (ms = 20) => new Promise((resolve) => setTimeout(resolve, ms));

async function open(t, server, options = {}) {
  const client = await rtts.connect(URL, { WebSocket: server.WebSocket, giveUpMs: 500, ...options });
  t.after(() => client.close());
  return client;
}

async function read(context) {
  const events = [];
  for await (const event of context) events.push(event);
  return events;
}

const kinds = (events) => events.map((event) => event.type);
const seqs = (events) => events.filter(({ type }) => type === "audio").map(({ seq }) => seq);

test("a reply comes back as events, and ends once", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context({ voice: "tone", chunking: { mode: "client" } });
  context.append("One. ");
  context.append("Two.");
  context.end();
  const events = await read(context);
  assert.deepEqual(kinds(events), ["started", "segment", "audio", "segment", "audio", "done"]);
  assert.equal(events[2].ctx, "c1");
  assert.deepEqual((await read(context)).length, 0); // and nothing follows
  assert.deepEqual(server.of("start")[0], {
    type: "start",
    ctx: "c1",
    voice: "tone",
    chunking: { mode: "client" },
  });
});

test("a name that the server would refuse is refused at once", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  for (const name of ["", "a\nb", "\0", "\x7f", "\ud83d", "x".repeat(129)]) {
    assert.throws(() => client.context({ name }), TypeError, JSON.stringify(name));
  }
  const context = client.context({ name: "😀".repeat(128) }).speak("One.");
  assert.equal((await read(context)).at(-1).reason, "completed");
});

test("figures are within what the server takes, so that no cancel is lost", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  context.append("One. ");
  await settle();
  context.reportPlayback({ first_sound_ms: 1e300, stalled_ms: -3 });
  await settle();
  const { first_sound_ms, stalled_ms } = server.of("playback").at(-1);
  assert.deepEqual([first_sound_ms, stalled_ms], [86_400_000, 0]);
  context.cancel(1e308).catch(() => {});
  await settle();
  assert.equal(server.of("cancel")[0].played_ms, 86_400_000);
});

test("what is said in one go leaves in one message", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  for (const word of ["So ", "it ", "is."]) context.append(word);
  context.end();
  await read(context);
  assert.deepEqual(
    server.of("text").map(({ n, text, end }) => [n, text, end]),
    [[0, "So it is.", true]],
  );
});

test("speak takes strings, iterables and async iterables, and reads meanwhile", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  async function* tokens() {
    yield "One. ";
    await settle(5);
    yield "Two.";
  }
  for (const source of ["One. Two.", ["One. ", "Two."], tokens()]) {
    const events = await read(client.context().speak(source));
    const texts = events.filter(({ type }) => type === "segment").map(({ text }) => text);
    assert.equal(texts.join(""), "One. Two.");
  }
});

test("an error of the source cancels, and is thrown to whoever reads", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  async function* tokens() {
    yield "One. ";
    throw new RangeError("no more");
  }
  await assert.rejects(read(client.context().speak(tokens())), RangeError);
  await settle();
  assert.equal(server.of("cancel").length, 1);
});

test("no text follows the end", async (t) => {
  const client = await open(t, new FakeServer());
  const context = client.context();
  context.end();
  assert.throws(() => context.append("late"), TypeError);
});

test("cancel drops what was not read, and is the end", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  context.append("A long story. ");
  await settle();
  const done = await context.cancel(120.5);
  assert.equal(done.reason, "cancelled");
  assert.equal(done.spoken + done.remaining, "A long story. ");
  assert.equal(server.of("cancel")[0].played_ms, 120.5);
  assert.deepEqual(kinds(await read(context)), ["done"]);
  assert.equal((await context.cancel()).reason, "cancelled"); // again, and nothing happens
  assert.equal(server.of("cancel").length, 1);
});

test("a context that failed throws what the server said, after what had arrived", async (t) => {
  const server = new FakeServer();
  server.on_start = (socket, { ctx }) => {
    socket.say({ type: "error", code: "unknown_voice", message: "no voice", fatal: false, ctx });
    socket.contexts.set(ctx, { seq: 0 });
    server.finish(socket, ctx, { reason: "error", code: "unknown_voice" });
  };
  const client = await open(t, server);
  const context = client.context({ voice: "nobody" });
  assert.equal((await context.next()).value.type, "error");
  await assert.rejects(context.next(), (error) => {
    assert.ok(error instanceof rtts.ContextFailedError);
    assert.equal(error.code, "unknown_voice");
    assert.equal(error.done.reason, "error");
    return true;
  });
  assert.equal((await context.next()).done, true);
});

test("a broken socket is resumed: audio once and in order, text sent again", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context({ chunking: { mode: "client" } });
  const reading = read(context);
  context.append("One. ");
  await settle();
  server.breakAll();
  context.append("Two. ");
  await settle(150);
  server.breakAll();
  await settle(150);
  context.append("Three.");
  context.end();
  const events = await reading;
  assert.deepEqual(seqs(events), [0, 1, 2]);
  assert.equal(kinds(events).filter((kind) => kind === "reconnected").length, 2);
  assert.equal(kinds(events).filter((kind) => kind === "done").length, 1);
  // The token of the first session is used for both, with what had been heard.
  assert.deepEqual(server.of("resume").map(({ token, acks }) => [token, acks.c1]), [["t1", 0], ["t1", 1]]);
});

test("audio that comes twice is given once", async (t) => {
  const server = new FakeServer();
  const resume = server.on_resume.bind(server);
  server.on_resume = (socket, message) => resume(socket, { ...message, acks: { c1: -1 } });
  const client = await open(t, server);
  const context = client.context();
  const reading = read(context);
  context.append("One. ");
  await settle();
  server.breakAll();
  await settle(150);
  context.end();
  assert.deepEqual(seqs(await reading), [0]);
});

test("a server that forgot fails what ran, and speaks what had not begun", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const running = client.context();
  running.append("One. ");
  await settle();
  const failed = assert.rejects(read(running), { name: "ContextFailedError", code: "resume_failed" });
  server.sessions.clear();
  server.breakAll();
  await settle(0);
  const fresh = client.context();
  fresh.speak("Two.");
  await failed;
  assert.equal((await read(fresh)).at(-1).reason, "completed");
});

test("a session is told of its own contexts only", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const over = client.context().speak("One."); // its sound goes on
  await read(over);
  const running = client.context();
  running.append("Two. ");
  await settle();
  const failed = assert.rejects(read(running), { code: "resume_failed" });
  server.sessions.clear();
  server.breakAll();
  over.reportPlayback({ played_ms: 10 });
  await failed;
  const told = server.of("playback").length;
  const next = client.context();
  next.reportPlayback({ played_ms: 0 }); // before it has begun
  for (const context of [over, running]) context.reportPlayback({ played_ms: 20 });
  await read(next.speak("Three."));
  next.reportPlayback({ first_sound_ms: 30 });
  await settle();
  const later = server.of("playback").slice(told);
  assert.deepEqual([...new Set(later.map(({ ctx }) => ctx))], [next.name]);
  assert.equal(later.at(-1).first_sound_ms, 30);
});

test("a cancel that the socket lost is sent again", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  context.append("One. ");
  await settle();
  server.isSilent = true;
  const cancelled = context.cancel(5);
  await settle();
  server.isSilent = false;
  server.breakAll();
  assert.equal((await cancelled).reason, "cancelled");
});

test("a client that gives up fails its contexts", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server, { giveUpMs: 200 });
  const reading = read(client.context());
  await settle();
  server.refuse = Array.from({ length: 50 }, () => ({ code: 1006 }));
  server.breakAll();
  await assert.rejects(reading, { name: "ConnectionLostError", code: "connection_lost" });
  assert.throws(() => client.context(), { name: "ConnectionLostError" });
});

test("a refusal that will not change is not tried again", async (t) => {
  const server = new FakeServer();
  server.refuse = [{ code: 4401, error: { code: "unauthorized", message: "no key" } }];
  await assert.rejects(open(t, server), { name: "ConnectError", code: "unauthorized" });
  const client = await open(t, server);
  const reading = read(client.context());
  await settle();
  server.refuse = [{ code: 4401, error: { code: "unauthorized", message: "no key" } }];
  server.breakAll();
  await assert.rejects(reading, { name: "ConnectionLostError", code: "unauthorized" });
  assert.equal(server.sockets.length, 3);
});

test("a server that is full for a moment is asked again when it said", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  await settle();
  const error = { code: "overloaded", message: "full", retry_after_ms: 100 };
  server.refuse = [{ code: 1013, error }];
  const lostAt = performance.now();
  server.breakAll();
  for await (const event of context) if (event.type === "reconnected") break;
  assert.ok(performance.now() - lostAt >= 100);
});

test("a dead socket is noticed though nobody closes it", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server, { keepaliveMs: 40, openTimeoutMs: 50 });
  const context = client.context();
  await settle();
  server.isSilent = true;
  await settle(130);
  server.isSilent = false;
  for await (const event of context) if (event.type === "reconnected") break;
  assert.equal(server.sockets[0].closedWith, 4000); // 1000 would say that nobody comes back
});

test("an idle socket that the server closed is opened again by the next reply", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  server.sockets[0].say({ type: "error", code: "idle_timeout", message: "", fatal: true });
  server.sockets[0].lose(4408);
  await settle();
  assert.equal(server.sockets.length, 1);
  assert.equal((await read(client.context().speak("Hello."))).at(-1).reason, "completed");
  assert.equal(server.of("resume").length, 0);
});

test("close ends everything and says so", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const reading = read(client.context());
  await settle();
  client.close();
  await assert.rejects(reading, { name: "ConnectionLostError", code: "closed" });
  assert.equal(server.sockets[0].closedWith, 1000);
  assert.throws(() => client.context(), { code: "closed" });
});

test("the key goes as a subprotocol that browsers accept", async (t) => {
  const server = new FakeServer();
  await open(t, server, { apiKey: "schlüssel?>" });
  const [protocol, key] = server.sockets[0].protocols;
  assert.equal(protocol, "rtts.v1");
  assert.match(key, /^rtts\.auth\.[A-Za-z0-9_-]+$/);
  assert.equal(Buffer.from(key.slice(10), "base64url").toString(), "schlüssel?>");
});

test("without a WebSocket it says what to do", async () => {
  const { WebSocket } = globalThis;
  delete globalThis.WebSocket;
  try {
    await assert.rejects(rtts.connect(URL), { code: "no_websocket", message: /npm install ws/ });
  } finally {
    if (WebSocket !== undefined) globalThis.WebSocket = WebSocket;
  }
});

test("there is no player outside browsers, and it says so", async () => {
  await assert.rejects(rtts.Player.create(), { name: "PlayerError", code: "no_audio" });
});

test("nobody reads: the server is held back, then the context is given up", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context({ bufferMs: 250, maxBufferMs: 450, chunking: { mode: "client" } });
  for (let i = 0; i < 3; i++) context.append(`${i}. `);
  await settle();
  const reports = server.of("playback").filter(({ played_ms }) => played_ms !== undefined);
  assert.ok(reports.length > 0 && reports.every(({ played_ms }) => played_ms === 0));
  for (let i = 3; i < 6; i++) context.append(`${i}. `);
  await settle();
  const events = [];
  await assert.rejects(
    async () => {
      for await (const event of context) events.push(event);
    },
    { name: "SlowReaderError" },
  );
  assert.deepEqual(seqs(events), [0, 1, 2, 3, 4]); // what had arrived is not lost
  assert.equal(server.of("cancel").length, 1);
});

test("text that found no room is sent again, once", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context({ chunking: { mode: "client" } });
  server.isFull = true;
  for (const text of ["One. ", "Two. "]) context.append(text);
  context.end();
  await settle();
  server.isFull = false;
  const events = await read(context);
  const texts = events.filter(({ type }) => type === "segment").map(({ text }) => text);
  assert.deepEqual(texts, ["One. ", "Two. "]);
  assert.ok(!kinds(events).includes("error"));
});

test("messages keep to the server's rate, and a burst merges", async (t) => {
  const server = new FakeServer({ limits: { max_messages_per_s: 20 } });
  const client = await open(t, server);
  const context = client.context();
  const startedAt = performance.now();
  for (let i = 0; i < 40; i++) {
    context.append(`${i} `);
    await settle(1);
  }
  context.end();
  const events = await read(context);
  const texts = server.of("text").map(({ text }) => text).join("");
  assert.equal(texts, Array.from({ length: 40 }, (_, i) => `${i} `).join(""));
  const tookS = (performance.now() - startedAt) / 1000;
  assert.ok(server.sent.length <= 10 + 20 * tookS + 1, `${server.sent.length} in ${tookS} s`);
  assert.equal(kinds(events).at(-1), "done");
});

test("a cancel overtakes text that the network does not take", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  await settle();
  server.sockets[0].bufferedAmount = 100_000;
  context.append("Never said. ");
  const cancelled = context.cancel();
  await settle(40);
  assert.equal(server.of("text").length, 0);
  server.sockets[0].bufferedAmount = 0;
  await cancelled;
  assert.equal(server.of("text").length, 0);
});

test("the client's first-packet latency is reported", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  await read(context.speak("Hello."));
  await settle();
  assert.ok(context.firstPacketMs > 0 && context.saidAt > 0);
  const [report] = server.of("playback");
  assert.ok(Math.abs(report.first_packet_ms - context.firstPacketMs) < 0.001);
});

test("going away is told to the client and every context", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  await context.next();
  server.sockets[0].say({ type: "goaway", reason: "draining", deadline_ms: 5 });
  assert.equal((await context.next()).value.type, "goaway");
  assert.equal(client.goaway.reason, "draining");
});

test("ping measures, and fails with the connection", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  assert.ok((await client.ping()) >= 0);
  server.isSilent = true;
  const pinged = client.ping();
  await settle();
  server.breakAll();
  await assert.rejects(pinged, { name: "ConnectionLostError" });
});

test("what the future brings is ignored, what is broken ends the connection", async (t) => {
  const server = new FakeServer();
  const client = await open(t, server);
  const context = client.context();
  await settle();
  const future = new ArrayBuffer(24);
  new Uint8Array(future).set([1, 2]);
  for (const unknown of ['{"type":"of_the_future"}', future]) server.sockets[0].give(unknown);
  await settle();
  const failed = assert.rejects(read(context), { name: "ConnectionLostError", code: "bad_message" });
  server.sockets[0].give("{");
  await failed;
  assert.equal(server.sockets.length, 1); // the same would come again
});
