// The page: connects, and shows what comes once a second.

import { AdviceList } from "./advice.js";
import { histogram, quantiles, total } from "./buckets.js";
import { barChart, fillTable, span, timeChart } from "./charts.js";
import { Feed } from "./feed.js";
import { Model, STAGES } from "./model.js";
import { Requests } from "./requests.js";
import { figures, ms, percent } from "./tiles.js";

const $ = (id) => document.getElementById(id);
const BIN_S = { 60: 2, 300: 5, 900: 15 };

const model = new Model();
const outputs = new Map(
  [...document.querySelectorAll("[data-figure]")].map((each) => [each.dataset.figure, each]),
);
const advice = new AdviceList($("advice"), $("all-fine"), $("announcer"));
const requests = new Requests($("requests"), $("order"), $("no-requests"));
const bars = { bins: [], limit: 500 };
const charts = {
  latency: timeChart(
    $("latency"),
    [
      { label: "p50", colour: "--p50" },
      { label: "p95", colour: "--p95" },
      { label: "p99", colour: "--p99" },
      { label: "budget", colour: "--budget", dash: [6, 4] },
    ],
    { unit: "ms", decimals: 1, isLog: true },
  ),
  distribution: barChart($("distribution"), "contexts", bars),
  load: timeChart(
    $("load"),
    [
      { label: "contexts", colour: "--p50" },
      { label: "waiting", colour: "--p95" },
      { label: "places", colour: "--budget", dash: [6, 4] },
    ],
    { unit: "" },
  ),
  rtf: timeChart($("rtf"), [{ label: "real-time factor", colour: "--p50" }], { unit: "", decimals: 3 }),
  sound: timeChart(
    $("sound"),
    [
      { label: "first sound p50", colour: "--p50" },
      { label: "first sound p95", colour: "--p95" },
    ],
    { unit: "ms", decimals: 0 },
  ),
  gaps: timeChart(
    $("gaps"),
    [
      { label: "server sent late", colour: "--p99" },
      { label: "clients report", colour: "--p95" },
    ],
    { unit: "" },
  ),
  lag: timeChart($("lag"), [{ label: "worst", colour: "--p99" }], { unit: "ms", decimals: 1 }),
  gpu: timeChart(
    $("gpu"),
    [
      { label: "busy", colour: "--p50" },
      { label: "memory", colour: "--p95" },
    ],
    { unit: "%" },
  ),
};

let isPaused = false;
let isDue = false;

const feed = new Feed(
  Object.assign(new URL("../v1/stats", location.href), {
    protocol: location.protocol === "https:" ? "wss:" : "ws:",
    hash: "",
    search: "",
  }),
  (message) => {
    model.take(message);
    if (message.type === "stats" || message.type === "history") render();
  },
  showState,
);

function showState(state) {
  const words = {
    connecting: model.stats ? "connecting again" : "connecting",
    open: "live",
    waiting: `not connected: ${state.reason}; trying again`,
    "needs-key": "needs a key",
  };
  $("state").textContent = words[state.name];
  $("state").className = state.name;
  // Old figures stay readable and look old; none at all are not shown as dashes.
  document.body.classList.toggle("stale", state.name !== "open");
  const needsKey = state.name === "needs-key";
  const wasHidden = $("key-form").hidden;
  $("key-form").hidden = !needsKey;
  $("key-error").textContent = needsKey && state.hadKey ? "The server does not accept that key." : "";
  if (needsKey && (wasHidden || state.hadKey)) {
    $("key").value = "";
    $("key").focus();
  }
  $("forget-key").hidden = !(state.name === "open" && feed.key);
}

/** Shows what is known, at most once a frame, and not while nobody looks. */
function render() {
  if (isDue || isPaused || document.hidden || !model.stats) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    performance.mark("show");
    show();
    performance.measure("show", "show");
    performance.clearMarks("show");
    if (!keepsMeasures) performance.clearMeasures("show");
  });
}

// `?measure` keeps the time each rendering took, for the benchmark.
const keepsMeasures = new URLSearchParams(location.search).has("measure");

function show() {
  const stats = model.stats;
  const seconds = Number($("window").value);
  const minute = model.sum(60);
  const whole = model.sum(seconds);
  $("server").textContent = [stats.server, stats.engine_name, stats.model].filter(Boolean).join(" · ");
  for (const [name, text] of Object.entries(figures(stats, minute))) setText(outputs.get(name), text);
  advice.show(stats.advice, stats.time_ms);
  showCharts(stats, seconds, whole);
  showMisses(whole);
  showErrors(stats, whole);
  requests.show(model.requests);
  $("held").hidden = !requests.isHeld;
  $("dropped").hidden = !model.dropped;
  $("dropped").textContent = `This page was too slow for ${model.dropped} messages; they are not shown.`;
}

function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

const clock = (t) => new Date(1000 * t).toLocaleTimeString();
const number = (value, digits = 0) => (value == null ? "–" : value.toFixed(digits));

function showCharts(stats, seconds, whole) {
  const bins = model.bins(seconds, BIN_S[seconds]);
  const times = bins.map(({ t }) => t);
  const known = (read) => bins.map(({ sum }) => (sum.points ? read(sum) : null));
  const table = (heads, columns, digits) => () => [
    ["time", ...heads],
    bins
      .map(({ t }, i) => [clock(t), ...columns.map((column) => number(column[i], digits))])
      .filter((row) => row.slice(1).some((text) => text !== "–"))
      .reverse(),
  ];
  const shares = [0.5, 0.95, 0.99];
  const [p50, p95, p99] = shares.map((_, k) =>
    known((sum) => quantiles(sum.firstPacket, shares)[k]),
  );
  const budget = times.map(() => stats.budget_ms);
  const [all50, all95, all99] = quantiles(whole.firstPacket, shares);
  charts.latency.show(
    [times, p50, p95, p99, budget],
    `First packet over time. All of it: p50 ${ms(all50)}, p95 ${ms(all95)}, p99 ${ms(all99)}; budget ${ms(stats.budget_ms)}.`,
    table(["p50 ms", "p95 ms", "p99 ms", "budget ms"], [p50, p95, p99, budget], 1),
  );
  showDistribution(stats, whole);
  const contexts = known((sum) => sum.mostContexts);
  const queue = known((sum) => sum.mostQueue);
  const slots = known((sum) => sum.last.slots ?? null);
  charts.load.show(
    [times, contexts, queue, slots],
    `Load over time. Now ${stats.contexts} contexts, ${stats.queue} waiting, ${stats.engine.slots} places.`,
    table(["contexts", "waiting", "places"], [contexts, queue, slots], 0),
  );
  const rtf = known((sum) => sum.rtf);
  charts.rtf.show(
    [times, rtf],
    `Real-time factor over time. All of it: ${number(whole.rtf, 3)}.`,
    table(["real-time factor"], [rtf], 3),
  );
  const [sound50, sound95] = [0, 1].map((k) =>
    known((sum) => quantiles(sum.clientFirstSound, [0.5, 0.95])[k]),
  );
  const [allSound50, allSound95] = quantiles(whole.clientFirstSound, [0.5, 0.95]);
  charts.sound.show(
    [times, sound50, sound95],
    `First sound as clients report it. All of it: p50 ${ms(allSound50)}, p95 ${ms(allSound95)}.`,
    table(["p50 ms", "p95 ms"], [sound50, sound95], 1),
  );
  const stalls = known((sum) => sum.of.stalls ?? 0);
  const reported = known((sum) => sum.of.client_underruns ?? 0);
  charts.gaps.show(
    [times, stalls, reported],
    `Underruns over time: ${whole.of.stalls ?? 0} because the server sent late, ${whole.of.client_underruns ?? 0} as clients report.`,
    table(["server sent late", "clients report"], [stalls, reported], 0),
  );
  const lag = known((sum) => sum.worstLagMs);
  charts.lag.show(
    [times, lag],
    `Event loop lag over time; worst of the last minute ${ms(stats.loop_lag_ms.max)}.`,
    table(["worst ms"], [lag], 1),
  );
  showGpu(stats, times, known, table);
}

function showGpu(stats, times, known, table) {
  const hasGpu = stats.gpu.devices.length > 0;
  $("gpu").hidden = !hasGpu;
  $("no-gpu").hidden = hasGpu;
  $("no-gpu").textContent = `GPU: ${stats.gpu.reason ?? "no GPU"}.`;
  if (!hasGpu) return;
  const most = (read) =>
    known((sum) => {
      const shares = (sum.last.gpu ?? []).map(read).filter((share) => share != null);
      return shares.length ? 100 * Math.max(...shares) : null;
    });
  const busy = most(([use]) => use);
  const memory = most(([, used, all]) => used / all);
  charts.gpu.show(
    [times, busy, memory],
    `The busiest and the fullest GPU over time, in per cent. Now ${outputs.get("gpu").textContent}, ${outputs.get("gpu-memory").textContent}.`,
    table(["busy %", "memory %"], [busy, memory], 0),
  );
}

function showDistribution(stats, whole) {
  bars.bins = histogram(whole.firstPacket, stats.budget_ms);
  bars.limit = stats.budget_ms;
  const counts = bars.bins.map((bin) => bin.count);
  const all = total(whole.firstPacket);
  charts.distribution.show(
    [counts.map((_, i) => i), counts],
    `Distribution of ${all} first packets; the mark is the budget, ${ms(stats.budget_ms)}.`,
    () => [
      ["first packet", "contexts", "share"],
      bars.bins
        .filter((bin) => bin.count)
        .map((bin) => [span(bin), `${bin.count}`, percent(bin.count / all)]),
    ],
  );
}

const missRows = new Map();

function showMisses(whole) {
  const body = $("misses").tBodies[0];
  const missed = Object.values(whole.misses).reduce((sum, n) => sum + n, 0);
  for (const [stage, name, about] of STAGES) {
    if (!missRows.has(stage)) {
      const row = body.insertRow();
      row.dataset.stage = stage;
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      head.title = about;
      row.append(head);
      const cells = [row.insertCell(), row.insertCell(), row.insertCell()];
      const bar = document.createElement("div");
      bar.className = `bar stage-${stage}`;
      cells[1].append(bar);
      missRows.set(stage, { cells, bar });
    }
    const { cells, bar } = missRows.get(stage);
    const count = whole.misses[stage] ?? 0;
    setText(cells[0], `${count}`);
    bar.style.width = missed ? `${(100 * count) / missed}%` : "0";
    const mean = whole.of.measured ? (whole.stagesMs[stage] ?? 0) / whole.of.measured : null;
    setText(cells[2], stage === "client" ? "–" : ms(mean));
  }
  setText($("missed"), missed ? `${missed} late` : "none late");
}

let shownErrors = "";

function showErrors(stats, whole) {
  const rows = Object.entries(stats.errors)
    .sort((a, b) => b[1] - a[1])
    .map(([code, count]) => [code, `${whole.errors[code] ?? 0}`, `${count}`]);
  const outcomes = Object.entries(whole.outcomes).map(([reason, count]) => `${count} ${reason}`);
  setText($("outcomes"), outcomes.length ? `Ended: ${outcomes.join(", ")}.` : "No context has ended.");
  $("no-errors").hidden = rows.length > 0;
  $("errors").hidden = !rows.length;
  const state = JSON.stringify(rows);
  if (state === shownErrors) return;
  shownErrors = state;
  fillTable($("errors"), ["code", "in this stretch", "since the start"], rows);
}

// --- controls --------------------------------------------------------------------------------

function useTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const chart of Object.values(charts)) chart.draw();
}

$("theme").value = localStorage.getItem("rtts.theme") ?? "auto";
useTheme($("theme").value);
$("theme").addEventListener("change", () => {
  localStorage.setItem("rtts.theme", $("theme").value);
  useTheme($("theme").value);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => useTheme($("theme").value));
$("window").addEventListener("change", () => show());
$("order").addEventListener("change", () => requests.show(model.requests));
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", `${isPaused}`);
  render();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("key").value) feed.useKey($("key").value);
});
$("forget-key").addEventListener("click", () => feed.useKey(""));
document.addEventListener("visibilitychange", render);

feed.connect();
