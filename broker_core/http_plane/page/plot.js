// Plots of the last hour.

import {h, replace, svg, text} from "./dom.js";

export const SAMPLES = 360; // of a series at most, as in service/history.py
const POINTS = 60;
const WIDTH = 600;
const HEIGHT = 118;

// Fewer points, each the largest of those it stands for: a short peak must be seen.
function thinned(values, points = POINTS) {
  const size = Math.ceil(values.length / points) || 1;
  const largest = [];
  for (let end = values.length; end > 0; end -= size) largest.push(Math.max(...values.slice(Math.max(0, end - size), end)));
  return largest.reverse();
}

function path(values, top, width, height, slots) {
  if (values.length < 2) return "";
  const step = width / (slots - 1);
  const start = width - (values.length - 1) * step;
  return values.map((value, at) => `${at ? "L" : "M"}${(start + at * step).toFixed(1)} ${(height - (value / top) * height).toFixed(1)}`).join("");
}

// A small plot: the first series is filled, a second one is a line of its own.
export class Spark {
  constructor() {
    this.fill = svg("path", {class: "fill"});
    this.line = svg("path", {});
    this.second = svg("path", {class: "c2"});
    this.element = svg("svg", {class: "spark", viewBox: "0 0 98 20", "aria-hidden": "true"}, this.fill, this.line, this.second);
  }

  show(first, second = null) {
    const [firstPoints, secondPoints] = [first, second].map((values) => (values ? thinned(values) : []));
    const top = Math.max(1, ...firstPoints, ...secondPoints);
    const line = path(firstPoints, top, 98, 19, POINTS);
    this.line.setAttribute("d", line);
    this.second.setAttribute("d", path(secondPoints, top, 98, 19, POINTS));
    this.fill.setAttribute("d", line && `${line}L98 20L${(98 - ((firstPoints.length - 1) * 98) / (POINTS - 1)).toFixed(1)} 20Z`);
  }
}

// A chart of several lines: `labels` name them, `format` makes texts of values.
export class Chart {
  constructor(name, labels, format) {
    this.format = format;
    this.lines = labels.map((_, at) => svg("path", {class: `c${at + 1}`}));
    this.cursor = svg("line", {class: "cursor", y1: 0, y2: HEIGHT, x1: -9, x2: -9});
    this.values = labels.map(() => h("span", {}));
    this.top = h("div", {class: "top"});
    this.when = h("span", {}, "now");
    const grid = [0, 0.5, 1].map((part) => svg("line", {x1: 0, x2: WIDTH, y1: part * (HEIGHT - 1) + 0.5, y2: part * (HEIGHT - 1) + 0.5}));
    const area = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": name}, grid, this.lines, this.cursor);
    area.addEventListener("pointermove", (event) => this.#point((event.clientX - area.getBoundingClientRect().left) / area.clientWidth));
    area.addEventListener("pointerleave", () => this.#point(null));
    this.legend = h("div", {class: "legend"}, labels.map((label, at) => h("span", {}, h("i", {class: `c${at + 1}`}), `${label} `, this.values[at])));
    this.element = h("div", {class: "chart"}, this.top, area, h("div", {class: "axis"}, h("span", {}, "1 h ago"), h("span", {}, "30 min"), this.when));
    this.series = [];
    this.at = null;
  }

  show(series, samples, period) {
    this.series = series;
    this.samples = samples;
    this.period = period;
    const top = Math.max(1, ...series.flat());
    text(this.top, this.format(top));
    series.forEach((values, at) => this.lines[at].setAttribute("d", path(values, top * 1.04, WIDTH, HEIGHT - 1, samples)));
    this.#point(this.at);
  }

  #point(part) {
    this.at = part;
    const length = this.series[0]?.length ?? 0;
    const back = part === null ? 0 : Math.min(length - 1, Math.max(0, Math.round((1 - part) * (this.samples - 1))));
    const x = part === null ? -9 : WIDTH - (back * WIDTH) / (this.samples - 1);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.series.forEach((values, at) => text(this.values[at], length ? this.format(values[length - 1 - back]) : "–"));
    text(this.when, back ? `${Math.round((back * this.period) / 60)} min ago` : "now");
  }
}

export function meter(part) {
  const bar = h("div", {});
  bar.style.width = `${Math.min(100, Math.max(0, part * 100))}%`;
  return replace(h("div", {class: "meter", role: "presentation"}), bar);
}
