// Properties of the jitter buffer, whatever the network does.
import assert from "node:assert/strict";
import test from "node:test";

import { JitterBuffer, Speaker } from "../src/jitter.js";
import { random } from "./random.js";

const QUANTUM = 128;
const OPTIONS = { startSamples: 1920, stepSamples: 1920, maxSamples: 9600 };

function pull(buffer, n = QUANTUM) {
  const out = new Float32Array(n).fill(9);
  buffer.pull(out);
  return out;
}

/** Samples 1, 2, 3, ... so that order, loss and repetition show. */
function ramp(from, n) {
  return Float32Array.from({ length: n }, (_, i) => from + i + 1);
}

/** A reply over a bad network: what came out, and the buffer. */
function play(seed) {
  const draw = random(seed);
  const buffer = new JitterBuffer(OPTIONS);
  const total = draw(40_000);
  const padding = draw(960);
  const heard = [];
  let pushed = 0;
  let isEnded = false;
  for (let i = 0; buffer.phase !== "ended"; i++) {
    assert.ok(i < 20_000, "it never ended");
    if (draw(12) === 0 && pushed < total + padding) {
      const n = Math.min(1 + draw(4000), total + padding - pushed);
      buffer.push(ramp(pushed, n), draw(4) === 0);
      pushed += n;
    } else if (!isEnded && pushed === total + padding && draw(6) === 0) {
      // In practice it comes right behind the last packet, before its padding can be heard.
      isEnded = true;
      buffer.end(total);
    }
    heard.push(...pull(buffer));
  }
  return { buffer, heard, total, padding };
}

test("every sample once and in order, silence between, and an end", () => {
  for (let seed = 0; seed < 300; seed++) {
    const { buffer, heard, total, padding } = play(seed);
    const sounds = heard.filter((sample) => sample !== 0);
    assert.ok(sounds.length >= total && sounds.length <= total + padding, `seed ${seed}`);
    assert.ok(sounds.every((sample, i) => sample === i + 1), `seed ${seed}`);
    assert.equal(buffer.played, sounds.length);
    assert.equal(buffer.buffered, 0);
  }
});

test("exactly the total is played when the end is known in time", () => {
  for (let seed = 0; seed < 300; seed++) {
    const draw = random(seed);
    const buffer = new JitterBuffer(OPTIONS);
    const total = draw(5000);
    for (let pushed = 0; pushed < total + 960; pushed += 960) buffer.push(ramp(pushed, 960), false);
    const heard = [];
    for (let i = draw(Math.floor(total / QUANTUM)); i > 0; i--) heard.push(...pull(buffer));
    buffer.end(total);
    while (buffer.phase !== "ended") heard.push(...pull(buffer));
    assert.equal(heard.filter((sample) => sample !== 0).length, total);
    assert.equal(buffer.underruns, 0);
  }
});

test("nothing is heard before the start threshold, unless there is nothing to wait for", () => {
  const buffer = new JitterBuffer(OPTIONS);
  buffer.push(ramp(0, 1919), false);
  assert.ok(pull(buffer).every((sample) => sample === 0));
  buffer.push(ramp(1919, 1), false);
  assert.equal(pull(buffer)[0], 1);
  for (const finish of [(short) => short.push(new Float32Array(0), true), (short) => short.end(100)]) {
    const short = new JitterBuffer(OPTIONS);
    short.push(ramp(0, 100), false);
    finish(short);
    assert.equal(pull(short)[0], 1);
  }
});

test("running dry is counted to the sample and raises the threshold, up to a limit", () => {
  const buffer = new JitterBuffer(OPTIONS);
  let pushed = 0;
  for (let i = 1; i <= 8; i++) {
    const n = 9600 + 64; // ends in the middle of a block
    buffer.push(ramp(pushed, n), false);
    pushed += n;
    while (buffer.phase === "playing" || buffer.underruns < i) pull(buffer);
    for (let k = 0; k < 5; k++) pull(buffer);
    assert.equal(buffer.underruns, i);
    assert.equal(buffer.threshold, Math.min(1920 * (i + 1), 9600));
    assert.equal(buffer.stalled, i * (64 + 5 * QUANTUM));
  }
});

test("a pause of the text is no underrun", () => {
  const buffer = new JitterBuffer(OPTIONS);
  buffer.push(ramp(0, 2000), true);
  for (let i = 0; i < 100; i++) pull(buffer);
  assert.equal(buffer.underruns, 0);
  assert.equal(buffer.stalled, 0);
  assert.equal(buffer.threshold, 1920);
  buffer.push(ramp(2000, 1920), false);
  assert.equal(pull(buffer)[0], 2001);
});

test("after a flush the next block fades out and everything behind it is silent", () => {
  for (let seed = 0; seed < 100; seed++) {
    const draw = random(seed);
    const buffer = new JitterBuffer(OPTIONS);
    buffer.push(new Float32Array(9600).fill(1), false);
    for (let i = draw(70); i > 0; i--) pull(buffer);
    const wasLoud = buffer.phase === "playing" && buffer.buffered >= QUANTUM;
    buffer.flush();
    const fade = pull(buffer);
    assert.ok(fade.every((sample, i) => i === 0 || sample <= fade[i - 1]));
    assert.equal(fade.at(-1), 0);
    if (wasLoud) assert.ok(fade[0] > 0.98);
    buffer.push(new Float32Array(9600).fill(1), true); // late
    buffer.end(20_000);
    for (let i = 0; i < 50; i++) assert.ok(pull(buffer).every((sample) => sample === 0));
    assert.equal(buffer.phase, "ended");
  }
});

test("an end without any sound is an end", () => {
  const buffer = new JitterBuffer(OPTIONS);
  buffer.end(0);
  pull(buffer);
  assert.equal(buffer.phase, "ended");
});

test("an end that comes when it has run dry is an end", () => {
  const buffer = new JitterBuffer(OPTIONS);
  buffer.push(ramp(0, 2000), false);
  for (let i = 0; i < 40; i++) pull(buffer);
  assert.equal(buffer.phase, "filling");
  buffer.end(2000);
  pull(buffer);
  assert.equal(buffer.phase, "ended");
});

test("a speaker tells the first audible frame and every change, and seldom more", () => {
  const told = [];
  const speaker = new Speaker(OPTIONS, (status) => told.push(status));
  const samples = new Float32Array(48_000).fill(0.5).fill(0.0005, 0, 1000);
  let frame = 10_000;
  const fill = (n) => {
    for (let i = 0; i < n; i++, frame += QUANTUM) speaker.fill(new Float32Array(QUANTUM), frame);
  };
  fill(10);
  speaker.order({ samples, isWhole: false }, frame);
  const begun = frame;
  fill(300);
  assert.equal(told.at(-1).soundFrame, begun + 1000);
  assert.ok(told.length < 25);
  speaker.order({ flush: true }, frame);
  assert.equal(told.at(-1).phase, "stopping");
  assert.equal(told.at(-1).frame, frame);
  fill(1);
  assert.equal(told.at(-1).phase, "ended");
});
