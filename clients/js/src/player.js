/**
 * The loudspeaker of a page: what it can decode, how it plays, and whether it may.
 *
 * @module
 */

import { pcm, wasm, webCodecs } from "./decoders.js";
import { PlayerError } from "./errors.js";
import { Playback } from "./playback.js";
import { ScriptSink, WorkletSink } from "./sinks.js";

/**
 * @typedef {import("./index.d.ts").Player} PublicPlayer
 * @typedef {import("./index.d.ts").PlayerOptions} PlayerOptions
 * @typedef {import("./decoders.js").MakeDecoder} MakeDecoder
 */

const OPUS_RATE_HZ = 48_000; // what browsers decode to, whatever is asked for
const STEP_MS = 40;
const MAX_MS = 200;
// A reply without an underrun makes the next one start this much sooner again.
const RELAX_MS = 10;
// An audio context that is allowed to run does so within a few milliseconds.
const START_MS = 300;
const GESTURES = ["pointerup", "keydown", "touchend"];
const BLOCKED =
  "the browser plays no sound before somebody has touched the page: call player.unlock() in a click " +
  "or key handler; it starts by itself at the next click or key press";

/** @implements {PublicPlayer} */
export class Player {
  /**
   * @param {PlayerOptions} [options]
   * @returns {Promise<Player>}
   */
  static async create(options = {}) {
    // Made at once: in a click handler this is still part of the click.
    const player = new Player(options);
    try {
      await player._prepare(options);
    } catch (error) {
      await player.close(); // a browser has few audio contexts
      throw error;
    }
    return player;
  }

  /** @param {PlayerOptions} options */
  constructor(options) {
    if (options.audioContext === undefined && typeof AudioContext === "undefined") {
      throw new PlayerError("no_audio", "there is no Web Audio here; a Player is for browsers");
    }
    const sampleRate = options.sampleRate ?? OPUS_RATE_HZ;
    this.audioContext =
      options.audioContext ?? new AudioContext({ sampleRate, latencyHint: "interactive" });
    this.sampleRate = this.audioContext.sampleRate;
    /** @type {import("./index.d.ts").DecoderKind} */
    this.decoder = "pcm";
    /** @type {string[]} */
    this.degraded = [];
    this.output = new GainNode(this.audioContext);
    this.output.connect(options.destination ?? this.audioContext.destination);
    this._ownsContext = options.audioContext === undefined;
    this._onBlocked = options.onBlocked;
    this._firstStartMs = options.startMs ?? STEP_MS;
    this._startMs = this._firstStartMs;
    /** @type {MakeDecoder} */
    this._makeDecoder = pcm;
    this._hasWorklet = false;
    this._isWatching = false;
    /** @type {Promise<unknown>} */
    this._turn = Promise.resolve();
    /** @type {Set<Playback>} */
    this._playbacks = new Set();
    this.audioContext.addEventListener("statechange", () => {
      if (this.audioContext.state !== "closed") return;
      const closed = new PlayerError("closed", "the audio context was closed");
      for (const playback of this._playbacks) playback._break(closed);
    });
  }

  /** @returns {import("./index.d.ts").Format} */
  get format() {
    return this.decoder === "pcm"
      ? { codec: "pcm_s16le", sample_rate: this.sampleRate }
      : { codec: "opus", container: "raw" };
  }

  get isBlocked() {
    return this.audioContext.state !== "running" && this.audioContext.state !== "closed";
  }

  get outputLatencyMs() {
    const { outputLatency, baseLatency } = this.audioContext;
    return 1000 * (outputLatency ?? baseLatency ?? 0);
  }

  async unlock() {
    await this.audioContext.resume();
  }

  /**
   * @param {import("./index.d.ts").Context} context
   * @param {import("./index.d.ts").PlaybackHandlers} [handlers]
   */
  play(context, handlers = {}) {
    if (this.audioContext.state === "closed") {
      throw new PlayerError("closed", "the player was closed");
    }
    const own = /** @type {import("./context.js").Context} */ (context);
    const turn = this._playbacks.size > 0 ? this._turn : null;
    const playback = new Playback(this, own, handlers, turn);
    this._playbacks.add(playback);
    this._turn = playback.finished
      .catch(() => {})
      .then(() => {
        this._playbacks.delete(playback);
      });
    return playback;
  }

  async stop() {
    const playbacks = [...this._playbacks];
    return await Promise.all(playbacks.map((playback) => playback.cancel().catch(() => null)));
  }

  async close() {
    await this.stop();
    this.output.disconnect();
    if (this._ownsContext && this.audioContext.state !== "closed") await this.audioContext.close();
  }

  // --- what this browser can do ------------------------------------------------------------------

  /** @param {PlayerOptions} options */
  async _prepare(options) {
    await Promise.all([this._chooseSink(options), this._chooseDecoder(options)]);
    for (const reason of this.degraded) console.warn(`rtts: ${reason}`);
  }

  /** @param {PlayerOptions} options */
  async _chooseSink({ workletUrl }) {
    if (this.audioContext.audioWorklet === undefined) {
      const why =
        globalThis.isSecureContext === false
          ? "this page is no secure context (https, or localhost), so AudioWorklet is missing"
          : "this browser has no AudioWorklet";
      this.degraded.push(`${why}: sound is made on the main thread, and a busy page can be heard`);
      return;
    }
    const url = workletUrl ?? new URL("./jitter.js", import.meta.url);
    try {
      await this.audioContext.audioWorklet.addModule(String(url));
    } catch (error) {
      throw new PlayerError(
        "worklet_failed",
        `${url} could not be loaded as a worklet (${error}): serve the file and pass its address as ` +
          "workletUrl, and allow it in the page's Content-Security-Policy",
      );
    }
    this._hasWorklet = true;
  }

  /** @param {PlayerOptions} options */
  async _chooseDecoder({ decoder, wasmUrl }) {
    const url = wasmUrl ?? new URL("./vendor/opus-decoder.min.js", import.meta.url);
    const isOpusRate = this.sampleRate === OPUS_RATE_HZ;
    const wrongRate = `Opus decodes to 48000 Hz, and the audio context has ${this.sampleRate}`;
    /** @type {[import("./index.d.ts").DecoderKind, () => Promise<MakeDecoder | string>][]} */
    const kinds = [
      ["webcodecs", async () => (isOpusRate ? webCodecs() : wrongRate)],
      ["wasm", async () => (isOpusRate ? wasm(url) : wrongRate)],
      ["pcm", async () => pcm],
    ];
    for (const [kind, find] of kinds) {
      if (decoder !== undefined && decoder !== kind) continue;
      const found = await find();
      if (typeof found !== "string") {
        this.decoder = kind;
        this._makeDecoder = found;
        return;
      }
      if (decoder === kind) throw new PlayerError("unsupported_decoder", `${kind}: ${found}`);
      this.degraded.push(`no ${kind} decoder: ${found}`);
    }
    // The last one needs nothing, so it was asked for by a name that there is not.
    throw new PlayerError("unsupported_decoder", `${decoder}: there is no such decoder`);
  }

  /** @param {(status: import("./jitter.js").Status) => void} onStatus */
  _makeSink(onStatus) {
    const perMs = this.sampleRate / 1000;
    const options = {
      startSamples: Math.round(this._startMs * perMs),
      stepSamples: Math.round(STEP_MS * perMs),
      maxSamples: Math.round(Math.max(MAX_MS, this._firstStartMs) * perMs),
    };
    const Sink = this._hasWorklet ? WorkletSink : ScriptSink;
    const sink = new Sink(this.audioContext, options, onStatus);
    sink.node.connect(this.output);
    return sink;
  }

  /**
   * The network that was will be: the next reply starts with what this one needed.
   *
   * @param {import("./jitter.js").Status | null} status
   */
  _learn(status) {
    if (status === null || status.played === 0) return;
    this._startMs =
      status.underruns > 0
        ? (1000 * status.threshold) / this.sampleRate
        : Math.max(this._firstStartMs, this._startMs - RELAX_MS);
  }

  // --- what is heard, and when -------------------------------------------------------------------

  /** The frame that leaves the loudspeaker now. */
  _heardFrame() {
    const { contextTime, performanceTime } = this._outputTime();
    const now = contextTime + (performance.now() - performanceTime) / 1000;
    return Math.min(now, this.audioContext.currentTime) * this.sampleRate;
  }

  /**
   * When a frame leaves the loudspeaker, on the clock of `performance.now()`.
   *
   * @param {number} frame
   */
  _heardAt(frame) {
    const { contextTime, performanceTime } = this._outputTime();
    return performanceTime + 1000 * (frame / this.sampleRate - contextTime);
  }

  _outputTime() {
    const { contextTime = 0, performanceTime = 0 } = this.audioContext.getOutputTimestamp?.() ?? {};
    if (performanceTime > 0) return { contextTime, performanceTime };
    const latencyS = this.outputLatencyMs / 1000;
    return {
      contextTime: this.audioContext.currentTime - latencyS,
      performanceTime: performance.now(),
    };
  }

  // --- whether it may ----------------------------------------------------------------------------

  /** Playing begins: have the audio context run, or say that it may not. */
  async _checkBlocked() {
    if (!this.isBlocked || this._isWatching) return;
    const timeout = new Promise((resolve) => setTimeout(resolve, START_MS));
    await Promise.race([this.audioContext.resume().catch(() => {}), timeout]);
    if (!this.isBlocked || this._isWatching) return;
    this._isWatching = true;
    const retry = () => void this.audioContext.resume();
    for (const gesture of GESTURES) document.addEventListener(gesture, retry, { capture: true });
    this.audioContext.addEventListener("statechange", () => {
      if (this.isBlocked) return;
      this._isWatching = false;
      for (const gesture of GESTURES) document.removeEventListener(gesture, retry, { capture: true });
    });
    console.warn(`rtts: ${BLOCKED}`);
    this._onBlocked?.(new PlayerError("autoplay_blocked", BLOCKED));
  }
}
