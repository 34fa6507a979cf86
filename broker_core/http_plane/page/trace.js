// The history of a message: the places where it is and was, and its events in order of time.

import {call, maySomewhere} from "./api.js";
import {facts, h, panel, replace, table} from "./dom.js";
import {count} from "./format.js";

const WAYS = [["id", "Id", "Message id or correlation id"], ["where", "Selector", "customer = 'ACME'"]];
const SEPARATOR = "=";

// The address of the search for an id or, with `way` "where", for a selector.
export const address = (wanted, way = "id") => `#/trace/${encodeURIComponent(`${way}${SEPARATOR}${wanted}`)}`;

// `asked`: the part of the address behind the view's name.
export function show(root, poll, asked = "") {
  const at = asked.indexOf(SEPARATOR);
  const known = WAYS.find(([name]) => name === asked.slice(0, at)) ?? WAYS[0];
  const wanted = asked.slice(at + 1);
  const way = h("select", {"aria-label": "Search by"}, WAYS.map(([name, label]) => h("option", {value: name, selected: name === known[0]}, label)));
  const text = h("input", {type: "search", value: wanted, placeholder: known[2], "aria-label": "Message", size: 32, required: true, spellcheck: "false", autocomplete: "off"});
  const error = h("p", {class: "bad", role: "alert"});
  const status = h("p", {class: "muted", role: "status"});
  const list = h("div", {});
  const more = h("button", {class: "small", hidden: true, onclick: () => search(following)}, "Continue the search");
  let following = null;
  let shown = 0;

  function submit(event) {
    event.preventDefault();
    const next = address(text.value.trim(), way.value);
    if (next === location.hash) search(null);
    else location.hash = next;
  }

  async function search(resume) {
    if (resume === null) {
      replace(list);
      shown = 0;
    }
    error.textContent = "";
    status.textContent = "Searching…";
    more.hidden = true;
    try {
      const answer = await call("message.trace", {[known[0] === "id" ? "id" : "selector"]: wanted, resume}, poll.signal);
      list.append(...answer.messages.map(history));
      shown += answer.messages.length;
      following = answer.next;
      more.hidden = following === null;
      const hints = (answer.hints ?? []).map((hint) => ` Note: ${hint}.`).join("");
      if (!shown && following === null) replace(list, h("p", {class: "empty"}, "No message in the queues and in their archive."));
      status.textContent = `${count(shown)} found.${following === null ? "" : ` Searched up to queue ${following.queue}.`}${hints}`;
    } catch (problem) {
      if (problem.name === "AbortError") return;
      status.textContent = "";
      error.textContent = problem.message;
    }
  }

  const form = h("form", {class: "head search", onsubmit: submit}, way, text, h("button", {class: "primary"}, "Trace"));
  way.addEventListener("change", () => { text.placeholder = WAYS.find(([name]) => name === way.value)[2]; });
  if (!maySomewhere("browse")) {
    replace(root, panel("Trace", h("p", {class: "empty"}, "To trace messages you need the right browse on a queue.")));
  } else {
    replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Trace"), h("span", {class: "spring"}), form), h("div", {class: "body"}, error, status)), list, h("p", {}, more));
    if (wanted) search(null);
  }
  return {title: wanted ? `Trace ${wanted}` : "Trace", refresh: () => wanted && search(null)};
}

function history(message) {
  const ids = [["Correlation id", message.correlationId], ["Subject", message.subject]].filter(([, value]) => value !== undefined);
  const rows = message.events.map((event) => [
    event.time === null ? "–" : event.time.replace("T", " ").slice(0, 23),
    event.text,
    event.deleted ? `${event.queue} (deleted)` : h("a", {href: `#/queues/${encodeURIComponent(event.queue)}`}, event.queue),
  ]);
  return panel(
    message.messageId === undefined ? "Message without an id" : h("code", {}, message.messageId),
    h("div", {class: "body"}, facts([["Now", h("b", {}, message.where)], ...ids.map(([name, value]) => [name, h("code", {}, value)])])),
    table([["Time (UTC)", "time moment"], ["Event", "event"], ["Queue", "time narrow-1"]], rows, "No events."),
  );
}
