// The table of recent contexts: a bar of stages in each row, and a waterfall behind it. Rows are
// made once and moved, never made again: a busy server ends seventeen contexts a second.

import { STAGES, stagesOf } from "./model.js";

const ROWS = 40;
const NAMES = new Map(STAGES.map(([stage, name]) => [stage, name]));

const ms = (value) => (value == null ? "–" : `${value.toFixed(1)} ms`);

const ORDERS = {
  newest: (requests) => requests.slice(-ROWS).reverse(),
  slowest: (requests) =>
    requests
      .filter((each) => each.first_packet_ms != null)
      .sort((a, b) => b.first_packet_ms - a.first_packet_ms)
      .slice(0, ROWS),
  late: (requests) =>
    requests.filter((each) => isLate(each) || each.code).slice(-ROWS).reverse(),
};

const isLate = (request) => request.within_budget === false || request.client_late === true;

function verdict(request) {
  if (request.code) return [request.code, "bad"];
  if (request.within_budget === false) return [`late: ${NAMES.get(request.guilty_stage) ?? ""}`, "bad"];
  if (request.client_late) return ["late: client", "bad"];
  if (request.first_packet_ms == null) return [request.reason, "plain"];
  return [request.reason === "completed" ? "in time" : request.reason, "good"];
}

function stageBar(request, longest) {
  const bar = document.createElement("div");
  bar.className = "stages";
  bar.setAttribute("aria-hidden", "true"); // the waterfall says it in words
  for (const [stage, took] of stagesOf(request)) {
    const part = document.createElement("span");
    part.className = `stage-${stage}`;
    part.style.width = `${(100 * took) / longest}%`;
    part.title = `${NAMES.get(stage)} ${ms(took)}`;
    bar.append(part);
  }
  const budget = document.createElement("i");
  if (request.budget_ms <= longest) {
    budget.style.left = `${(100 * request.budget_ms) / longest}%`;
    budget.title = `budget ${ms(request.budget_ms)}`;
    bar.append(budget);
  }
  return bar;
}

/** Every stage in its own line, beginning where the one before it ended. */
function waterfall(request) {
  const list = document.createElement("ol");
  list.className = "waterfall";
  const stages = stagesOf(request);
  const whole = stages.reduce((sum, [, took]) => sum + took, 0) || 1;
  let at = 0;
  for (const [stage, took] of stages) {
    const item = document.createElement("li");
    const name = document.createElement("span");
    name.textContent = NAMES.get(stage);
    const track = document.createElement("div");
    track.setAttribute("aria-hidden", "true");
    const bar = document.createElement("b");
    bar.className = `stage-${stage}`;
    bar.style.marginLeft = `${(100 * at) / whole}%`;
    bar.style.width = `${(100 * took) / whole}%`;
    track.append(bar);
    const length = document.createElement("span");
    length.textContent = ms(took);
    item.append(name, track, length);
    list.append(item);
    at += took;
  }
  return list;
}

function facts(request) {
  const list = document.createElement("dl");
  list.className = "facts";
  const pairs = [
    ["session", request.session],
    ["context", request.ctx],
    ["engine", request.engine],
    ["language", request.language],
    ["codec", `${request.codec}, ${request.container}`],
    ["characters", request.chars],
    ["segments", request.segments],
    ["audio", `${request.audio_s} s`],
    ["from first text", ms(request.from_first_text_ms)],
    ["real-time factor", request.rtf ?? "–"],
    ["underruns", `${request.stalls} (${ms(request.stalled_ms)})`],
    ["voice warm", request.voice_cached ? "yes" : "no"],
    ["at the client", ms(request.client_first_packet_ms)],
    ["first sound", ms(request.client_first_sound_ms)],
    ["client underruns", request.client_underruns ?? "–"],
  ];
  for (const [name, value] of pairs) {
    const term = document.createElement("dt");
    term.textContent = name;
    const fact = document.createElement("dd");
    fact.textContent = `${value}`;
    list.append(term, fact);
  }
  return list;
}

export class Requests {
  /** @param {HTMLTableElement} table with a head of six columns and an empty body */
  constructor(table, order, empty) {
    this.body = table.tBodies[0];
    this.order = order;
    this.empty = empty;
    this.rows = new Map(); // key -> {request, row}
    this.open = null; // {key, row}
  }

  /** Whether a row is open: then the table holds still, so that it can be read. */
  get isHeld() {
    return this.open !== null;
  }

  show(requests) {
    if (this.isHeld) return;
    const shown = ORDERS[this.order.value](requests);
    // A power of two, so that a slow one does not rescale all rows each second.
    const slowest = Math.max(1, ...shown.map((each) => each.first_packet_ms ?? 0));
    const longest = 2 ** Math.ceil(Math.log2(slowest));
    const rows = new Map();
    for (const request of shown) {
      const known = this.rows.get(request.key);
      const isCurrent = known?.request === request && known.longest === longest;
      rows.set(request.key, isCurrent ? known : { request, longest, row: this.make(request, longest) });
    }
    for (const [key, { row }] of this.rows) if (rows.get(key)?.row !== row) row.remove();
    let next = this.body.firstElementChild;
    for (const { row } of rows.values()) {
      if (row === next) next = next.nextElementSibling;
      else this.body.insertBefore(row, next);
    }
    this.rows = rows;
    this.empty.hidden = rows.size > 0;
  }

  make(request, longest) {
    const row = document.createElement("tr");
    const [words, kind] = verdict(request);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = request.ctx.trim() ? request.ctx : JSON.stringify(request.ctx);
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => this.toggle(request, row, button));
    const head = document.createElement("th");
    head.scope = "row";
    head.append(button);
    const cells = [
      request.ended_ms ? new Date(request.ended_ms).toLocaleTimeString() : "–",
      request.voice,
      ms(request.first_packet_ms),
      words,
      stageBar(request, longest),
    ].map((content) => {
      const cell = document.createElement("td");
      cell.append(content);
      return cell;
    });
    cells[3].className = `verdict ${kind}`;
    row.append(head, ...cells);
    return row;
  }

  toggle(request, row, button) {
    const wasOpen = this.open?.key === request.key;
    if (this.open) {
      this.open.row.remove();
      this.open.button.setAttribute("aria-expanded", "false");
      this.open = null;
    }
    if (wasOpen) return;
    const detail = document.createElement("tr");
    detail.className = "detail";
    const cell = detail.insertCell();
    cell.colSpan = 6;
    cell.append(waterfall(request), facts(request));
    row.after(detail);
    button.setAttribute("aria-expanded", "true");
    this.open = { key: request.key, row: detail, button };
  }
}
