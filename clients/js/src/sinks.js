/**
 * Ways from samples to an audio context: a worklet on the audio thread, or, where a page may have
 * none, a script processor on the main thread. Knows nothing about contexts and codecs.
 *
 * @module
 */

import { Speaker } from "./jitter.js";

/**
 * @typedef {import("./jitter.js").JitterOptions} JitterOptions
 * @typedef {import("./jitter.js").Status} Status
 *
 * @typedef {object} Sink
 * @property {AudioNode} node
 * @property {(samples: Float32Array, isWhole: boolean) => void} push
 * @property {(total: number) => void} end
 * @property {() => void} flush
 * @property {() => void} close
 */

// Of a script processor: 21 ms at 48 kHz, the least that a busy page keeps up with.
const SCRIPT_FRAMES = 1024;

/** @implements {Sink} */
export class WorkletSink {
  /**
   * @param {BaseAudioContext} audio
   * @param {JitterOptions} options
   * @param {(status: Status) => void} onStatus
   */
  constructor(audio, options, onStatus) {
    this.node = new AudioWorkletNode(audio, "rtts-speaker", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: options,
    });
    this.node.port.onmessage = ({ data }) => onStatus(data);
  }

  /**
   * @param {Float32Array} samples
   * @param {boolean} isWhole
   */
  push(samples, isWhole) {
    this.node.port.postMessage({ samples, isWhole }, [samples.buffer]);
  }

  /** @param {number} total */
  end(total) {
    this.node.port.postMessage({ total });
  }

  flush() {
    this.node.port.postMessage({ flush: true });
  }

  close() {
    this.node.port.onmessage = null;
    this.node.disconnect();
  }
}

/** @implements {Sink} */
export class ScriptSink {
  /**
   * @param {BaseAudioContext} audio
   * @param {JitterOptions} options
   * @param {(status: Status) => void} onStatus
   */
  constructor(audio, options, onStatus) {
    this._speaker = new Speaker(options, onStatus);
    this._frame = 0;
    this.node = audio.createScriptProcessor(SCRIPT_FRAMES, 0, 1);
    this.node.onaudioprocess = ({ outputBuffer, playbackTime }) => {
      this._frame = Math.round(playbackTime * audio.sampleRate);
      this._speaker.fill(outputBuffer.getChannelData(0), this._frame);
    };
  }

  /**
   * @param {Float32Array} samples
   * @param {boolean} isWhole
   */
  push(samples, isWhole) {
    this._speaker.order({ samples, isWhole }, this._frame);
  }

  /** @param {number} total */
  end(total) {
    this._speaker.order({ total }, this._frame);
  }

  flush() {
    this._speaker.order({ flush: true }, this._frame + SCRIPT_FRAMES);
  }

  close() {
    this.node.onaudioprocess = null;
    this.node.disconnect();
  }
}
