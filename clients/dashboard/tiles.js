// The figures of the last minute, in words and numbers.

import { quantiles } from "./buckets.js";

export const ms = (value) => {
  if (value == null) return "–";
  return value >= 100 ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
};
export const percent = (share) => (share == null ? "–" : `${(100 * share).toFixed(1)} %`);
const gib = (bytes) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** @returns {Record<string, string>} by `data-figure` */
export function figures(stats, minute) {
  const { hits, misses } = stats.voice_cache;
  const of = minute.of;
  const [sound50, sound95] = quantiles(minute.clientFirstSound, [0.5, 0.95]);
  const cancelled = minute.outcomes.cancelled ?? 0;
  return {
    "hit-rate": percent(stats.budget_hit_rate),
    budget: ms(stats.budget_ms),
    "first-packets": `${stats.first_packets}`,
    p50: ms(stats.first_packet_ms.p50),
    p95: ms(stats.first_packet_ms.p95),
    p99: ms(stats.first_packet_ms.p99),
    contexts: `${stats.contexts}`,
    sessions: `${stats.sessions}`,
    queue: `${stats.queue}`,
    utterances: `${stats.engine.utterances}`,
    slots: `${stats.engine.slots}`,
    backlog: ms(stats.engine.backlog_ms),
    rtf: minute.rtf == null ? "–" : minute.rtf.toFixed(3),
    stalls: `${of.stalls ?? 0}`,
    "stalled-ms": ms(of.stalled_ms ?? 0),
    "sound-p50": ms(sound50),
    "sound-p95": ms(sound95),
    "client-underruns": `${of.client_underruns ?? 0}`,
    "client-reports": `${of.client_reports ?? 0}`,
    ended: `${minute.ended}`,
    cancelled: `${cancelled}`,
    errors: `${Object.values(minute.errors).reduce((sum, n) => sum + n, 0)}`,
    "cache-rate": hits + misses ? percent(hits / (hits + misses)) : "–",
    "cache-misses": `${misses}`,
    "cache-evictions": `${stats.voice_cache.evictions}`,
    "lag-p99": ms(stats.loop_lag_ms.p99),
    "lag-max": ms(stats.loop_lag_ms.max),
    opus: `${stats.opus.complexity}${stats.opus.is_lowered ? ", lowered" : ""}`,
    restarts: `${stats.engine.restarts}`,
    gpu: gpuUse(stats.gpu),
    "gpu-memory": gpuMemory(stats.gpu),
  };
}

function gpuUse({ devices, reason }) {
  if (!devices.length) return reason ?? "no GPU";
  return devices
    .map((gpu) => (gpu.utilization == null ? "–" : `${Math.round(100 * gpu.utilization)} %`))
    .join(", ");
}

const gpuMemory = ({ devices }) =>
  devices
    .map((gpu) => `${gpu.name}: ${gib(gpu.used_bytes)} of ${gib(gpu.total_bytes)}`)
    .join("; ");
