/**
 * One reply being heard: its events are read, decoded, trimmed to the sample and given to a sink; what
 * was heard, and when, is reported to the server.
 *
 * @module
 */

import { PlayerError, RttsError } from "./errors.js";
import { AudioFlags } from "./wire.js";

/**
 * @typedef {import("./index.d.ts").Playback} PublicPlayback
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./index.d.ts").Done} Done
 * @typedef {import("./index.d.ts").PlaybackReport} PlaybackReport
 * @typedef {import("./jitter.js").Status} Status
 */

const REPORT_MS = 500;
// A sink that was told to stop has faded out by then, unless the audio context stands still.
const FADE_MS = 100;

/** @implements {PublicPlayback} */
export class Playback {
  /**
   * @param {import("./player.js").Player} player
   * @param {Context} context
   * @param {import("./index.d.ts").PlaybackHandlers} handlers
   * @param {Promise<unknown> | null} turn Settles when the reply before has been heard.
   */
  constructor(player, context, handlers, turn) {
    this.context = context;
    /** @type {number | null} */
    this.firstSoundMs = null;
    this._player = player;
    this._handlers = handlers;
    this._rate = player.sampleRate;
    /** @type {Status | null} */
    this._status = null;
    this._playedMs = 0; // as last told; it never goes back
    /** @type {import("./index.d.ts").HeardWord[]} */
    this._words = []; // all so far, in order
    this._nTold = 0; // of them
    this._isOnTime = turn === null; // its first sound says something about latency
    this._skip = 0; // samples of the decoder's warm-up still to be dropped
    this._pushed = 0;
    this._isCancelled = false;
    /** @type {RttsError | null} */
    this._failure = null;
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this._reporting = undefined;
    /** @type {import("./decoders.js").Decoder | null} */
    this._decoder = null;
    this._making = player._makeDecoder(
      (samples, isWhole) => this._push(samples, isWhole),
      (error) => this._break(error),
    );
    this._sink = player._makeSink((status) => this._note(status));
    /** @type {() => void} */
    this._markEnded = () => {};
    /** @type {Promise<void>} */
    this._ended = new Promise((resolve) => (this._markEnded = resolve));
    /** @type {Promise<PlaybackReport>} */
    this.finished = this._run(turn);
    this.finished.catch(() => {}); // whoever wants to know looks at it
  }

  get firstPacketMs() {
    return this.context.firstPacketMs;
  }

  get underruns() {
    return this._status?.underruns ?? 0;
  }

  get playedMs() {
    const status = this._status;
    if (status !== null && status.played > 0) {
      // What the sink was given is heard later, and since its status time has gone on.
      const since = this._player._heardFrame() - status.frame;
      const played = Math.min(status.played + since, status.played + status.buffered);
      this._playedMs = Math.max(this._playedMs, Math.min(1000 * (played / this._rate), this._givenMs));
    }
    return this._playedMs;
  }

  /** Milliseconds that the sink was given. */
  get _givenMs() {
    return (1000 * this._pushed) / this._rate;
  }

  async cancel() {
    const { playedMs } = this;
    this._isCancelled = true;
    this._stopSink();
    this._decoder?.close();
    const done = await this.context.cancel(playedMs);
    return done.spoken === undefined ? this._divide(done, playedMs) : done;
  }

  _stopSink() {
    this._sink.flush();
    setTimeout(this._markEnded, FADE_MS);
  }

  /**
   * The server had sent everything when it was stopped, so what was heard is known here only.
   *
   * @param {Done} done
   * @param {number} playedMs
   * @returns {Done}
   */
  _divide(done, playedMs) {
    if (this._words.length === 0) return done;
    const heard = this._words.filter(({ startMs, endMs }) => (startMs + endMs) / 2 <= playedMs);
    const letters = [...this.context._script.text];
    const at = heard.length === this._words.length ? letters.length : (heard.at(-1)?.chars[1] ?? 0);
    const spoken = letters.slice(0, at).join("");
    const remaining = letters.slice(at).join("");
    return { ...done, played_ms: playedMs, spoken, remaining };
  }

  /**
   * @param {Promise<unknown> | null} turn
   * @returns {Promise<PlaybackReport>}
   */
  async _run(turn) {
    try {
      this._decoder = await this._making;
      await turn;
      const done = await this._read();
      await this._ended;
      if (this._failure !== null) throw this._failure;
      return this._report(done);
    } catch (error) {
      if (this._pushed > 0 && this._failure === null) {
        // What had arrived is heard out.
        this._sink.end(this._pushed);
        await this._ended;
      }
      this._report(null);
      throw this._failure ?? error;
    } finally {
      clearInterval(this._reporting);
      this._decoder?.close();
      this._sink.close();
    }
  }

  /** @returns {Promise<Done>} */
  async _read() {
    for await (const event of this.context) {
      if (this._failure !== null) throw this._failure;
      if (event.type === "started") this._begin(event.format);
      else if (event.type === "audio") this._decode(event);
      else if (event.type === "marks") this._mark(event);
      else if (event.type === "done") {
        await this._end(event);
        this._tell(() => this._handlers.onEvent?.(event));
        return event;
      }
      this._tell(() => this._handlers.onEvent?.(event));
    }
    throw this._failure ?? new PlayerError("nothing_to_play", "its events were read elsewhere");
  }

  /** @param {import("./index.d.ts").StreamFormat} format */
  _begin(format) {
    const wanted = this._player.format;
    const rate = wanted.codec === "opus" ? 48_000 : format.sample_rate;
    if (format.codec !== wanted.codec || format.container !== "raw" || rate !== this._rate) {
      const got = `${format.codec}, ${format.container}, ${format.sample_rate} Hz`;
      this._break(
        new PlayerError(
          "unsupported_format",
          `this player cannot play ${got}: start contexts with { format: player.format }`,
        ),
      );
      return;
    }
    this._skip = Math.round((format.pre_skip * this._rate) / 48_000);
    this._isOnTime &&= !this._player.isBlocked;
    this._player._checkBlocked();
    this._reporting = setInterval(() => this._tellPosition(), REPORT_MS);
  }

  /** @param {import("./index.d.ts").Audio} audio */
  _decode(audio) {
    if (this._isCancelled) return;
    try {
      this._decoder?.decode(audio.packets, (audio.flags & AudioFlags.LAST_OF_SEGMENT) !== 0);
    } catch (error) {
      this._break(new PlayerError("decoder_failed", String(error)));
    }
  }

  /** @param {Done} done */
  async _end(done) {
    if (done.reason === "cancelled") this._stopSink();
    if (this._isCancelled || done.reason === "cancelled") return;
    if (this._pushed === 0 && done.samples === 0) this._markEnded();
    try {
      await this._decoder?.drain();
    } catch (error) {
      if (this._isCancelled) return;
      if (this._failure === null) throw new PlayerError("decoder_failed", String(error));
    }
    const rate = this.context.format?.sample_rate ?? this._rate;
    this._sink.end(Math.round((done.samples * this._rate) / rate));
  }

  /**
   * @param {Float32Array} samples
   * @param {boolean} isWhole
   */
  _push(samples, isWhole) {
    const skipped = Math.min(this._skip, samples.length);
    this._skip -= skipped;
    const rest = skipped > 0 ? samples.slice(skipped) : samples;
    this._pushed += rest.length;
    this._sink.push(rest, isWhole);
  }

  /** @param {RttsError} failure */
  _break(failure) {
    if (this._failure !== null) return;
    this._failure = failure;
    this._stopSink();
    this.context.cancel(this.playedMs).catch(() => {});
  }

  /** @param {Status} status */
  _note(status) {
    this._status = status;
    if (status.soundFrame !== null && this.firstSoundMs === null) this._noteSound(status.soundFrame);
    this._tellWords();
    if (status.phase === "ended") this._markEnded();
  }

  /** @param {number} frame */
  _noteSound(frame) {
    const { saidAt } = this.context;
    if (saidAt === null) return;
    const firstSoundMs = (this.firstSoundMs = this._player._heardAt(frame) - saidAt);
    this._tell(() => this._handlers.onFirstSound?.(firstSoundMs));
    if (this._isOnTime) this.context.reportPlayback({ first_sound_ms: firstSoundMs });
  }

  /**
   * Call a handler. What it throws is the page's to see, as of any listener, and stops no sound.
   *
   * @param {() => void} call
   */
  _tell(call) {
    try {
      call();
    } catch (error) {
      setTimeout(() => {
        throw error;
      });
    }
  }

  /** @param {import("./index.d.ts").Marks} marks */
  _mark({ items, chars }) {
    items.forEach(([word, startMs, endMs], i) => {
      this._words.push({ word, startMs, endMs, chars: chars[i] });
    });
  }

  _tellWords() {
    const { playedMs } = this;
    for (; this._nTold < this._words.length; this._nTold++) {
      const word = this._words[this._nTold];
      if (word.startMs > playedMs) return;
      this._tell(() => this._handlers.onWord?.(word));
    }
  }

  _tellPosition() {
    this._tellWords();
    this.context.reportPlayback({ played_ms: this.playedMs });
  }

  /**
   * @param {Done | null} done
   * @returns {PlaybackReport}
   */
  _report(done) {
    const stalledMs = (1000 * (this._status?.stalled ?? 0)) / this._rate;
    const outputLatencyMs = this._player.outputLatencyMs;
    const { underruns, firstPacketMs, firstSoundMs } = this;
    this._player._learn(this._status);
    if (this._pushed > 0) {
      this.context.reportPlayback({
        underruns,
        stalled_ms: stalledMs,
        output_latency_ms: outputLatencyMs,
      });
    }
    const samples = this._status?.played ?? 0;
    return {
      done: /** @type {Done} */ (done),
      samples,
      firstPacketMs,
      firstSoundMs,
      underruns,
      stalledMs,
      outputLatencyMs,
    };
  }
}
