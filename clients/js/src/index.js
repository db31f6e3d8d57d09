/**
 * Real-time speech from an rtts server.
 *
 * @module
 */

export { Client, connect } from "./client.js";
export { Context } from "./context.js";
export {
  ConnectError,
  ConnectionLostError,
  ContextFailedError,
  PlayerError,
  RttsError,
  SlowReaderError,
} from "./errors.js";
export { Playback } from "./playback.js";
export { Player } from "./player.js";
export { Audio, AudioFlags } from "./wire.js";
