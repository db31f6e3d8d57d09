/**
 * From packets to samples: the browser's own Opus decoder, libopus as wasm, or PCM as it is.
 *
 * None of them trims: a decoder puts out all it decodes, and the caller counts. Knows nothing about
 * contexts and playing.
 *
 * @module
 */

import { PlayerError } from "./errors.js";

/**
 * @typedef {(samples: Float32Array, isWhole: boolean) => void} OnSamples
 *
 * @typedef {object} Decoder
 * @property {(packets: Uint8Array[], isWhole: boolean) => void} decode `isWhole` comes back with the
 *   samples of the last packet.
 * @property {() => Promise<void>} drain Settles when all samples are out.
 * @property {() => void} close Nothing comes out any more.
 *
 * @typedef {(onSamples: OnSamples, onError: (error: PlayerError) => void) => Promise<Decoder>} MakeDecoder
 */

const EMPTY_WASM = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
const OPUS = { codec: "opus", sampleRate: 48_000, numberOfChannels: 1 };

/**
 * The browser's decoder, or why there is none.
 *
 * @returns {Promise<MakeDecoder | string>}
 */
export async function webCodecs() {
  if (typeof AudioDecoder === "undefined") {
    return globalThis.isSecureContext === false
      ? "WebCodecs needs a secure context (https, or localhost)"
      : "this browser has no WebCodecs AudioDecoder";
  }
  const { supported } = await AudioDecoder.isConfigSupported(OPUS);
  return supported ? async (...handlers) => new WebCodecsDecoder(...handlers) : "its WebCodecs has no Opus";
}

/**
 * libopus compiled to WebAssembly, or why it cannot be used.
 *
 * @param {string | URL} url Of the file.
 * @returns {Promise<MakeDecoder | string>}
 */
export async function wasm(url) {
  try {
    // The decoder waits for ever where nothing may be compiled, so ask first.
    await WebAssembly.compile(EMPTY_WASM);
    await import(/* @vite-ignore */ /* webpackIgnore: true */ String(url));
    const spare = await newWasm();
    spare.free();
  } catch (error) {
    return `the wasm decoder did not load: ${error}`;
  }
  return async (...handlers) => new WasmDecoder(await newWasm(), ...handlers);
}

/** @type {MakeDecoder} */
export async function pcm(onSamples) {
  return new PcmDecoder(onSamples);
}

/** @implements {Decoder} */
class WebCodecsDecoder {
  /**
   * @param {OnSamples} onSamples
   * @param {(error: PlayerError) => void} onError
   */
  constructor(onSamples, onError) {
    /** @type {boolean[]} */
    this._marks = []; // one for each packet on its way; outputs come in order, one a packet
    this._decoder = new AudioDecoder({
      output: (data) => {
        const samples = new Float32Array(data.numberOfFrames);
        data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
        data.close();
        onSamples(samples, this._marks.shift() ?? false);
      },
      error: (error) => onError(new PlayerError("decoder_failed", error.message)),
    });
    // Without a `description`: browsers differ in what they trim then.
    this._decoder.configure(OPUS);
  }

  /**
   * @param {Uint8Array[]} packets
   * @param {boolean} isWhole
   */
  decode(packets, isWhole) {
    packets.forEach((data, i) => {
      this._marks.push(isWhole && i === packets.length - 1);
      this._decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: 0, data }));
    });
  }

  drain() {
    return this._decoder.flush();
  }

  close() {
    if (this._decoder.state !== "closed") this._decoder.close();
  }
}

/**
 * @typedef {object} OpusWasm
 * @property {Promise<void>} ready
 * @property {(packet: Uint8Array) => {channelData: Float32Array[], errors: {message: string}[]}} decodeFrame
 * @property {() => void} free
 */

async function newWasm() {
  const { OpusDecoder } = /** @type {any} */ (globalThis)["opus-decoder"];
  /** @type {OpusWasm} */
  const made = new OpusDecoder({
    channels: 1,
    streamCount: 1,
    coupledStreamCount: 0,
    channelMappingTable: [0],
    preSkip: 0,
  });
  await made.ready;
  return made;
}

/** @implements {Decoder} */
class WasmDecoder {
  /**
   * @param {OpusWasm} opus
   * @param {OnSamples} onSamples
   * @param {(error: PlayerError) => void} onError
   */
  constructor(opus, onSamples, onError) {
    this._opus = opus;
    this._onSamples = onSamples;
    this._onError = onError;
    this._isClosed = false;
  }

  /**
   * @param {Uint8Array[]} packets
   * @param {boolean} isWhole
   */
  decode(packets, isWhole) {
    packets.forEach((packet, i) => {
      if (this._isClosed) return;
      const { channelData, errors } = this._opus.decodeFrame(packet);
      if (errors.length > 0) this._onError(new PlayerError("decoder_failed", errors[0].message));
      else this._onSamples(channelData[0], isWhole && i === packets.length - 1);
    });
  }

  async drain() {}

  close() {
    if (!this._isClosed) this._opus.free();
    this._isClosed = true;
  }
}

/** @implements {Decoder} */
class PcmDecoder {
  /** @param {OnSamples} onSamples */
  constructor(onSamples) {
    /** @type {OnSamples | null} */
    this._onSamples = onSamples;
  }

  /**
   * @param {Uint8Array[]} packets
   * @param {boolean} isWhole
   */
  decode([bytes], isWhole) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const samples = new Float32Array(bytes.byteLength >> 1);
    for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / 32_768;
    this._onSamples?.(samples, isWhole);
  }

  async drain() {}

  close() {
    this._onSamples = null;
  }
}
