// The audit log: changes of the broker and their users.

import {call, may} from "./api.js";
import {badge, h, panel, replace, table, text} from "./dom.js";
import {count} from "./format.js";

const POLL_S = 5;
const MOST = 200; // entries that the view shows
const LATEST = 10; // entries at a queue
const BADGES = {done: "good", refused: "bad", failed: "warn"};

const COLUMNS = [["Time (UTC)", "time moment"], ["User", "wraps"], ["Action", "wraps"], ["Object", "wraps"], ["Messages", "number narrow-2"], ["Outcome"], ["Door", "narrow-1"], ["Peer", "mono narrow-2"], ["Details", "event narrow-1"]];

function row(entry) {
  const details = Object.entries(entry.details).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [
    entry.time.replace("T", " ").slice(0, 19),
    entry.user || "–",
    entry.action,
    entry.object,
    entry.count === null ? "" : count(entry.count),
    badge(entry.outcome, BADGES[entry.outcome] ?? ""),
    entry.door || "–",
    entry.peer || "–",
    [entry.error, ...details].filter(Boolean).join(", "),
  ];
}

// The panel of a queue's page. `refresh` reads the latest actions on the queue.
export function latest(queue) {
  const list = h("div", {});
  const element = panel("Latest actions", list);
  async function refresh(signal) {
    const {entries} = await call("audit.list", {queue, count: LATEST}, signal);
    replace(list, table(COLUMNS, entries.map(row), "No action changed this queue."));
  }
  return {element, refresh};
}

export function show(root, poll) {
  const error = h("p", {class: "bad", role: "alert"});
  const list = h("div", {});
  const inputs = Object.fromEntries([["user", "User"], ["queue", "Queue"], ["action", "Action: purge"], ["since", "Since: -2h"]].map(([name, label]) => [
    name, h("input", {type: "search", placeholder: label, "aria-label": label, size: 14, spellcheck: "false", autocomplete: "off", autocapitalize: "none"}),
  ]));
  const outcome = h("select", {"aria-label": "Outcome"}, ["any outcome", ...Object.keys(BADGES)].map((name, at) => h("option", {value: at ? name : ""}, name)));
  const fields = () => Object.fromEntries([...Object.entries(inputs), ["outcome", outcome]].map(([name, input]) => [name, input.value.trim() || null]));
  if (!may("admin")) {
    replace(root, panel("Audit", h("p", {class: "empty"}, "To read the audit log you need the right admin on everything. A queue's page shows its latest actions to its administrators.")));
    return {title: "Audit", refresh: () => {}};
  }
  const form = h("form", {class: "head search", onsubmit: (event) => { event.preventDefault(); refresh(); }}, Object.values(inputs), outcome, h("button", {class: "primary"}, "Show"));
  replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Audit"), h("span", {class: "spring"}), form), error, list));
  const refresh = poll.every(POLL_S, async (signal) => {
    try {
      const {entries} = await call("audit.list", {...fields(), count: MOST}, signal);
      text(error, "");
      replace(list, table(COLUMNS, entries.map(row), "No such entries."));
    } catch (problem) {
      if (problem.status !== 400) throw problem;
      text(error, problem.message);
    }
  });
  return {title: "Audit", refresh};
}
