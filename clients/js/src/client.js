/**
 * The connection: many contexts on one socket, reconnected and resumed when it is lost.
 *
 * @module
 */

import { absolute, implementation, offers } from "./address.js";
import { Context } from "./context.js";
import { ConnectError, ConnectionLostError, ContextFailedError } from "./errors.js";
import { Link, PROTOCOL_ERROR } from "./link.js";
import { encode } from "./wire.js";

/**
 * @typedef {import("./index.d.ts").Client} PublicClient
 * @typedef {import("./index.d.ts").ConnectOptions} ConnectOptions
 * @typedef {import("./index.d.ts").Message} Message
 * @typedef {import("./index.d.ts").ResumedContext} ResumedContext
 */

const FIRST_BACKOFF_MS = 50;
const LAST_BACKOFF_MS = 2000;
// Codes after which trying again is of use; others say that something is wrong with this client.
const TRY_AGAIN = new Set([1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014]);
const RATE_LIMITED = 4429; // of a handshake: worth another try after a while
// A socket that holds more than this does not get on; text waits here, where a cancel overtakes it.
const CLOGGED_BYTES = 65_536;
const CLOGGED_RETRY_MS = 20;
// Of the protocol's `ctx`.
const LONGEST_NAME = 128;
const UNNAMEABLE = /[\x00-\x1f\x7f\p{Cs}]/u;

/**
 * Connect to a server.
 *
 * @param {string | URL} url `ws://host:8765/v1/tts`, wss, or a path of this page's own server.
 * @param {ConnectOptions} [options]
 * @returns {Promise<Client>}
 */
export async function connect(url, options = {}) {
  const client = new Client(absolute(url), options);
  await client._first;
  return client;
}

/** @implements {PublicClient} */
export class Client {
  /**
   * @param {string} url
   * @param {ConnectOptions} options
   */
  constructor(url, options) {
    /** @type {import("./index.d.ts").Ready} */
    this.ready = /** @type {any} */ (null); // `connect` returns once it is there
    /** @type {import("./index.d.ts").GoingAway | null} */
    this.goaway = null;
    this._linkOptions = {
      url,
      protocols: offers(options),
      WebSocket: implementation(options),
      openTimeoutMs: options.openTimeoutMs ?? 10_000,
    };
    this._giveUpMs = options.giveUpMs ?? 30_000;
    this._keepaliveMs = options.keepaliveMs ?? 5000;
    /** @type {Link | null} */
    this._link = null; // the one being opened, or open
    this._isOpen = false;
    /** @type {Map<string, Context>} */
    this._contexts = new Map();
    /** @type {Map<number, Context>} */
    this._streams = new Map();
    /** @type {Context[]} */
    this._turns = [];
    /** @type {{message: string, context: Context | null}[]} */
    this._posts = []; // context: of whose playback it tells
    this._nSessions = 0;
    /** @type {Map<number, {sentAt: number, resolve: (ms: number) => void, reject: (e: Error) => void}>} */
    this._pings = new Map();
    this._nContexts = 0;
    this._nPings = 0;
    /** @type {import("./errors.js").RttsError | null} */
    this._dead = null;
    this._isIdle = false; // the server closed an idle socket; the next context opens one
    this._mayResume = true; // the server still has the session
    this._reason = "connection_lost"; // of the last loss
    /** @type {number | null} */
    this._lostAt = null;
    this._backoffMs = FIRST_BACKOFF_MS;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._retry = undefined;
    this._tokens = 0; // messages that may be sent now
    this._tokensAt = 0;
    this._isPumpDue = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._pumpTimer = undefined;
    this._heardAt = 0; // when the server last said anything
    /** @type {number | null} */
    this._askedAt = null; // when it was last asked whether it is there
    this._keepalive = setInterval(() => this._checkLife(), this._keepaliveMs / 2);
    /** @type {((error?: Error) => void) | null} */
    this._settleFirst = null;
    /** @type {Promise<void>} */
    this._first = new Promise((resolve, reject) => {
      this._settleFirst = (error) => (error ? reject(error) : resolve());
    });
    this._open(null);
  }

  /** @param {import("./index.d.ts").ContextOptions} [options] */
  context(options = {}) {
    this._checkAlive();
    const name = options.name ?? `c${++this._nContexts}`;
    // The server could not say for which context it refuses a name like that.
    if (!name || [...name].length > LONGEST_NAME || UNNAMEABLE.test(name)) {
      const words = `a name has 1 to ${LONGEST_NAME} characters, none of them a control character`;
      throw new TypeError(`${words}; this has not: ${JSON.stringify(name)}`);
    }
    if (this._contexts.has(name)) {
      throw new ContextFailedError("ctx_exists", `context ${JSON.stringify(name)} is still running`);
    }
    const context = new Context(this, name, options);
    this._contexts.set(name, context);
    this._turns.push(context);
    this._wake();
    return context;
  }

  /** @returns {Promise<number>} */
  ping() {
    this._checkAlive();
    const t = ++this._nPings;
    return new Promise((resolve, reject) => {
      this._pings.set(t, { sentAt: performance.now(), resolve, reject });
      this._post(encode("ping", { t }));
    });
  }

  close() {
    this._link?.close();
    this._fail(new ConnectionLostError("closed", "the client was closed"));
  }

  // --- opening, losing, resuming ---------------------------------------------------------------

  /** @param {string | null} token */
  _open(token) {
    const acks = Object.fromEntries([...this._contexts].map(([name, { _lastSeq }]) => [name, _lastSeq]));
    try {
      this._link = new Link({
        ...this._linkOptions,
        resume: token === null ? null : { token, acks },
        onOpen: (greeting) => this._opened(greeting),
        onMessage: (message) => this._receive(message),
        onClose: (ending) => this._closed(ending),
      });
    } catch (error) {
      // The browser refuses the address itself: a ws:// from an https page, say.
      this._fail(new ConnectError("unreachable", String(error)));
    }
  }

  /** @param {import("./link.js").Greeting} greeting */
  _opened({ ready, standing }) {
    // After a resume the first session goes on, with its token; the limits are the new socket's.
    this.ready = standing === null ? ready : { ...this.ready, limits: ready.limits };
    this.goaway = null;
    if (standing === null) this._nSessions++;
    this._isOpen = true;
    this._tokens = ready.limits.max_messages_per_s / 2;
    this._tokensAt = this._heardAt = performance.now();
    this._askedAt = null;
    this._backoffMs = FIRST_BACKOFF_MS;
    if (this._lostAt !== null) this._resume(standing, performance.now() - this._lostAt);
    this._lostAt = null;
    this._settleFirst?.();
    this._settleFirst = null;
    this._wake();
  }

  /** @param {import("./link.js").Ending} ending */
  _closed(ending) {
    this._link = null;
    this._isOpen = false;
    clearTimeout(this._pumpTimer);
    this._pumpTimer = undefined;
    for (const ping of this._pings.values()) {
      ping.reject(new ConnectionLostError("connection_lost", "no pong came"));
    }
    this._pings.clear();
    if (this._settleFirst !== null) this._fail(refusal(ending));
    else if (ending.wasOpen) this._lost(ending);
    else this._tryAgain(ending);
  }

  /** @param {import("./link.js").Ending} ending */
  _lost({ code, fatal, message }) {
    this._reason = fatal?.code ?? (code === PROTOCOL_ERROR ? "bad_message" : "connection_lost");
    const isIdle = this._reason === "idle_timeout" || code === 1000;
    if (!TRY_AGAIN.has(code) && !isIdle) {
      const words = fatal?.message ?? (message || `closed with ${code}`);
      this._fail(new ConnectionLostError(this._reason, words, fatal?.retry_after_ms));
      return;
    }
    this._lostAt = performance.now();
    this._isIdle = isIdle && this._contexts.size === 0;
    this._mayResume = !this._isIdle;
    if (!this._isIdle) this._reopen();
  }

  _reopen() {
    this._isIdle = false;
    const offer = this._mayResume && this._contexts.size > 0 ? this.ready.resume : null;
    this._open(offer?.token ?? null);
  }

  /** @param {import("./link.js").Ending} ending */
  _tryAgain(ending) {
    const error = refusal(ending);
    if (!TRY_AGAIN.has(ending.code) && ending.code !== RATE_LIMITED) {
      this._fail(error);
      return;
    }
    const waitMs = Math.max(error.retryAfterMs ?? 0, this._backoffMs * (0.5 + Math.random()));
    this._backoffMs = Math.min(2 * this._backoffMs, LAST_BACKOFF_MS);
    if (performance.now() + waitMs - /** @type {number} */ (this._lostAt) > this._giveUpMs) {
      const words = `gave up after ${this._giveUpMs / 1000} s: ${error.message}`;
      this._fail(new ConnectionLostError(this._reason, words));
    } else {
      this._retry = setTimeout(() => this._reopen(), waitMs);
    }
  }

  /**
   * Bring every context to where the server is; without a standing the session is new.
   *
   * @param {Record<string, ResumedContext> | null} standing
   * @param {number} awayMs
   */
  _resume(standing, awayMs) {
    this._streams.clear();
    for (const [name, context] of [...this._contexts]) {
      const known = standing?.[name] ?? null;
      if (known !== null) this._streams.set(known.stream, context);
      if (!context._resume(known, awayMs)) this._forget(context);
    }
  }

  /** Notice a socket that died without a word: asked, it does not answer. */
  _checkLife() {
    if (!this._isOpen || this._contexts.size === 0) return;
    const now = performance.now();
    if (this._askedAt !== null && this._heardAt < this._askedAt) {
      if (now - this._askedAt > this._keepaliveMs) this._link?.drop("the server does not answer");
    } else if (now - this._heardAt > this._keepaliveMs) {
      this._askedAt = now;
      this._link?.send(encode("ping", { t: 0 }));
    }
  }

  /** @param {import("./errors.js").RttsError} error */
  _fail(error) {
    this._dead ??= error;
    this._isOpen = false;
    clearInterval(this._keepalive);
    clearTimeout(this._retry);
    clearTimeout(this._pumpTimer);
    const lost = () => new ConnectionLostError(error.code, bare(error), error.retryAfterMs);
    for (const context of [...this._contexts.values()]) {
      context._finish(lost());
      this._forget(context);
    }
    for (const ping of this._pings.values()) ping.reject(lost());
    this._pings.clear();
    this._settleFirst?.(error);
    this._settleFirst = null;
  }

  _checkAlive() {
    if (this._dead !== null) {
      throw new ConnectionLostError(this._dead.code, bare(this._dead), this._dead.retryAfterMs);
    }
  }

  // --- messages in -------------------------------------------------------------------------------

  /** @param {Message | null} message */
  _receive(message) {
    this._heardAt = performance.now();
    if (message === null) return;
    switch (message.type) {
      case "ready":
      case "resumed":
      case "stats":
        return;
      case "goaway":
        this.goaway = message;
        for (const context of this._contexts.values()) context._receive(message);
        return;
      case "pong":
        this._ponged(message.t);
        return;
      case "audio": {
        const context = this._streams.get(message.stream);
        if (context !== undefined) message.ctx = context.name; // the binary form has the stream only
        context?._receive(message);
        return;
      }
      default:
        this._receiveFor(message);
    }
  }

  /** @param {Exclude<import("./index.d.ts").ContextEvent, {type: "audio" | "goaway" | "reconnected"}>} message */
  _receiveFor(message) {
    const context = this._contexts.get(message.ctx ?? "");
    if (context === undefined) {
      if (message.type === "error" && !message.fatal) console.warn(`rtts: ${message.code}: ${message.message}`);
      return;
    }
    if (message.type === "started") this._streams.set(message.stream, context);
    context._receive(message);
    if (message.type === "done") this._forget(context);
  }

  /** @param {unknown} t */
  _ponged(t) {
    const ping = this._pings.get(/** @type {number} */ (t));
    this._pings.delete(/** @type {number} */ (t));
    ping?.resolve(performance.now() - ping.sentAt);
  }

  // --- messages out ------------------------------------------------------------------------------

  /** @param {Context} context */
  _forget(context) {
    if (this._contexts.get(context.name) !== context) return;
    this._contexts.delete(context.name);
    this._turns.splice(this._turns.indexOf(context), 1);
    for (const [stream, owner] of this._streams) {
      if (owner === context) this._streams.delete(stream);
    }
  }

  /**
   * @param {string} message
   * @param {Context | null} [context]
   */
  _post(message, context = null) {
    if (this._dead === null) this._posts.push({ message, context });
    this._wake();
  }

  /** There may be something to send; what is said in one go leaves together. */
  _wake() {
    if (this._isIdle && this._dead === null && (this._contexts.size > 0 || this._posts.length > 0)) {
      this._lostAt = performance.now();
      this._reopen();
    }
    if (this._isPumpDue || this._pumpTimer !== undefined) return;
    this._isPumpDue = true;
    queueMicrotask(() => {
      this._isPumpDue = false;
      this._pump();
    });
  }

  _pump() {
    while (this._isOpen && this._link !== null && this._pumpTimer === undefined) {
      const waitMs = this._paceMs();
      if (waitMs > 0) {
        this._pumpTimer = setTimeout(() => {
          this._pumpTimer = undefined;
          this._pump();
        }, waitMs);
        return;
      }
      const message = this._nextMessage();
      if (message === null) return;
      this._tokens--;
      this._link.send(message);
    }
  }

  /** How long to wait until one more message is in order; text meanwhile merges. */
  _paceMs() {
    if (/** @type {Link} */ (this._link).waitingBytes > CLOGGED_BYTES) return CLOGGED_RETRY_MS;
    const perMs = (0.9 * this.ready.limits.max_messages_per_s) / 1000;
    const now = performance.now();
    const most = this.ready.limits.max_messages_per_s / 2;
    this._tokens = Math.min(most, this._tokens + (now - this._tokensAt) * perMs);
    this._tokensAt = now;
    return this._tokens < 1 ? Math.ceil((1 - this._tokens) / perMs) : 0;
  }

  /** What to send next: what is about no text first, then the contexts in turn. */
  _nextMessage() {
    for (let post = this._posts.shift(); post !== undefined; post = this._posts.shift()) {
      // A session knows its own contexts only, and closes the socket after ten mistakes.
      if (post.context === null || post.context._session === this._nSessions) return post.message;
    }
    for (let i = this._turns.length; i > 0; i--) {
      const context = /** @type {Context} */ (this._turns.shift());
      this._turns.push(context);
      const message = context._nextMessage();
      if (message !== null) return message;
    }
    return null;
  }
}

/** @param {import("./link.js").Ending} ending */
function refusal({ code, fatal, message }) {
  if (fatal !== null) return new ConnectError(fatal.code, fatal.message, fatal.retry_after_ms);
  return new ConnectError("unreachable", message || `the socket closed with ${code}`);
}

/**
 * An error's words without its code in front.
 *
 * @param {import("./errors.js").RttsError} error
 */
function bare(error) {
  return error.message.startsWith(`${error.code}: `)
    ? error.message.slice(error.code.length + 2)
    : "";
}
