// What the tests call in the page: a player behind a tap, and everything that happened to it. The
// driver evaluates it as the body of an async function with the source of the tap as `tapSource`.
const rtts = await import("/js/index.js");
window.rtts = rtts;

class Tap {
  static async create(audioContext) {
    if (audioContext.audioWorklet === undefined) return new ScriptTap(audioContext);
    const source = new Blob([tapSource], { type: "text/javascript" });
    await audioContext.audioWorklet.addModule(URL.createObjectURL(source));
    return new Tap(audioContext);
  }

  constructor(audioContext, node) {
    this.blocks = [];
    this.node = node ?? new AudioWorkletNode(audioContext, "tap", { outputChannelCount: [1] });
    if (node === undefined) this.node.port.onmessage = ({ data }) => this.blocks.push(data);
    this.node.connect(audioContext.destination);
  }

  /** Everything that passed since, as base64 of f32; frames that the audio clock left out. */
  read() {
    const blocks = this.blocks.splice(0);
    const n = blocks.reduce((sum, { samples }) => sum + samples.length, 0);
    const all = new Float32Array(n);
    let at = 0;
    const gaps = [];
    blocks.forEach(({ frame, samples }, i) => {
      all.set(samples, at);
      at += samples.length;
      const missing = i > 0 ? frame - blocks[i - 1].frame - blocks[i - 1].samples.length : 0;
      if (missing !== 0) gaps.push([frame, missing]);
    });
    return { frame: blocks[0]?.frame ?? 0, gaps, samples: base64(new Uint8Array(all.buffer)) };
  }
}

/** Where a page may have no worklet; a busy main thread may lose a block. */
class ScriptTap extends Tap {
  constructor(audioContext) {
    super(audioContext, audioContext.createScriptProcessor(1024, 1, 1));
    this.node.onaudioprocess = ({ inputBuffer, outputBuffer, playbackTime }) => {
      const samples = inputBuffer.getChannelData(0).slice();
      outputBuffer.copyToChannel(samples, 0);
      this.blocks.push({ frame: Math.round(playbackTime * audioContext.sampleRate), samples });
    };
  }
}

function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32_768) {
    text += String.fromCharCode(...bytes.subarray(i, i + 32_768));
  }
  return btoa(text);
}

const plain = (error) => ({ name: error.name, code: error.code, message: error.message });
const settle = (promise) => promise.then((value) => ({ value }), (error) => ({ error: plain(error) }));

window.sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A player with a tap before the loudspeaker, and a client. */
window.setUp = async (options = {}, connectOptions = {}, url = "/v1/tts") => {
  const sampleRate = options.sampleRate ?? 48_000;
  const audioContext = new AudioContext({ sampleRate });
  window.tap = await Tap.create(audioContext);
  window.blocked = [];
  const onBlocked = (error) => blocked.push(plain(error));
  const destination = tap.node;
  window.player = await rtts.Player.create({ onBlocked, ...options, audioContext, destination });
  window.client = await rtts.connect(url, connectOptions);
  await sleep(100); // while an audio device starts, blocks are lost
  tap.read();
  return { decoder: player.decoder, degraded: player.degraded, state: audioContext.state };
};

/** Speak one text and note everything; returns at once, `outcome` waits. */
window.begin = (text, options = {}) => {
  const events = [];
  const words = [];
  const statuses = [];
  const context = client.context({ format: player.format, ...options });
  const playback = player.play(context, {
    onEvent: ({ data, packets, ...event }) => events.push({ ...event, at: performance.now() }),
    onWord: (word) => words.push({ ...word, playedMs: playback.playedMs }),
  });
  const note = playback._note.bind(playback);
  playback._note = (status) => {
    statuses.push(status);
    note(status);
  };
  if (text !== null) context.speak(text);
  window.now = { context, playback, events, words, statuses, finished: settle(playback.finished) };
};

window.outcome = async () => {
  const { finished, events, words, statuses } = now;
  return { ...(await finished), events, words, statuses };
};

/** Speak several texts at once; the outcome is the last one's. */
window.hearAll = async (texts) => {
  tap.read();
  for (const text of texts) begin(text);
  const result = await outcome();
  await sleep(100);
  return { ...result, sound: tap.read() };
};

/** Until so much of it was heard. */
window.heard = async (playedMs) => {
  while (now.playback.playedMs < playedMs) await sleep(5);
};

/** Barge in; everything that was heard and said. */
window.interrupt = async () => {
  const at = performance.now();
  const { playedMs } = now.playback;
  const done = await settle(now.playback.cancel());
  const tookMs = performance.now() - at;
  const result = await outcome();
  await sleep(150);
  return { ...result, sound: tap.read(), cancel: { done: done.value, tookMs, playedMs } };
};

/** Speak one text to its end; returns everything, the sound too. */
window.hear = async (text, options = {}) => {
  tap.read();
  begin(text, options);
  const result = await outcome();
  await sleep(100);
  return { ...result, sound: tap.read() };
};
