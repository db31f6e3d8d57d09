// Passes sound on and keeps a copy: what the destination gets, block by block, with its frame.
registerProcessor(
  "tap",
  class extends AudioWorkletProcessor {
    process([input], [output]) {
      const samples = input[0] ?? new Float32Array(output[0].length);
      for (const channel of output) channel.set(samples);
      this.port.postMessage({ frame: currentFrame, samples: samples.slice() });
      return true;
    }
  },
);
