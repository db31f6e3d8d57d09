// Lines over time and bars, drawn by uPlot, each with a table behind it that says the same.
// Knows nothing about latency.

/* global uPlot */

const HEIGHT_PX = 190;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Fills a table: a row of headings, then rows of texts, the first of each being its heading. */
export function fillTable(table, heads, rows) {
  const cell = (tag, text, scope) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (scope) made.scope = scope;
    return made;
  };
  const head = document.createElement("thead");
  const top = head.insertRow();
  heads.forEach((text) => top.append(cell("th", text, "col")));
  const body = document.createElement("tbody");
  for (const texts of rows) {
    const row = body.insertRow();
    texts.forEach((text, i) => row.append(i ? cell("td", text) : cell("th", text, "row")));
  }
  table.replaceChildren(table.caption ?? document.createElement("caption"), head, body);
}

class Chart {
  /**
   * @param {HTMLElement} figure with a `.plot` and a `details` that holds a table
   * @param {() => object} options of uPlot, without size; called again when colours change
   */
  constructor(figure, options) {
    this.figure = figure;
    this.box = figure.querySelector(".plot");
    this.details = figure.querySelector("details");
    this.table = figure.querySelector("table");
    this.options = options;
    this.data = null;
    this.tableOf = null;
    this.plot = null;
    this.details.addEventListener("toggle", () => this.showTable());
    new ResizeObserver(() => this.plot?.setSize(this.size)).observe(this.box);
  }

  get size() {
    return { width: Math.max(120, this.box.clientWidth), height: HEIGHT_PX };
  }

  /**
   * @param {number[][]} data of uPlot
   * @param {string} summary in words, for who does not see the picture
   * @param {() => [string[], string[][]]} tableOf headings and rows
   */
  show(data, summary, tableOf) {
    this.data = data;
    this.tableOf = tableOf;
    this.box.setAttribute("aria-label", summary);
    if (this.plot) this.plot.setData(data);
    else this.draw();
    this.showTable();
  }

  draw() {
    this.plot?.destroy();
    this.plot = this.data && new uPlot({ ...this.options(), ...this.size }, this.data, this.box);
  }

  showTable() {
    if (this.details.open && this.tableOf) fillTable(this.table, ...this.tableOf());
  }
}

const axis = (more) => ({
  stroke: colour("--muted"),
  grid: { stroke: colour("--line"), width: 1 },
  ticks: { stroke: colour("--line"), width: 1, size: 4 },
  font: "12px system-ui, sans-serif",
  ...more,
});

// From 1 ms, below which nobody hears a difference, to a decade that holds all there is.
const LOG = {
  distr: 3,
  range: (_, low, high) => [
    10 ** Math.floor(Math.log10(Math.max(1, low ?? 1))),
    10 ** Math.ceil(Math.log10(Math.max(10, high ?? 10) * 1.01)),
  ],
};

/** The top of a linear scale. A dashed limit far above the lines is left out: it would flatten them. */
function top(plot) {
  const most = (series) => Math.max(0, ...(plot.data[series] ?? []).filter((v) => v != null));
  const all = plot.series.map((_, i) => i).slice(1);
  const high = Math.max(...all.filter((i) => !plot.series[i].dash).map(most));
  const limit = Math.max(0, ...all.filter((i) => plot.series[i].dash).map(most));
  return 1.1 * (limit <= 4 * high ? Math.max(high, limit) : high) || 1;
}

/**
 * Lines over time.
 * @param {{label: string, colour: string, dash?: number[], width?: number}[]} series `colour` names a CSS variable
 * @param {{unit: string, decimals?: number, isLog?: boolean}} y
 */
export function timeChart(figure, series, y) {
  const decimals = y.decimals ?? 0;
  return new Chart(figure, () => ({
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: true },
    scales: { x: { time: true }, y: y.isLog ? LOG : { range: (plot) => [0, top(plot)] } },
    axes: [
      axis({ space: 60 }),
      axis({ size: 52, values: (_, ticks) => ticks.map((v) => (v == null ? "" : `${v}`)) }),
    ],
    series: [
      { value: (_, t) => (t == null ? "–" : new Date(1000 * t).toLocaleTimeString()) },
      ...series.map((each) => ({
        label: each.label,
        stroke: colour(each.colour),
        width: each.width ?? 2,
        dash: each.dash,
        points: each.dash ? { show: false } : { show: true, size: 4, fill: colour(each.colour) },
        value: (_, v) => (v == null ? "–" : `${v.toFixed(decimals)} ${y.unit}`.trim()),
      })),
    ],
  }));
}

/** Bars of a histogram over logarithmic bins, with a mark at a limit. */
export function barChart(figure, label, state) {
  const mark = (plot) => {
    const { bins, limit } = state;
    if (!bins.length) return;
    const at = (Math.log10(limit) - Math.log10(bins[0].from)) * 10 - 0.5;
    const x = plot.valToPos(at, "x", true);
    const { top, height, left, width } = plot.bbox;
    if (x < left || x > left + width) return;
    const pen = plot.ctx;
    pen.save();
    pen.strokeStyle = colour("--budget");
    pen.lineWidth = 2 * devicePixelRatio;
    pen.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, top + height);
    pen.stroke();
    pen.restore();
  };
  return new Chart(figure, () => ({
    cursor: { drag: { x: false, y: false } },
    legend: { show: true },
    scales: {
      x: { time: false, range: () => [-0.6, Math.max(state.bins.length, 1) - 0.4] },
      y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] },
    },
    axes: [
      axis({ space: 48, incrs: [1, 2, 5, 10], values: (_, at) => at.map((i) => edge(state.bins[i])) }),
      axis({ size: 52, values: (_, ticks) => ticks.map((v) => (Number.isInteger(v) ? `${v}` : "")) }),
    ],
    series: [
      { label: "first packet", value: (_, i) => (i == null ? "–" : span(state.bins[i])) },
      {
        label,
        stroke: colour("--p50"),
        fill: colour("--p50"),
        width: 0,
        paths: uPlot.paths.bars({ size: [0.9, 60] }),
        points: { show: false },
        value: (_, v) => (v == null ? "–" : `${v}`),
      },
    ],
    hooks: { draw: [mark] },
  }));
}

const length = (ms) => (ms >= 1000 ? `${+(ms / 1000).toPrecision(2)} s` : `${+ms.toPrecision(2)} ms`);
const edge = (bin) => (bin ? length(bin.from) : "");
/** A bin in words. */
export const span = (bin) => (bin ? `${length(bin.from)} to ${length(bin.to)}` : "–");
