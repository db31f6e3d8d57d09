/**
 * The jitter buffer, and the AudioWorklet that plays from it.
 *
 * One file, because a worklet module is loaded by its address: a bundler that copies it as it is must
 * copy all of it. Imported anywhere else it only exports the buffer, which knows nothing about audio
 * devices, messages or time.
 *
 * @module
 */

/**
 * @typedef {object} JitterOptions
 * @property {number} startSamples Audio to collect before playing, at first.
 * @property {number} stepSamples How much more after each time it ran dry ...
 * @property {number} maxSamples ... up to this.
 */

/**
 * Audio of one reply between the network and the speaker.
 *
 * It waits for a start threshold, plays, and when it runs dry waits again, for more each time. Running
 * dry where a piece of the text ended is no fault: there is nothing more to say yet.
 *
 * Owner: one thread at a time.
 */
export class JitterBuffer {
  /** @param {JitterOptions} options */
  constructor({ startSamples, stepSamples, maxSamples }) {
    /** @type {"filling" | "playing" | "stopping" | "ended"} */
    this.phase = "filling";
    /** Samples to collect before playing. */
    this.threshold = startSamples;
    /** Samples played. */
    this.played = 0;
    /** Samples that wait. */
    this.buffered = 0;
    this.underruns = 0;
    /** Samples of silence played because it was dry, pauses of the text left out. */
    this.stalled = 0;
    this._step = stepSamples;
    this._max = maxSamples;
    /** @type {Float32Array[]} */
    this._chunks = [];
    this._at = 0; // read so far of the first chunk
    this._isWhole = true; // what was pushed last completes a piece of the text
    this._isPause = true; // it is dry and that is in order
    /** @type {number | null} */
    this._total = null; // samples of the whole reply, once known
  }

  /**
   * Append samples.
   *
   * @param {Float32Array} samples
   * @param {boolean} isWhole They complete a piece of the text, so the next may take a while.
   */
  push(samples, isWhole) {
    if (this.phase === "stopping" || this.phase === "ended") return;
    this._isWhole = isWhole;
    if (samples.length === 0) return;
    this._chunks.push(samples);
    this.buffered += samples.length;
    this._cut();
  }

  /**
   * Nothing follows; exactly `total` samples are to be played, the rest is an encoder's padding.
   *
   * @param {number} total
   */
  end(total) {
    this._total = total;
    this._cut();
  }

  /** Stop: the next block fades out and everything after it is silence. */
  flush() {
    if (this.phase === "playing") this.phase = "stopping";
    else if (this.phase === "filling") this._clear();
  }

  /**
   * Fill a block.
   *
   * @param {Float32Array} out
   */
  pull(out) {
    if (this.phase === "filling" && this._mayStart()) {
      this.phase = this._total !== null && this.buffered === 0 ? "ended" : "playing";
    }
    if (this.phase === "playing") this._play(out);
    else if (this.phase === "stopping") this._fade(out);
    else {
      out.fill(0);
      if (this.phase === "filling" && !this._isPause) this.stalled += out.length;
    }
  }

  _mayStart() {
    if (this._total !== null) return true;
    return this.buffered > 0 && (this._isWhole || this.buffered >= this.threshold);
  }

  /** @param {Float32Array} out */
  _play(out) {
    const n = this._take(out);
    out.fill(0, n);
    if (n === out.length) return;
    if (this._total !== null) {
      this.phase = "ended";
      return;
    }
    this.phase = "filling";
    this._isPause = this._isWhole;
    if (this._isPause) return;
    this.underruns++;
    this.stalled += out.length - n;
    this.threshold = Math.min(this.threshold + this._step, this._max);
  }

  /** @param {Float32Array} out */
  _fade(out) {
    const n = this._take(out);
    for (let i = 0; i < n; i++) out[i] *= 1 - (i + 1) / out.length;
    out.fill(0, n);
    this._clear();
  }

  /**
   * Move samples into a block; returns how many there were.
   *
   * @param {Float32Array} out
   */
  _take(out) {
    let n = 0;
    while (n < out.length && this._chunks.length > 0) {
      const chunk = this._chunks[0];
      const part = chunk.subarray(this._at, this._at + out.length - n);
      out.set(part, n);
      n += part.length;
      this._at += part.length;
      if (this._at === chunk.length) {
        this._chunks.shift();
        this._at = 0;
      }
    }
    this.buffered -= n;
    this.played += n;
    return n;
  }

  /** Drop what lies behind the end. */
  _cut() {
    if (this._total === null) return;
    let surplus = this.played + this.buffered - this._total;
    if (this._at > 0) {
      this._chunks[0] = this._chunks[0].subarray(this._at);
      this._at = 0;
    }
    while (surplus > 0 && this._chunks.length > 0) {
      const last = /** @type {Float32Array} */ (this._chunks.pop());
      const n = Math.min(surplus, last.length);
      if (n < last.length) this._chunks.push(last.subarray(0, last.length - n));
      this.buffered -= n;
      surplus -= n;
    }
  }

  _clear() {
    this._chunks.length = 0;
    this._at = 0;
    this.buffered = 0;
    this.phase = "ended";
  }
}

/**
 * What a sink says of itself.
 *
 * @typedef {object} Status
 * @property {number} frame Of the audio context's clock, where the next block begins.
 * @property {JitterBuffer["phase"]} phase
 * @property {number} played
 * @property {number} buffered
 * @property {number} underruns
 * @property {number} stalled
 * @property {number} threshold
 * @property {number | null} soundFrame Of the first audible sample.
 */

// -60 dBFS: below it nobody hears that speech has begun.
const AUDIBLE = 0.001;
// How often a status goes out that says nothing new, in frames: 43 ms at 48 kHz.
const STATUS_FRAMES = 2048;

/** A jitter buffer that says what happens to it. */
export class Speaker {
  /**
   * @param {JitterOptions} options
   * @param {(status: Status) => void} tell
   */
  constructor(options, tell) {
    this.buffer = new JitterBuffer(options);
    this._tell = tell;
    /** @type {number | null} */
    this._soundFrame = null;
    this._toldAt = -Infinity;
    this._toldPhase = "filling";
  }

  /**
   * Take an order.
   *
   * @param {{samples?: Float32Array, isWhole?: boolean, total?: number, flush?: boolean}} order
   * @param {number} frame
   */
  order({ samples, isWhole = false, total, flush = false }, frame) {
    if (samples !== undefined) this.buffer.push(samples, isWhole);
    if (total !== undefined) this.buffer.end(total);
    if (flush) {
      this.buffer.flush();
      this._report(frame);
    }
  }

  /**
   * Fill a block that is heard at `frame`.
   *
   * @param {Float32Array} out
   * @param {number} frame
   */
  fill(out, frame) {
    this.buffer.pull(out);
    let isNews = this.buffer.phase !== this._toldPhase || frame - this._toldAt >= STATUS_FRAMES;
    if (this._soundFrame === null) {
      const at = out.findIndex((sample) => Math.abs(sample) > AUDIBLE);
      if (at >= 0) {
        this._soundFrame = frame + at;
        isNews = true;
      }
    }
    if (isNews) this._report(frame + out.length);
  }

  /** @param {number} frame */
  _report(frame) {
    const { phase, played, buffered, underruns, stalled, threshold } = this.buffer;
    this._toldAt = frame;
    this._toldPhase = phase;
    const soundFrame = this._soundFrame;
    this._tell({ frame, phase, played, buffered, underruns, stalled, threshold, soundFrame });
  }
}

if (typeof registerProcessor === "function") {
  registerProcessor(
    "rtts-speaker",
    class extends AudioWorkletProcessor {
      /** @param {{processorOptions: JitterOptions}} options */
      constructor({ processorOptions }) {
        super();
        this._speaker = new Speaker(processorOptions, (status) => this.port.postMessage(status));
        this.port.onmessage = ({ data }) => this._speaker.order(data, currentFrame);
      }

      /**
       * @param {Float32Array[][]} _
       * @param {Float32Array[][]} outputs
       */
      process(_, [[out]]) {
        this._speaker.fill(out, currentFrame);
        return this._speaker.buffer.phase !== "ended";
      }
    },
  );
}
