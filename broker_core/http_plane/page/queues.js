// All queues: a table of any length. Only visible rows exist as elements.

import {queueAddress} from "./alarms.js";
import {history, maySomewhere} from "./api.js";
import {attention} from "./attention.js";
import {declareQueue} from "./declarations.js";
import {badge, h, panel, replace, text} from "./dom.js";
import {bytes, count, filled, rate, short, span} from "./format.js";
import {Chart, SAMPLES, Spark} from "./plot.js";
import {look} from "./rates.js";

const POLL_S = 2;
const PLOTS_S = 10;
const ROW_PX = 28; // as `--queue-row` in style.css
const NEARLY_FULL = 800; // thousandths of the limits, from which a badge shows the fill level
const SPARE_ROWS = 6; // above and below the visible rows

// key, heading, class, unit
const COLUMNS = [
  ["name", "Queue", "name w-name"],
  ["available", "Ready", "number w-n", "msg"],
  ["acquired", "Held", "number w-n narrow-2", "msg"],
  ["deadLetters", "Dead", "number w-n narrow-2", "msg"],
  ["oldest", "Oldest", "number w-n narrow-1"],
  ["in", "In", "number w-rate", "msg/s"],
  ["out", "Out", "number w-rate", "msg/s"],
  ["bytes", "Size", "number w-n narrow-1"],
  ["consumers", "Consumers", "number w-n narrow-1"],
  ["plot", "Depth, 1 h", "w-plot narrow-2"],
  ["rates", "In, out, 1 h", "w-plot narrow-1"],
];
const PLOTS = ["plot", "rates"]; // columns without sorting
const ATTENTION = "attention";
const ORDERS = [[ATTENTION, "Needs attention"], ...COLUMNS.filter(([key]) => !PLOTS.includes(key)).map(([key, label]) => [key, label])];
// name: [class, unit]
const STATS = {Queues: ["narrow-2"], Ready: ["", "msg"], Held: ["narrow-2", "msg"], "Dead letters": ["", "msg"], In: ["", "msg/s"], Out: ["narrow-2", "msg/s"], Acknowledged: ["narrow-2", "msg/s"]};
const ALPHABETICAL = new Intl.Collator("en", {numeric: true});
const filtering = {filter: "", sort: ATTENTION, down: false};

const valueOf = {
  attention: (queue) => queue.attention.rank * 100 - Math.floor(Math.log2(queue.available + queue.delayed + 1)),
  name: (queue) => queue.place,
  oldest: (queue, now) => (queue.oldest ? now - queue.oldest : -1), // the oldest message has the smallest time, and the greatest age
  consumers: (queue) => queue.consumers + queue.leases,
};

class Row {
  constructor() {
    this.link = h("a", {});
    this.paused = badge("paused", "warn");
    this.full = badge("full", "warn", "The used part of the queue's limits");
    this.attention = badge("");
    this.sparks = [new Spark(), new Spark()];
    this.cells = new Map(COLUMNS.map(([key, , kind]) => [key, h("td", {class: PLOTS.includes(key) ? `plot ${kind}` : kind})]));
    this.cells.get("name").append(h("div", {}, this.link, this.paused, this.full, this.attention));
    PLOTS.forEach((key, at) => this.cells.get(key).append(this.sparks[at].element));
    this.element = h("tr", {}, ...this.cells.values());
    this.plotted = undefined;
  }

  show(queue, now, plot) {
    text(this.link, queue.name);
    this.link.title = queue.name;
    this.link.setAttribute("href", queueAddress(queue.name));
    this.paused.hidden = !queue.paused;
    text(this.full, filled(queue.fill, NEARLY_FULL));
    this.full.hidden = queue.fill < NEARLY_FULL;
    this.full.classList.toggle("bad", queue.fill >= 1000);
    this.#attention(queue.attention);
    this.#number("available", queue.available, short);
    this.#number("acquired", queue.acquired, short);
    this.#number("deadLetters", queue.deadLetters, short);
    this.cells.get("deadLetters").classList.toggle("bad", queue.deadLetters > 0);
    this.#number("oldest", queue.oldest ? Math.max(0, (now - queue.oldest) / 1e6) : null, span);
    this.#number("in", queue.in, rate);
    this.#number("out", queue.out, rate);
    this.#number("bytes", queue.bytes, bytes);
    this.#number("consumers", queue.consumers + queue.leases, count);
    if (this.plotted === plot) return;
    this.plotted = plot;
    this.sparks[0].show(plot?.depth);
    this.sparks[1].show(plot?.enqueued, plot?.delivered);
  }

  #attention({label, kind, title}) {
    text(this.attention, label);
    this.attention.hidden = !label;
    this.attention.className = `badge ${kind}`;
    this.attention.title = title;
    this.element.dataset.kind = kind;
  }

  #number(key, value, format) {
    const cell = this.cells.get(key);
    text(cell, value === null ? "–" : format(value));
    cell.classList.toggle("zero", value === null || value === 0);
  }
}

export function show(root, poll) {
  const rows = [];
  let drawn = 0; // index of the queue in the first row
  let queues = [];
  let shown = [];
  let now = 0;
  let places = new Map(); // by name, its place in the alphabet: comparing names is too slow for each poll
  let plots = new Map();

  const filter = h("input", {type: "search", placeholder: "Filter by name", "aria-label": "Filter queues by name", size: 26, spellcheck: "false", autocomplete: "off"});
  filter.value = filtering.filter;
  const total = h("span", {class: "muted small", role: "status"});
  const [above, below] = [h("td", {}), h("td", {})]; // one cell: in a fixed layout a wider one would add columns
  const [first, last] = [h("tr", {class: "spacer", "aria-hidden": "true"}, above), h("tr", {class: "spacer", "aria-hidden": "true"}, below)];
  const body = h("tbody", {}, first, last);
  const headings = new Map(COLUMNS.map((column) => [column[0], heading(...column)]));
  const order = h("select", {"aria-label": "Order of the queues", onchange: () => sort(order.value)}, ORDERS.map(([key, label]) => h("option", {value: key}, label)));
  const list = h("table", {class: "queues"}, h("thead", {}, h("tr", {}, ...headings.values())), body);
  const empty = h("p", {class: "empty", hidden: true});
  const stats = Object.fromEntries(Object.keys(STATS).map((name) => [name, h("dd", {}, "–")]));
  const chart = new Chart("Messages in all queues, last hour", ["Depth, msg"], short);
  const rates = new Chart("Messages per second through all queues, last hour", ["In, msg/s", "Out, msg/s"], rate);

  function heading(key, label, kind, unit) {
    if (PLOTS.includes(key)) return h("th", {class: kind, scope: "col"}, label);
    return h("th", {class: kind.replace("name ", ""), scope: "col"}, h("button", {onclick: () => sort(key), "data-unit": unit}, label));
  }

  function sort(key) {
    filtering.down = filtering.sort === key ? !filtering.down : !["name", ATTENTION].includes(key);
    filtering.sort = key;
    arrange();
  }

  function arrange() {
    const wanted = filtering.filter.toLowerCase();
    shown = wanted ? queues.filter((queue) => queue.name.toLowerCase().includes(wanted)) : [...queues];
    const {sort: key, down} = filtering;
    const sign = down ? -1 : 1;
    const value = valueOf[key] ?? ((queue) => queue[key] ?? -1);
    shown.sort((a, b) => sign * (value(a, now) - value(b, now)) || a.place - b.place);
    order.value = key;
    for (const [name, heading] of headings) {
      if (name === key) heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    text(total, queues.length === shown.length ? `${count(queues.length)}` : `${count(shown.length)} of ${count(queues.length)}`);
    empty.hidden = shown.length > 0;
    text(empty, queues.length ? "No queue name contains this text." : "No queues yet.");
    draw();
  }

  function seen() {
    const top = body.getBoundingClientRect().top;
    const start = Math.max(0, Math.min(shown.length, Math.floor(-top / ROW_PX)) - SPARE_ROWS);
    const stop = Math.min(shown.length, Math.ceil((window.innerHeight - top) / ROW_PX) + SPARE_ROWS);
    return [start, Math.max(start, stop)];
  }

  function draw() {
    const [start, stop] = seen();
    while (rows.length < stop - start) {
      rows.push(new Row());
      last.before(rows.at(-1).element);
    }
    while (rows.length > stop - start) rows.pop().element.remove();
    // A row that stays on the screen keeps its element, so a step of a scroll changes few rows.
    const step = start - drawn;
    if (step > 0 && step < rows.length) {
      for (const row of rows.splice(0, step)) {
        rows.push(row);
        last.before(row.element);
      }
    } else if (step < 0 && -step < rows.length) {
      for (const row of rows.splice(step).reverse()) {
        rows.unshift(row);
        first.after(row.element);
      }
    }
    drawn = start;
    above.style.height = `${start * ROW_PX}px`;
    below.style.height = `${(shown.length - stop) * ROW_PX}px`;
    rows.forEach((row, at) => row.show(shown[start + at], now, plots.get(shown[start + at].name)));
  }

  function sum(values) {
    return values.some((value) => value !== null) ? values.reduce((total, value) => total + (value ?? 0), 0) : values.length ? null : 0;
  }

  async function read(signal) {
    const all = await look(signal);
    now = all.time;
    const [available, acquired, delayed, dead, oldest, size, consumers, leases, paused, fill] =
      ["available", "acquired", "delayed", "deadLetters", "oldest", "bytes", "consumers", "leases", "paused", "fill"].map(all.of);
    const [ins, outs, done] = ["enqueued", "delivered", "acknowledged"].map(all.rate);
    if (all.names.length !== places.size || !all.names.every((name) => places.has(name))) {
      places = new Map([...all.names].sort(ALPHABETICAL.compare).map((name, at) => [name, at]));
    }
    queues = all.names.map((name, at) => ({
      name, available: available[at], acquired: acquired[at], delayed: delayed[at], deadLetters: dead[at], oldest: oldest[at],
      bytes: size[at], consumers: consumers[at], leases: leases[at], paused: paused[at], in: ins[at], out: outs[at],
      growth: all.growth[at], deliveries: all.deliveries[at], fill: fill[at], place: places.get(name),
    }));
    for (const queue of queues) queue.attention = attention(queue, now);
    text(stats.Queues, count(queues.length));
    text(stats.Ready, short(sum(available)));
    text(stats.Held, short(sum(acquired)));
    text(stats["Dead letters"], short(sum(dead)));
    stats["Dead letters"].classList.toggle("bad", sum(dead) > 0);
    text(stats.In, rate(sum(ins)));
    text(stats.Out, rate(sum(outs)));
    text(stats.Acknowledged, rate(sum(done)));
    arrange();
    list.dataset.ready = "1"; // the first numbers are shown
  }

  async function plotAll(signal) {
    if (charts.hidden) return;
    const all = await history([], signal);
    const {depth = [], enqueued = [], delivered = []} = all.queues[""] ?? {};
    chart.show([depth], SAMPLES, all.period);
    rates.show([enqueued, delivered].map((values) => values.map((value) => value / all.period)), SAMPLES, all.period);
  }

  async function plotSeen(signal) {
    const [start, stop] = seen();
    const names = shown.slice(start, stop).map((queue) => queue.name);
    if (!names.length) return;
    const all = await history(names, signal);
    plots = new Map(Object.entries(all.queues));
    draw();
  }

  filter.addEventListener("input", () => {
    filtering.filter = filter.value;
    arrange();
    settled();
  });

  // Arrow keys move from queue to queue. A row that is not drawn yet is scrolled into view first.
  body.addEventListener("keydown", (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    const at = rows.findIndex((row) => row.link === document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const name = rows[at].link.textContent;
    const next = shown[shown.findIndex((queue) => queue.name === name) + step];
    if (!next) return;
    rows[at + step]?.element.scrollIntoView({block: "nearest"});
    draw();
    rows.find((row) => row.link.textContent === next.name)?.link.focus({preventScroll: true});
  });

  const statsList = h("dl", {class: "stats"}, Object.entries(STATS).map(([name, [kind, unit]]) => h("div", {class: kind}, h("dt", {"data-unit": unit}, name), stats[name])));
  const charts = h("div", {class: "grid", hidden: true}, panel(["Depth", chart.legend], h("div", {class: "body"}, chart.element)), panel(["Rates", rates.legend], h("div", {class: "body"}, rates.element)));
  const plotted = h("button", {class: "small narrow-2", "aria-expanded": "false", onclick: () => showCharts(charts.hidden)}, "Plots");

  // The plots are closed at first, because the first screen is for queues. The browser remembers the choice.
  function showCharts(open) {
    charts.hidden = !open;
    plotted.setAttribute("aria-expanded", String(open));
    localStorage.setItem("plots", open ? "open" : "closed");
    if (open) plotSum?.();
  }

  replace(
    root,
    h("section", {class: "panel"}, statsList),
    charts,
    h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Queues"), total, h("span", {class: "spring"}), maySomewhere("admin") && h("button", {class: "small", onclick: declareQueue}, "Declare…"), plotted, order, filter), list, empty),
  );

  let timer = 0;
  function settled() {
    clearTimeout(timer);
    timer = setTimeout(plot, 150);
  }
  const scrolled = () => {
    draw();
    settled();
  };
  window.addEventListener("scroll", scrolled, {passive: true, signal: poll.signal});
  window.addEventListener("resize", scrolled, {passive: true, signal: poll.signal});
  poll.signal.addEventListener("abort", () => clearTimeout(timer));
  let plot = () => {};
  let plotSum = null;
  const begun = poll.every(POLL_S, async (signal) => {
    const fresh = !queues.length;
    await read(signal);
    if (fresh) plot();
  });
  showCharts(localStorage.getItem("plots") === "open");
  plotSum = poll.every(PLOTS_S, plotAll);
  plot = poll.every(PLOTS_S, plotSeen);
  return {title: "Queues", refresh: begun};
}
