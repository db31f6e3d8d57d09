// What the page knows: the last points and requests, and sums over any stretch of them.
// Knows nothing about the document.

import { addBuckets } from "./buckets.js";

const MAX_POINTS = 900;
const MAX_REQUESTS = 500;

/** In the order in which they pass; prefill, first frame and codec are parts of the engine's. */
export const STAGES = [
  ["split", "split", "cutting text into segments"],
  ["queue", "queue", "waiting for the engine to begin"],
  ["engine", "engine", "the engine; late where it tells no parts, or none of them took most"],
  ["prefill", "prefill", "part of the engine's: reading the prompt"],
  ["first_frame", "first frame", "part of the engine's: the first frame of speech"],
  ["codec", "codec", "part of the engine's: from codes to sound"],
  ["encode", "encode", "Opus"],
  ["send", "send", "to the socket"],
  ["client", "client", "left in time, arrived late"],
];

const PARTS = ["prefill", "first_frame", "codec"];

/** [stage, ms] of a request in order, without overlap and without zeros. */
export function stagesOf(request) {
  const parts = PARTS.map((part) => [part, request[`${part}_ms`] ?? 0]).filter(([, ms]) => ms > 0);
  const told = parts.reduce((sum, [, ms]) => sum + ms, 0);
  const stages = [];
  for (const stage of ["split", "queue", "engine", "encode", "send"]) {
    const ms = request[`${stage}_ms`] ?? 0;
    if (stage === "engine" && told > 0) {
      stages.push(...parts, ["engine", Math.max(0, ms - told)]);
    } else {
      stages.push([stage, ms]);
    }
  }
  return stages.filter(([, ms]) => ms > 0);
}

/** The sum of some points. */
export class Sum {
  constructor() {
    this.points = 0;
    this.firstPacket = new Map();
    this.clientFirstPacket = new Map();
    this.clientFirstSound = new Map();
    this.misses = {};
    this.errors = {};
    this.outcomes = {};
    this.stagesMs = {};
    this.of = {};
    this.last = {};
    this.worstLagMs = null;
    this.mostQueue = null;
    this.mostContexts = null;
  }

  add(point) {
    this.points += 1;
    addBuckets(this.firstPacket, point.first_packet);
    addBuckets(this.clientFirstPacket, point.client_first_packet);
    addBuckets(this.clientFirstSound, point.client_first_sound);
    for (const [into, more] of [
      [this.misses, point.misses],
      [this.errors, point.errors],
      [this.outcomes, point.outcomes],
      [this.stagesMs, point.stages_ms],
      [this.of, point],
    ]) {
      for (const name in more) {
        if (typeof more[name] === "number") into[name] = (into[name] ?? 0) + more[name];
      }
    }
    this.worstLagMs = Math.max(this.worstLagMs ?? 0, point.lag_ms ?? 0);
    this.mostQueue = Math.max(this.mostQueue ?? 0, point.queue ?? 0);
    this.mostContexts = Math.max(this.mostContexts ?? 0, point.contexts ?? 0);
    this.last = point;
  }

  get ended() {
    return Object.values(this.outcomes).reduce((sum, n) => sum + n, 0);
  }

  get rtf() {
    return this.of.audio_s ? (this.of.busy_s ?? 0) / this.of.audio_s : null;
  }
}

export class Model {
  constructor() {
    this.stats = null;
    this.points = [];
    this.requests = []; // newest last
    this.dropped = 0;
  }

  /** Takes a message of the feed. */
  take(message) {
    switch (message.type) {
      case "stats":
        this.stats = message;
        // Another server, or this one begun anew, after its clock was set back.
        this.points = this.points.filter((point) => point.t <= message.time_ms);
        if (message.point) this.addPoint(message.point);
        break;
      case "history": // also after a reconnect: what is known already is not added again
        message.points.forEach((point) => this.addPoint(point));
        message.requests.forEach((request) => this.addRequest(request));
        break;
      case "request":
        this.addRequest(message);
        break;
      case "client":
        this.addReport(message);
        break;
      case "dropped":
        this.dropped += message.records;
        break;
    }
  }

  addPoint(point) {
    if (this.points.length && point.t <= this.points[this.points.length - 1].t) return;
    this.points.push(point);
    if (this.points.length > MAX_POINTS) this.points.shift();
  }

  addRequest(request) {
    request.key = `${request.session} ${request.stream}`;
    const known = this.requests.findLastIndex((each) => each.key === request.key);
    if (known >= 0) {
      this.requests[known] = request;
      return;
    }
    this.requests.push(request);
    if (this.requests.length > MAX_REQUESTS) this.requests.shift();
  }

  /** What a client said of a context that had ended. */
  addReport(report) {
    const index = this.requests.findLastIndex(
      (each) => each.session === report.session && each.ctx === report.ctx,
    );
    if (index < 0) return;
    const known = this.requests[index];
    const request = { ...known, ...report, type: "request" };
    for (const name of ["client_underruns", "client_stalled_ms"]) {
      if (report[name] !== undefined) request[name] = (known[name] ?? 0) + report[name];
    }
    this.requests[index] = request;
  }

  /** The sum of the last seconds. */
  sum(seconds) {
    const sum = new Sum();
    const from = this.now - 1000 * seconds;
    for (const point of this.points) if (point.t > from) sum.add(point);
    return sum;
  }

  /** The last seconds in equal bins: [{t, sum}], t in Unix seconds at a bin's end. */
  bins(seconds, binSeconds) {
    const step = 1000 * binSeconds;
    const end = Math.ceil(this.now / step) * step;
    const count = Math.ceil(seconds / binSeconds);
    const bins = Array.from({ length: count }, (_, i) => ({
      t: (end - (count - 1 - i) * step) / 1000,
      sum: new Sum(),
    }));
    for (const point of this.points) {
      const index = count - 1 - Math.floor((end - point.t) / step);
      if (index >= 0 && index < count) bins[index].sum.add(point);
    }
    return bins;
  }

  /** The server's clock, in Unix milliseconds. */
  get now() {
    return this.stats?.time_ms ?? 0;
  }
}
