/**
 * One socket, from opening to closing: the greeting, then messages, then one end.
 *
 * Knows nothing about contexts and never tries twice; the client does.
 *
 * @module
 */

import { decode, encode } from "./wire.js";

// A client's own code: the server takes 1000, 1001 or none to mean that nobody will come back.
const BROKEN = 4000;
const CLOSE_FOLLOWS_MS = 50;
export const PROTOCOL_ERROR = 1002;

/**
 * @typedef {import("./index.d.ts").Message} Message
 * @typedef {import("./index.d.ts").ServerError} ServerError
 *
 * @typedef {object} Greeting
 * @property {import("./index.d.ts").Ready} ready
 * @property {Record<string, import("./index.d.ts").ResumedContext> | null} standing Where contexts
 *   stand after a resume; null in a new session.
 *
 * @typedef {object} Ending
 * @property {number} code Close code; 1006 for a socket that broke.
 * @property {ServerError | null} fatal What the server said before.
 * @property {string} message In words, where something else is known.
 * @property {boolean} wasOpen Whether the greeting was over.
 *
 * @typedef {object} LinkOptions
 * @property {string} url
 * @property {string[]} protocols
 * @property {import("./index.d.ts").WebSocketConstructor} WebSocket
 * @property {number} openTimeoutMs
 * @property {{token: string, acks: Record<string, number>} | null} resume
 * @property {(greeting: Greeting) => void} onOpen Once.
 * @property {(message: Message | null) => void} onMessage After `onOpen`.
 * @property {(ending: Ending) => void} onClose Once, last.
 */

export class Link {
  /** @param {LinkOptions} options */
  constructor(options) {
    this._options = options;
    /** @type {import("./index.d.ts").Ready | null} */
    this._ready = null;
    /** @type {ServerError | null} */
    this._fatal = null;
    this._message = "";
    this._isOpen = false;
    this._isOver = false;
    this._isRefused = false;
    this._ws = new options.WebSocket(options.url, options.protocols);
    this._ws.binaryType = "arraybuffer";
    this._ws.onopen = () => this._opened();
    this._ws.onmessage = (event) => this._take(event.data);
    this._ws.onerror = (event) => {
      this._message = /** @type {{message?: string}} */ (event).message || this._message;
      // `close` follows; node 20's own WebSocket leaves it out when it was refused.
      setTimeout(() => this._end(1006), CLOSE_FOLLOWS_MS);
    };
    this._ws.onclose = (event) => this._end(event.code || 1006);
    this._timer = setTimeout(() => this.drop("the server said nothing"), options.openTimeoutMs);
  }

  /** Bytes that are not on their way yet. */
  get waitingBytes() {
    return this._ws.bufferedAmount;
  }

  /** @param {string} message */
  send(message) {
    if (!this._isOver && this._ws.readyState === 1) this._ws.send(message);
  }

  /** Say goodbye: the session is over. */
  close() {
    this.send(encode("close"));
    this._isOver = true;
    clearTimeout(this._timer);
    this._ws.close(1000);
  }

  /**
   * Give a broken socket up, without waiting for it to notice.
   *
   * @param {string} message
   * @param {number} [code]
   */
  drop(message, code = 1006) {
    this._message = message;
    this._ws.close(BROKEN);
    this._end(code);
  }

  _opened() {
    if (this._options.resume !== null) this.send(encode("resume", this._options.resume));
  }

  /** @param {string | ArrayBuffer} data */
  _take(data) {
    if (this._isOver) return;
    let message;
    try {
      message = decode(data);
    } catch (error) {
      this.drop(String(error), PROTOCOL_ERROR); // the same would come again
      return;
    }
    if (message?.type === "error" && message.fatal) this._fatal = message;
    if (this._isOpen) this._options.onMessage(message);
    else this._greet(message);
  }

  /** @param {Message | null} message */
  _greet(message) {
    /** @type {Greeting["standing"]} */
    let standing = null;
    if (message?.type === "ready") this._ready = message;
    else if (message?.type === "resumed") standing = message.contexts;
    else if (message?.type === "error") this._isRefused ||= message.code === "resume_failed";
    const isNew = this._options.resume === null || this._isRefused;
    if (this._ready === null || (standing === null && !isNew)) return;
    this._isOpen = true;
    clearTimeout(this._timer);
    this._options.onOpen({ ready: this._ready, standing });
  }

  /** @param {number} code */
  _end(code) {
    if (this._isOver) return;
    this._isOver = true;
    clearTimeout(this._timer);
    const { _fatal: fatal, _message: message, _isOpen: wasOpen } = this;
    this._options.onClose({ code, fatal, message, wasOpen });
  }
}
