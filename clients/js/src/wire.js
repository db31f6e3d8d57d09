/**
 * The messages of `rtts.v1` as a client sees them, and their way from and to the wire.
 *
 * Fields keep the wire's names. What this version does not know is dropped, as the protocol asks.
 * Knows nothing about sockets.
 *
 * @module
 */

import { RttsError } from "./errors.js";

/** Flags of an audio event. */
export const AudioFlags = Object.freeze({
  FIRST_OF_CONTEXT: 1,
  LAST_OF_CONTEXT: 2,
  FIRST_OF_SEGMENT: 4,
  LAST_OF_SEGMENT: 8,
  SILENCE: 16,
  REPLAY: 32,
});

const HEADER_BYTES = 24;
const TYPES = new Set(
  ("started segment audio marks first_audio flushed done warning error goaway ready resumed pong" +
    " stats").split(" "),
);

/**
 * @typedef {import("./index.d.ts").Audio} PublicAudio
 */

/** @implements {PublicAudio} */
export class Audio {
  /** @param {Omit<import("./index.d.ts").Audio, "type" | "packets">} fields */
  constructor(fields) {
    this.type = /** @type {const} */ ("audio");
    this.ctx = fields.ctx;
    this.stream = fields.stream;
    this.seq = fields.seq;
    this.segment = fields.segment;
    this.pts = fields.pts;
    this.flags = fields.flags;
    this.npackets = fields.npackets;
    this.duration_ms = fields.duration_ms;
    this.data = fields.data;
  }

  get packets() {
    if (this.npackets === 0) return [this.data];
    const { data } = this;
    const packets = [];
    let at = 0;
    for (let i = 0; i < this.npackets; i++) {
      const end = at + 2 + (data[at] << 8) + data[at + 1];
      if (!(end <= data.length)) throw new RttsError("bad_message", "an Opus packet is cut short");
      packets.push(data.subarray(at + 2, end));
      at = end;
    }
    return packets;
  }
}

/**
 * Decode a message of the server; null for one that this client does not know.
 *
 * @param {string | ArrayBuffer} data
 * @returns {import("./index.d.ts").Message | null}
 * @throws {RttsError} It is none of `rtts.v1`.
 */
export function decode(data) {
  if (typeof data !== "string") return decodeAudio(data);
  let message;
  try {
    message = JSON.parse(data);
  } catch {
    throw new RttsError("bad_message", "the server sent text that is not JSON");
  }
  if (typeof message?.type !== "string") {
    throw new RttsError("bad_message", "the server sent a message without a type");
  }
  if (!TYPES.has(message.type)) return null;
  return message.type === "audio" ? new Audio({ ...message, data: bytes(message.data) }) : message;
}

/**
 * Encode a message of the client; fields that are null or undefined are left out. Half a character
 * goes out as an escape, as the protocol allows.
 *
 * @param {string} type
 * @param {Record<string, unknown>} [fields]
 */
export function encode(type, fields = {}) {
  return JSON.stringify({ type, ...fields }, (_, value) => (value === null ? undefined : value));
}

/** @param {ArrayBuffer} data */
function decodeAudio(data) {
  if (data.byteLength < HEADER_BYTES) {
    throw new RttsError("bad_message", "a binary message without a header");
  }
  const view = new DataView(data);
  if (view.getUint8(0) !== 1 || view.getUint8(1) !== 1) return null;
  return new Audio({
    ctx: "",
    flags: view.getUint16(2),
    stream: view.getUint32(4),
    seq: view.getUint32(8),
    segment: view.getUint32(12),
    pts: view.getUint32(16),
    npackets: view.getUint16(20),
    duration_ms: view.getUint16(22),
    data: new Uint8Array(data, HEADER_BYTES),
  });
}

/** @param {string} base64 */
function bytes(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
