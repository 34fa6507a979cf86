// Exchanges and their bindings.

import {queueAddress} from "./alarms.js";
import {call, may, maySomewhere} from "./api.js";
import {bind, declareExchange, deleteExchange, unbind} from "./declarations.js";
import {sendMessage} from "./editing.js";
import {badge, h, replace, table, text} from "./dom.js";
import {count, short} from "./format.js";
import {lost} from "./queue.js";

const POLL_S = 5;
const NAMING = 5; // cells about the exchange, in the first row of its bindings
const MOST_ROWS = 300; // drawn; the filter finds the others

export function show(root, poll) {
  const list = h("div", {});
  const total = h("span", {class: "muted small", role: "status"});
  const filter = h("input", {type: "search", placeholder: "Filter: exchange, queue, key", "aria-label": "Filter exchanges", size: 26, spellcheck: "false", autocomplete: "off"});
  let exchanges = [];

  function rowsOf(entry) {
    const {exchange, type, options, bindings, messages, ...counts} = entry;
    const losses = lost(counts).flatMap(([label, value], at) => [at ? ", " : "", `${label}: `, value]);
    const pairs = Object.entries(options).map(([name, value]) => h("code", {}, `${name}=${value} `));
    const name = [h("b", {}, exchange), " ", badge(type)];
    const admin = may("admin", exchange);
    const own = (admin || may("send", exchange)) && h("span", {class: "buttons"},
      may("send", exchange) && h("button", {class: "small", onclick: () => sendMessage({exchange}, refresh)}, "Send…"), " ",
      admin && h("button", {class: "small", onclick: () => bind({exchange}, exchanges, refresh)}, "Bind…"), " ",
      admin && h("button", {class: "small danger", onclick: () => deleteExchange(entry, refresh)}, "Delete…"));
    return (bindings.length ? bindings : [null]).map((binding, at) => ({
      words: [exchange, binding?.queue ?? "", binding?.key ?? ""],
      cells: [
        at ? "" : h("span", {}, ...name),
        at ? "" : pairs.length ? h("span", {}, pairs) : "–",
        at ? "" : short(messages),
        at ? "" : losses.length ? h("span", {}, losses) : "–",
        at ? "" : own || "",
        binding ? h("a", {href: queueAddress(binding.queue)}, binding.queue) : h("span", {class: "muted"}, "no bindings"),
        h("span", {}, binding ? conditions(binding) : "–"),
        binding && admin && may("admin", binding.queue) ? h("button", {class: "small", onclick: () => unbind(exchange, binding, refresh)}, "Unbind…") : "",
      ],
    }));
  }

  // Each exchange with the bindings that match the filter.
  function draw() {
    const wanted = filter.value.toLowerCase();
    const matches = ({words}) => words.some((word) => word.toLowerCase().includes(wanted));
    const shown = exchanges.map((exchange) => {
      const all = rowsOf(exchange);
      const matching = all.filter(matches);
      if (matching.length && matching[0] !== all[0]) matching[0].cells.splice(0, NAMING, ...all[0].cells.slice(0, NAMING));
      return matching;
    }).filter((rows) => rows.length);
    const rows = shown.flat();
    text(total, shown.length === exchanges.length ? count(shown.length) : `${count(shown.length)} of ${count(exchanges.length)}`);
    replace(list, table([["Exchange"], ["Options", "narrow-1"], ["Messages", "number"], ["Refused and dropped", "narrow-2"], ["", "number"], ["Bound queue"], ["Key and condition"], ["", "number"]],
      rows.slice(0, MOST_ROWS).map(({cells}) => cells),
      exchanges.length ? "No exchange or binding matches." : "No exchanges."));
    if (rows.length > MOST_ROWS) list.append(h("p", {class: "empty"}, `${count(rows.length - MOST_ROWS)} more bindings: filter to see them.`));
  }

  filter.addEventListener("input", draw);
  replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Exchanges"), total,
    h("span", {class: "spring"}), maySomewhere("admin") && h("button", {class: "small", onclick: () => declareExchange(refresh)}, "Declare…"), filter), list));
  const refresh = poll.every(POLL_S, async (signal) => {
    ({exchanges} = await call("exchange.list", {}, signal));
    draw();
  });
  return {title: "Exchanges", refresh};
}

// The key of a binding, and its other conditions.
export function conditions({key, arguments: values = {}, selector, noLocal, name}) {
  const terms = [
    key,
    ...Object.entries(values).map(([name, value]) => `${name}=${value}`),
    selector && `selector ${selector}`,
    noLocal && `not from ${noLocal}`,
    name && `named ${name}`,
  ].filter(Boolean);
  return terms.length ? terms.flatMap((term, at) => [at ? ", " : "", h("code", {}, term)]) : "–";
}
