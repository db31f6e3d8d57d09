// A server in memory behind a WebSocket: enough of rtts.v1 to try a client's every turn.

const HEADER = 24;

/** One server; `WebSocket` is what clients connect with. */
export class FakeServer {
  constructor({ limits = {}, resume = true } = {}) {
    this.limits = {
      max_contexts: 8,
      max_text_chars: 4000,
      max_message_bytes: 65_536,
      max_messages_per_s: 10_000,
      max_lead_ms: 5000,
      ...limits,
    };
    this.hasResume = resume;
    this.sent = []; // everything clients said
    this.sockets = [];
    this.sessions = new Map(); // token -> contexts
    this.refuse = []; // for the next sockets: {error, code}
    this.isSilent = false; // answers nothing, as a dead network
    const server = this;
    this.WebSocket = class extends FakeSocket {
      constructor(url, protocols) {
        super(url, protocols, server);
      }
    };
  }

  of(type) {
    return this.sent.filter((message) => message.type === type);
  }

  /** Break every socket, as a network does. */
  breakAll() {
    for (const socket of this.sockets) socket.lose(1006);
  }

  accept(socket) {
    this.sockets.push(socket);
    const refusal = this.refuse.shift();
    if (refusal !== undefined) {
      if (refusal.error) socket.say({ type: "error", fatal: true, ...refusal.error });
      socket.lose(refusal.code);
      return;
    }
    const token = `t${this.sockets.length}`;
    socket.contexts = new Map();
    socket.token = token;
    this.sessions.set(token, socket.contexts);
    const offer = this.hasResume ? { token, window_ms: 15_000 } : null;
    socket.say({ type: "ready", session: token, voices: ["tone"], limits: this.limits, resume: offer });
  }

  take(socket, text) {
    if (this.isSilent) return;
    const message = JSON.parse(text);
    this.sent.push(message);
    this[`on_${message.type}`]?.(socket, message);
  }

  on_start(socket, { ctx }) {
    const stream = ++FakeServer.streams;
    socket.contexts.set(ctx, { stream, seq: 0, n: 0, ended: false, chars: 0, log: [] });
    socket.say({ type: "started", ctx, stream, format: { codec: "opus", sample_rate: 24_000 } });
  }

  on_text(socket, { ctx, n, text, end, flush, id }) {
    const context = socket.contexts.get(ctx);
    if (context === undefined || n < context.n) return;
    if (this.isFull) {
      socket.say({ type: "error", code: "text_buffer_full", message: "full", ctx, ref: id, fatal: false, retry_after_ms: 5 });
      return;
    }
    context.n = n + 1;
    if (text) this.speak(socket, ctx, text);
    if (flush) socket.say({ type: "flushed", ctx, at_ms: 0, id });
    if (end) this.finish(socket, ctx, { reason: "completed" });
  }

  /** One segment and its one audio message. */
  speak(socket, ctx, text) {
    const context = socket.contexts.get(ctx);
    const start = context.chars;
    context.chars += [...text].length;
    socket.say({ type: "segment", ctx, segment: context.seq, text, chars: [start, context.chars], at_ms: 0 });
    const data = audio(context, 1 | 8);
    context.log.push(data);
    context.seq++;
    socket.give(data);
  }

  finish(socket, ctx, fields) {
    const { seq } = socket.contexts.get(ctx);
    socket.say({ type: "done", ctx, segments: seq, last_seq: seq - 1, audio_ms: 0, samples: 0, text_chars: 0, ...fields });
    socket.contexts.delete(ctx);
  }

  on_cancel(socket, { ctx }) {
    if (socket.contexts.has(ctx)) this.finish(socket, ctx, { reason: "cancelled", spoken: "", remaining: "" });
  }

  on_ping(socket, { t }) {
    socket.say({ type: "pong", t, time_ms: 0 });
  }

  on_resume(socket, { token, acks }) {
    const contexts = this.sessions.get(token);
    if (contexts === undefined) {
      socket.say({ type: "error", code: "resume_failed", message: "unknown", fatal: false });
      return;
    }
    socket.contexts = contexts;
    const standing = [...contexts].map(([ctx, { stream, seq, n, ended }]) => [
      ctx,
      { stream, next_seq: seq, next_n: n, text_ended: ended },
    ]);
    socket.say({ type: "resumed", session: token, contexts: Object.fromEntries(standing) });
    for (const [ctx, context] of contexts) {
      for (const data of context.log.slice(acks[ctx] + 1)) socket.give(data);
    }
  }
}
FakeServer.streams = 0;

function audio({ stream, seq }, flags) {
  const data = new ArrayBuffer(HEADER + 3);
  const view = new DataView(data);
  view.setUint8(0, 1);
  view.setUint8(1, 1);
  view.setUint16(2, flags);
  view.setUint32(4, stream);
  view.setUint32(8, seq);
  view.setUint32(12, seq);
  view.setUint16(20, 1);
  view.setUint16(22, 100);
  view.setUint16(24, 1);
  return data;
}

class FakeSocket {
  constructor(url, protocols, server) {
    this.url = url;
    this.protocols = protocols;
    this.server = server;
    this.readyState = 0;
    this.bufferedAmount = 0;
    this.closedWith = null;
    this.onopen = this.onmessage = this.onerror = this.onclose = null;
    setImmediate(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      server.accept(this);
      this.onopen?.({});
    });
  }

  say(message) {
    this.give(JSON.stringify(message));
  }

  give(data) {
    setImmediate(() => this.readyState === 1 && this.onmessage?.({ data }));
  }

  send(text) {
    setImmediate(() => this.readyState === 1 && this.server.take(this, text));
  }

  lose(code) {
    setImmediate(() => {
      if (this.readyState === 3) return;
      this.readyState = 3;
      this.onclose?.({ code });
    });
  }

  close(code) {
    this.closedWith = code ?? null;
    this.lose(code ?? 1005);
  }
}
