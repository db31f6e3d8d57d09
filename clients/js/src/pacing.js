/**
 * Holding the server back for a reader that falls behind.
 *
 * The server sends at the pace of a playback clock, whoever reads. A client that must not collect
 * what nobody takes replaces that clock by reports of its own: what was read, but never faster than
 * it can have been heard. Knows nothing about sockets; time is an argument.
 *
 * @module
 */

/** Audio received and read, in milliseconds, and what of it to report as played. */
export class ReadingClock {
  constructor() {
    this.receivedMs = 0;
    /** Received and not yet read. */
    this.waitingMs = 0;
    this._playedMs = 0; // of a player that starts with the first audio and waits when dry
    /** @type {number | null} */
    this._at = null;
  }

  get hasBegun() {
    return this._at !== null;
  }

  /**
   * @param {number} durationMs
   * @param {number} now
   */
  received(durationMs, now) {
    this._advance(now);
    this.receivedMs += durationMs;
    this.waitingMs += durationMs;
  }

  /** @param {number} durationMs */
  read(durationMs) {
    this.waitingMs -= durationMs;
  }

  /**
   * What to report as played.
   *
   * @param {number} now
   */
  playedMs(now) {
    this._advance(now);
    return Math.max(0, Math.min(this._playedMs, this.receivedMs - this.waitingMs));
  }

  /** @param {number} now */
  _advance(now) {
    if (this._at !== null) {
      this._playedMs = Math.min(this._playedMs + now - this._at, this.receivedMs);
    }
    this._at = now;
  }
}
