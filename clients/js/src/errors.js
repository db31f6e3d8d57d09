/**
 * Every failure a caller can meet, one class each.
 *
 *   RttsError
 *   ├─ ConnectError          the server refused or could not be reached
 *   ├─ ConnectionLostError   the socket is gone and could not be resumed
 *   ├─ ContextFailedError    one context failed; the connection goes on
 *   │  └─ SlowReaderError    its events were not read, so the client stopped it
 *   └─ PlayerError           this browser cannot play, or may not yet
 *
 * @module
 */

/** Base of the client's errors. */
export class RttsError extends Error {
  /**
   * @param {string} code A stable word; the server's error codes are in its protocol page.
   * @param {string} message In words, for the developer.
   * @param {number | null} [retryAfterMs] After which trying again is worth it, where known.
   */
  constructor(code, message, retryAfterMs = null) {
    super(message ? `${code}: ${message}` : code);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The connection could not be made. */
export class ConnectError extends RttsError {}

/** The connection ended; `code` says why where the server did. */
export class ConnectionLostError extends RttsError {}

/** A context ended by failing, expiring or the server's shutdown. */
export class ContextFailedError extends RttsError {
  /**
   * @param {string} code
   * @param {string} message
   * @param {number | null} [retryAfterMs]
   * @param {import("./index.d.ts").Done | null} [done] The server's last word, where there was one.
   */
  constructor(code, message, retryAfterMs = null, done = null) {
    super(code, message, retryAfterMs);
    this.done = done;
  }
}

/** More audio waited to be read than the context may hold, so it was cancelled. */
export class SlowReaderError extends ContextFailedError {}

/** This browser cannot play, or may not before somebody touches the page. */
export class PlayerError extends RttsError {}

// Spelled out, so that they are still called this after a minifier.
for (const [name, type] of Object.entries({
  RttsError,
  ConnectError,
  ConnectionLostError,
  ContextFailedError,
  SlowReaderError,
  PlayerError,
})) {
  Object.defineProperty(type.prototype, "name", { value: name });
}
