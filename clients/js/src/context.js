/**
 * One reply: text in, an async iterator of audio and events out.
 *
 * @module
 */

import { ContextFailedError, SlowReaderError } from "./errors.js";
import { ReadingClock } from "./pacing.js";
import { Script } from "./script.js";
import { AudioFlags, encode } from "./wire.js";

/**
 * @typedef {import("./index.d.ts").Context} PublicContext
 * @typedef {import("./index.d.ts").ContextEvent} ContextEvent
 * @typedef {import("./index.d.ts").ContextOptions} ContextOptions
 * @typedef {import("./index.d.ts").Done} Done
 * @typedef {import("./index.d.ts").ServerError} ServerError
 */

// Text that finds no room is tried again after this long without a sign of life.
const RETRY_MS = 3000;
// One that was sent without room and not refused by then was taken (nothing in it was to be spoken,
// as in a listing of code), so the next is tried this soon.
const TAKEN_MS = 200;

// The most that the protocol takes, a day. What it refuses is not done: a cancel would be lost.
const MOST_MS = 86_400_000;

/** @param {number} figure */
const within = (figure) => Math.min(MOST_MS, Math.max(0, figure));

/** @implements {PublicContext} */
export class Context {
  /**
   * @param {import("./client.js").Client} client
   * @param {string} name
   * @param {ContextOptions} options
   */
  constructor(client, name, options) {
    const { name: _, bufferMs = 10_000, maxBufferMs = 120_000, reports = true, ...start } = options;
    this.name = name;
    /** @type {import("./index.d.ts").StreamFormat | null} */
    this.format = null;
    /** @type {number | null} */
    this.firstPacketMs = null;
    /** @type {number | null} */
    this.saidAt = null;
    this._client = client;
    this._start = start;
    this._bufferMs = bufferMs;
    this._maxBufferMs = maxBufferMs;
    this._reports = reports;
    // Out.
    this._script = new Script(name, start.chunking?.mode === "client");
    this._isStarted = false;
    this._session = 0; // of the client's: the one that knows it
    /** @type {{played_ms?: number} | null} */
    this._cancel = null; // fields of the cancel, once asked
    this._isCancelSent = false;
    this._mayTry = false; // send one text although there seems to be no room
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._retry = undefined; // no text is sent while it is set
    this._isRefused = false; // it is set because a text was refused
    /** @type {[number, number][]} */
    this._said = []; // [characters so far, when], until audio comes
    // In.
    /** @type {ContextEvent[]} */
    this._events = [];
    /** @type {Done | Error | null} */
    this._outcome = null;
    this._isOutcomeRead = false;
    /** @type {(() => void)[]} */
    this._waiters = []; // readers and cancellers, woken by whatever comes
    /** @type {ServerError | null} */
    this._error = null;
    this._lastSeq = -1;
    this._segment = { number: -1, endAt: 0 }; // the last one, and where it ends in the text
    this._hasFirstAudio = false;
    /** @type {Set<string | undefined>} */
    this._acked = new Set();
    this._clock = new ReadingClock();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._throttle = undefined; // set once the server is held back
    this._callerReports = false;
  }

  // --- saying --------------------------------------------------------------------------------------

  /** @param {string} text */
  append(text) {
    this._script.say(text, this._client.ready.limits.max_text_chars);
    this._noteSaid();
  }

  flush() {
    const id = this._script.flush();
    this._noteSaid();
    return id;
  }

  end() {
    this._script.end();
    this._noteSaid();
  }

  /** @param {number} [playedMs] */
  async cancel(playedMs) {
    this._requestCancel(playedMs);
    while (this._outcome === null) await this._news();
    if (this._outcome instanceof Error) throw this._outcome;
    return this._outcome;
  }

  /** @param {import("./index.d.ts").PlaybackFigures} figures */
  reportPlayback(figures) {
    this._callerReports ||= figures.played_ms !== undefined;
    this._postPlayback(figures);
  }

  /** @param {import("./index.d.ts").TextSource} source */
  speak(source) {
    this._feed(source).catch((error) => {
      this._requestCancel(undefined);
      this._finish(error);
    });
    return this;
  }

  /** @param {import("./index.d.ts").TextSource} source */
  async _feed(source) {
    if (typeof source === "string") {
      this.append(source);
    } else {
      for await (const piece of source) {
        if (this._outcome !== null || this._cancel !== null) return;
        this.append(piece);
      }
    }
    this.end();
  }

  _noteSaid() {
    if (!this._clock.hasBegun) this._said.push([this._script.nChars, performance.now()]);
    this._client._wake();
  }

  /** @param {number | undefined} playedMs */
  _requestCancel(playedMs) {
    if (this._outcome !== null || this._cancel !== null) return;
    this._cancel = playedMs === undefined ? {} : { played_ms: within(playedMs) };
    this._events.length = 0;
    this._client._wake();
  }

  // --- for the client: what to send next -----------------------------------------------------------

  _nextMessage() {
    if (!this._isStarted) {
      this._isStarted = true;
      this._session = this._client._nSessions;
      return encode("start", { ctx: this.name, ...this._start });
    }
    if (this._cancel !== null) {
      if (this._isCancelSent) return null;
      this._isCancelSent = true;
      return encode("cancel", { ctx: this.name, ...this._cancel });
    }
    if (this._retry !== undefined) return null;
    const limit = this._client.ready.limits.max_text_chars;
    const isForced = this._mayTry;
    this._mayTry = false;
    const [message, isBlocked] = this._script.nextMessage(limit, isForced);
    if (isBlocked) this._tryAfter(RETRY_MS);
    else if (isForced && message !== null) this._tryAfter(TAKEN_MS); // it may be refused
    return message;
  }

  /**
   * @param {number} delayMs
   * @param {boolean} [isRefused]
   */
  _tryAfter(delayMs, isRefused = false) {
    if (isRefused && !this._isRefused) {
      clearTimeout(this._retry);
      this._retry = undefined;
    }
    this._retry ??= setTimeout(() => {
      this._retry = undefined;
      this._isRefused = false;
      this._mayTry = true;
      this._client._wake();
    }, delayMs);
    this._isRefused ||= isRefused;
  }

  /**
   * Go on after a reconnect. Returns whether there is anything to go on with.
   *
   * @param {import("./index.d.ts").ResumedContext | null} server
   * @param {number} awayMs
   */
  _resume(server, awayMs) {
    if (server === null) this._session = 0;
    if (server === null && (this.format !== null || this._outcome !== null)) {
      this._finish(new ContextFailedError("resume_failed", "the server has forgotten it"));
      return false;
    }
    this._isStarted = server !== null;
    this._isCancelSent = false;
    this._script.rewind(server?.next_n ?? 0);
    if (this._cancel === null) this._put({ type: "reconnected", away_ms: awayMs });
    return true;
  }

  // --- for the client: what arrived ------------------------------------------------------------------

  /** @param {ContextEvent} event */
  _receive(event) {
    if (this._outcome !== null) return;
    if (event.type === "done") this._finish(this._judge(event));
    else if (event.type === "error") this._receiveError(event);
    else if (this._isNews(event)) {
      this._noteLife();
      this._noteProgress(event);
      if (this._cancel === null) {
        this._put(event);
        this._checkWaiting();
      }
    }
  }

  /**
   * Whether an event was not there before a reconnect already; remembers it.
   *
   * @param {ContextEvent} event
   */
  _isNews(event) {
    let isNews = true;
    switch (event.type) {
      case "started":
        isNews = this.format === null;
        this.format = event.format;
        break;
      case "audio":
        isNews = event.seq > this._lastSeq;
        this._lastSeq = Math.max(event.seq, this._lastSeq);
        break;
      case "segment":
        isNews = event.segment > this._segment.number;
        break;
      case "flushed":
        isNews = !this._acked.has(event.id);
        this._acked.add(event.id);
        break;
      case "first_audio":
        isNews = !this._hasFirstAudio;
        this._hasFirstAudio = true;
    }
    return isNews;
  }

  /** The server is at work, so waiting for room is in order. */
  _noteLife() {
    if (this._retry === undefined || this._isRefused) return;
    clearTimeout(this._retry);
    this._retry = undefined;
    this._client._wake();
  }

  /** @param {ContextEvent} event */
  _noteProgress(event) {
    let spoken = 0;
    if (event.type === "segment") {
      spoken = event.chars[0];
      this._segment = { number: event.segment, endAt: event.chars[1] };
    } else if (event.type === "audio") {
      if (!this._clock.hasBegun) this._noteFirstPacket();
      this._clock.received(event.duration_ms, performance.now());
      if (event.flags & AudioFlags.LAST_OF_SEGMENT) spoken = this._segment.endAt;
    } else if (event.type === "warning" && event.segment !== undefined) {
      spoken = this._segment.endAt;
    }
    if (this._script.spoken(spoken)) this._client._wake();
  }

  _noteFirstPacket() {
    const said = this._said.find(([nChars]) => nChars >= this._segment.endAt);
    this._said.length = 0;
    if (said === undefined) return;
    this.saidAt = said[1];
    this.firstPacketMs = performance.now() - said[1];
    if (this._reports) this._postPlayback({ first_packet_ms: this.firstPacketMs });
  }

  /** @param {ServerError} error */
  _receiveError(error) {
    if (error.code === "text_buffer_full" && this._script.takeBack(error.ref)) {
      this._tryAfter(error.retry_after_ms ?? RETRY_MS, true);
    } else if (error.code !== "bad_request" || !this._script.wasTakenBack(error.ref)) {
      this._error = error;
      if (this._cancel === null) this._put(error);
    }
  }

  /**
   * @param {Done} done
   * @returns {Done | ContextFailedError}
   */
  _judge(done) {
    if (done.spoken !== undefined) {
      // Count in what was said and never reached the server.
      done = { ...done, remaining: this._script.text.slice(done.spoken.length) };
    }
    if (done.reason === "completed" || done.reason === "cancelled") return done;
    const error = this._error;
    if (error === null || (done.code !== undefined && error.code !== done.code)) {
      return new ContextFailedError(done.code ?? done.reason, "", null, done);
    }
    return new ContextFailedError(error.code, error.message, error.retry_after_ms, done);
  }

  /** @param {Done | Error} outcome */
  _finish(outcome) {
    if (this._outcome !== null) return;
    this._outcome = outcome;
    clearTimeout(this._retry);
    clearTimeout(this._throttle);
    this._wakeReaders();
  }

  // --- reading ---------------------------------------------------------------------------------------

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<ContextEvent, undefined>>} */
  async next() {
    while (this._events.length === 0) {
      if (this._outcome !== null) {
        if (this._isOutcomeRead) return { done: true, value: undefined };
        this._isOutcomeRead = true;
        if (this._outcome instanceof Error) throw this._outcome;
        return { done: false, value: this._outcome };
      }
      await this._news();
    }
    const event = /** @type {ContextEvent} */ (this._events.shift());
    if (event.type === "audio") this._clock.read(event.duration_ms);
    return { done: false, value: event };
  }

  /** @returns {Promise<void>} */
  _news() {
    return new Promise((resolve) => this._waiters.push(resolve));
  }

  _wakeReaders() {
    for (const wake of this._waiters.splice(0)) wake();
  }

  /** @param {ContextEvent} event */
  _put(event) {
    this._events.push(event);
    this._wakeReaders();
  }

  /** Hold the server back when audio is not read; give up when that does not help. */
  _checkWaiting() {
    const { waitingMs } = this._clock;
    if (waitingMs > this._maxBufferMs) {
      const words = `${Math.round(waitingMs / 1000)} s of audio were not read`;
      const unread = this._events.slice();
      this._requestCancel(undefined);
      this._events.push(...unread);
      this._finish(new SlowReaderError("slow_reader", words));
    } else if (waitingMs > this._bufferMs && this._throttle === undefined) {
      this._reportClock();
    }
  }

  _reportClock() {
    if (this._outcome !== null || this._callerReports || this._cancel !== null) return;
    this._postPlayback({ played_ms: this._clock.playedMs(performance.now()) });
    // The protocol asks for a report at least every quarter of the lead.
    const everyMs = Math.min(1000, Math.max(50, this._client.ready.limits.max_lead_ms / 4));
    this._throttle = setTimeout(() => this._reportClock(), everyMs);
  }

  /** @param {import("./index.d.ts").PlaybackFigures} figures */
  _postPlayback(figures) {
    const rounded = Object.entries(figures).map(([key, value]) => [
      key,
      value === undefined ? undefined : within(Math.round(value * 1000) / 1000),
    ]);
    const message = encode("playback", { ctx: this.name, ...Object.fromEntries(rounded) });
    this._client._post(message, this);
  }
}
