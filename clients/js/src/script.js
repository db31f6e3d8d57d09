/**
 * What the caller said to one context, as numbered texts, and how much of it the server has.
 *
 * Flushes and the end are numbered too (as texts that may be empty), so the server can neither miss
 * nor repeat one: it refuses a gap and ignores what it has seen. Everything is kept until the
 * context is over and can be said again after a reconnect. Text goes out only as far as the server
 * has room for it. Characters are code points, as on the wire. Knows nothing about sockets or time.
 *
 * @module
 */

import { encode } from "./wire.js";

// Text not yet sent is merged into messages of at most this many characters.
const MERGE_CHARS = 1000;

/** One `text` message; its `n` is its place in the script. */
class Step {
  /**
   * @param {string} text
   * @param {number} nChars
   * @param {number} endAt Characters of the context's text so far.
   */
  constructor(text, nChars, endAt) {
    this.text = text;
    this.nChars = nChars;
    this.endAt = endAt;
    this.flush = false;
    this.end = false;
  }
}

/** The saying half of a context. */
export class Script {
  /**
   * @param {string} ctx
   * @param {boolean} keepsPieces Every text stays a message of its own.
   */
  constructor(ctx, keepsPieces) {
    /** Characters said. */
    this.nChars = 0;
    /** Nothing more can be said. */
    this.hasEnded = false;
    this._ctx = ctx;
    this._keepsPieces = keepsPieces;
    /** @type {Step[]} */
    this._steps = [];
    this._cursor = 0; // next step to send
    this._half = ""; // first half of a character that was cut in two
    this._spokenChars = 0; // the server's buffer holds at most what lies behind this
  }

  /**
   * Append text; `limit` is the most characters the server takes at once.
   *
   * @param {string} text
   * @param {number} limit
   */
  say(text, limit) {
    if (this.hasEnded) {
      throw new TypeError(`context ${JSON.stringify(this._ctx)} has ended; no text can follow`);
    }
    text = this._half + text;
    this._half = "";
    if (/[\ud800-\udbff]$/.test(text)) {
      this._half = text.slice(-1);
      text = text.slice(0, -1);
    }
    const size = this._keepsPieces ? Infinity : Math.max(1, Math.min(MERGE_CHARS, limit >> 2));
    for (const [piece, nChars] of pieces(text, size)) this._append(piece, nChars, size);
  }

  /** Append a flush; returns the id of its answer. */
  flush() {
    let step = this._unsent();
    if (step === null || step.flush) step = this._add("", 0);
    step.flush = true;
    return `n${this._steps.length - 1}`;
  }

  /** Append the end; a second one is ignored. */
  end() {
    if (this.hasEnded) return;
    if (this._half) {
      this._append(this._half, 1, 0);
      this._half = "";
    }
    const step = this._unsent() ?? this._add("", 0);
    step.end = this.hasEnded = true;
  }

  /**
   * The next message to send (null for none), and whether one waits for room at the server.
   *
   * @param {number} limit Characters of a context that the server buffers.
   * @param {boolean} [isForced] Send even if there seems to be no room.
   * @returns {[string | null, boolean]}
   */
  nextMessage(limit, isForced = false) {
    const n = this._cursor;
    if (n === this._steps.length) return [null, false];
    const step = this._steps[n];
    if (step.endAt - this._spokenChars > limit) {
      if (!isForced) return [null, true];
      this._spokenChars = step.endAt - limit; // true unless it is refused
    }
    this._cursor++;
    const { text } = step;
    const flush = step.flush || null;
    const end = step.end || null;
    return [encode("text", { ctx: this._ctx, n, text, flush, end, id: `n${n}` }), false];
  }

  /** Everything said. */
  get text() {
    return this._steps.map((step) => step.text).join("") + this._half;
  }

  /**
   * The server has spoken the text up to here; returns whether that is new.
   *
   * @param {number} nChars
   */
  spoken(nChars) {
    const isNew = nChars > this._spokenChars;
    if (isNew) this._spokenChars = nChars;
    return isNew;
  }

  /**
   * Go back to the first text the server has not got.
   *
   * @param {number} nextN
   */
  rewind(nextN) {
    this._cursor = Math.min(nextN, this._steps.length);
  }

  /**
   * A text was refused for want of room: send it again later. False if `ref` is none.
   *
   * @param {string | undefined} ref
   */
  takeBack(ref) {
    const n = number(ref);
    if (n !== null) this._cursor = Math.min(this._cursor, n);
    return n !== null;
  }

  /**
   * Whether `ref` is a text behind one that was taken back, so refused as a gap.
   *
   * @param {string | undefined} ref
   */
  wasTakenBack(ref) {
    const n = number(ref);
    return n !== null && n >= this._cursor;
  }

  /**
   * @param {string} piece
   * @param {number} nChars
   * @param {number} mergeChars
   */
  _append(piece, nChars, mergeChars) {
    this.nChars += nChars;
    const last = this._unsent();
    if (last === null || last.flush || this._keepsPieces || last.nChars + nChars > mergeChars) {
      this._add(piece, nChars);
    } else {
      last.text += piece;
      last.nChars += nChars;
      last.endAt = this.nChars;
    }
  }

  /**
   * @param {string} text
   * @param {number} nChars
   */
  _add(text, nChars) {
    const step = new Step(text, nChars, this.nChars);
    this._steps.push(step);
    return step;
  }

  /** The last step, if it can still change. */
  _unsent() {
    return this._cursor < this._steps.length ? this._steps[this._steps.length - 1] : null;
  }
}

/**
 * Cut into pieces of at most `size` code points, each with how many it has.
 *
 * @param {string} text
 * @param {number} size
 * @returns {Generator<[string, number]>}
 */
function* pieces(text, size) {
  let start = 0;
  while (start < text.length) {
    let [end, nChars] = [start, 0];
    while (end < text.length && nChars < size) {
      end += /** @type {number} */ (text.codePointAt(end)) > 0xffff ? 2 : 1;
      nChars++;
    }
    yield [text.slice(start, end), nChars];
    start = end;
  }
}

/** @param {string | undefined} ref */
function number(ref) {
  return ref && /^n\d+$/.test(ref) ? Number(ref.slice(1)) : null;
}
