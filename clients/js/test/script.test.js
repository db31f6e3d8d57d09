// What is said arrives whole, whatever way it was cut, merged, refused or sent again.
import assert from "node:assert/strict";
import test from "node:test";

import { ReadingClock } from "../src/pacing.js";
import { Script } from "../src/script.js";
import { random } from "./random.js";

const take = (script, limit = 4000) => {
  const messages = [];
  for (;;) {
    const [message] = script.nextMessage(limit);
    if (message === null) return messages;
    messages.push(JSON.parse(message));
  }
};

test("text cut anywhere, inside characters too, arrives whole", () => {
  for (let seed = 0; seed < 200; seed++) {
    const draw = random(seed);
    const alphabet = ["a", "é", "語", "😀", " ", ".", "👍🏽"];
    let text = "";
    for (let i = draw(300); i > 0; i--) text += alphabet[draw(alphabet.length)];
    const script = new Script("c", false);
    const messages = [];
    for (let at = 0; at < text.length; ) {
      const to = at + 1 + draw(20);
      script.say(text.slice(at, to), 4 * (1 + draw(10)));
      if (draw(3) === 0) messages.push(...take(script));
      at = to;
    }
    script.end();
    messages.push(...take(script));
    assert.equal(messages.map((message) => message.text).join(""), text);
    assert.deepEqual(messages.map(({ n }) => n), messages.map((_, i) => i));
    assert.equal(script.nChars, [...text].length);
    assert.equal(script.text, text);
    for (const message of messages) assert.ok(message.text.isWellFormed?.() ?? true);
    assert.deepEqual(messages.map(({ end }) => end).filter(Boolean), [true]);
  }
});

test("half a character that stays alone is sent as it is", () => {
  const script = new Script("c", false);
  script.say("so \ud83d", 4000);
  script.end();
  assert.equal(take(script).map(({ text }) => text).join(""), "so \ud83d");
});

test("no more is sent than the server has room for, and spoken text makes room", () => {
  const script = new Script("c", false);
  script.say("x".repeat(100), 40);
  const first = take(script, 40);
  assert.equal(first.map(({ text }) => text).join("").length, 40);
  assert.deepEqual(script.nextMessage(40), [null, true]);
  assert.ok(script.spoken(20));
  assert.equal(take(script, 40).length, 2);
});

test("a refused text goes again with its number, and what was behind it", () => {
  const script = new Script("c", true);
  for (const text of ["a", "b", "c"]) script.say(text, 4000);
  take(script);
  assert.ok(script.takeBack("n1"));
  assert.ok(script.wasTakenBack("n2") && !script.wasTakenBack("n0"));
  assert.deepEqual(take(script).map(({ n, text }) => [n, text]), [[1, "b"], [2, "c"]]);
  assert.ok(!script.takeBack("x") && !script.takeBack(undefined));
});

test("a flush is answered by its own id, and two of them are two", () => {
  const script = new Script("c", false);
  script.say("a", 4000);
  const ids = [script.flush(), script.flush()];
  script.say("b", 4000);
  assert.deepEqual(
    take(script).map(({ id, flush, text }) => [id, flush, text]),
    [["n0", true, "a"], ["n1", true, ""], ["n2", undefined, "b"]],
  );
  assert.deepEqual(ids, ["n0", "n1"]);
});

test("played is what was read, and never faster than it can be heard", () => {
  for (let seed = 0; seed < 200; seed++) {
    const draw = random(seed);
    const clock = new ReadingClock();
    let [now, begun, received, read, last] = [0, null, 0, 0, 0];
    for (let i = 0; i < 50; i++) {
      now += draw(200);
      if (draw(2)) {
        begun ??= now;
        clock.received(80, now);
        received += 80;
      } else if (read < received) {
        clock.read(80);
        read += 80;
      }
      const played = clock.playedMs(now);
      assert.ok(played >= 0 && played <= read && played >= last - 1e-9);
      assert.ok(played <= now - (begun ?? now) + 1e-9);
      last = played;
    }
  }
});
