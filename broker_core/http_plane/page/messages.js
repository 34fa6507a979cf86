// Messages of a queue. Viewing them does not change them.

import {call, may} from "./api.js";
import {discardMessage, editMessage, sendMessage, shiftMessages} from "./editing.js";
import {badge, facts, h, replace, table, text} from "./dom.js";
import {bytes, count} from "./format.js";
import {address} from "./trace.js";

const PAGE = 50;
const PREVIEW = 120; // characters of a body in the list

// `redrive({sequences, selector})` asks and redrives. `waiting()` counts messages without a holder. `changed()` is called after
// a change. Returns {element, reload, selector}.
export function messages(queue, poll, {redrive, waiting, changed}) {
  const states = h("select", {"aria-label": "Which messages"},
    h("option", {value: "available"}, "Ready"), h("option", {value: "acquired"}, "Held"), h("option", {value: "delayed"}, "Delayed"), h("option", {value: "deferred"}, "Deferred"),
    may("replay", queue) && h("option", {value: "archived"}, "Settled"));
  const selector = h("input", {placeholder: "Selector: JMSPriority > 4 AND region = 'eu'", "aria-label": "Selector", size: 38, spellcheck: "false", autocomplete: "off"});
  const times = ["since", "until"].map((name) => h("input", {placeholder: name === "since" ? "Since: -2h, yesterday" : "Until: 2026-11-25T10:00", title: "Time of arrival in UTC, or with a zone", "aria-label": `Arrived ${name}, in UTC or with a zone`, size: 20, spellcheck: "false", autocomplete: "off"}));
  const list = h("div", {});
  const error = h("p", {class: "bad", role: "alert"});
  const hint = h("p", {class: "muted", role: "status"});
  const more = h("button", {class: "small", hidden: true}, "More");
  const some = h("button", {class: "small", hidden: true, onclick: () => redrive({sequences: dead()})});
  const matching = h("button", {class: "small", hidden: true, onclick: () => redrive({selector: asked})}, "Redrive all that match…");
  const admin = may("admin", queue);
  const shifts = admin && may("receive", queue);
  const again = () => {
    changed();
    if (allowed) read(0);
  };
  const all = shifts ? ["move", "copy"].map((verb) => h("button", {class: "small", onclick: () => shiftMessages(queue, verb, null, waiting(), again)}, verb === "move" ? "Move all…" : "Copy all…")) : [];
  const send = may("send", queue) && h("button", {class: "small", onclick: () => sendMessage({queue}, again)}, "Send…");
  const allowed = may("browse", queue) || may("replay", queue);
  let rows = [];
  let following = 0;
  let latest = 0;
  let asked = ""; // the selector of the shown messages
  let timed = false; // whether the shown messages are of a range of times

  async function read(first) {
    const turn = ++latest;
    const wanted = selector.value.trim();
    const [since, until] = times.map((input) => input.value.trim() || null);
    error.textContent = hint.textContent = "";
    try {
      const page = await call("queue.messages", {queue, states: [states.value], first, count: PAGE, selector: wanted || null, since, until}, poll.signal);
      if (turn !== latest) return;
      asked = wanted;
      timed = Boolean(since || until);
      rows = first ? [...rows, ...page.messages] : page.messages;
      following = page.next;
      hint.textContent = (page.hints ?? []).map((hint) => `Note: ${hint}.`).join(" ");
      draw();
    } catch (problem) {
      if (problem.name !== "AbortError" && turn === latest) error.textContent = problem.message;
    }
  }

  const reasonOf = (message) => message.annotations?.["x-opt-death-reason"];
  const errorOf = (message) => message.annotations?.["x-opt-death-error"] ?? message.error;
  const dead = () => rows.filter(reasonOf).map((message) => message.sequenceNumber);

  function draw() {
    more.hidden = following === null;
    some.hidden = !dead().length || !admin;
    matching.hidden = some.hidden || !asked || timed; // a redrive has no times
    text(some, `Redrive these ${count(dead().length)}…`);
    const delayed = rows.some((message) => message.due !== undefined);
    const failed = rows.some((message) => reasonOf(message) || errorOf(message));
    const headings = [
      ["Sequence", "number"], ["Arrived (UTC)", "time narrow-2"], delayed && ["Due (UTC)", "time"], ["Attempts", "number narrow-2"], ["Subject", "narrow-2"],
      failed && ["Error", "preview"], ["Body", "preview"], ["", "number"],
    ].filter(Boolean);
    replace(list, table(headings, rows.flatMap((message) => row(message, headings.length, {delayed, failed})), asked || timed ? "No message matches." : "No messages in this state."));
  }

  function row(message, columns, {delayed, failed}) {
    const open = h("button", {class: "small", "aria-expanded": "false", "aria-label": `Show message ${message.sequenceNumber}`}, "Show");
    const reason = reasonOf(message);
    const body = shown(message.body);
    const cells = h("tr", {},
      h("td", {class: "number"}, count(message.sequenceNumber)),
      h("td", {class: "time muted narrow-2"}, moment(message.enqueuedTime)),
      delayed && h("td", {class: "time"}, message.due === undefined ? "–" : moment(message.due)),
      h("td", {class: "number narrow-2"}, count(message.deliveryCount ?? 0)),
      h("td", {class: "narrow-2 subject", title: message.subject}, message.subject ?? ""),
      failed && h("td", {class: "preview", title: errorOf(message)}, reason && [badge(reason, "bad"), " "], errorOf(message) ?? (reason ? "" : "–")),
      h("td", {class: "preview"}, h("code", {}, body.slice(0, PREVIEW)), body.length > PREVIEW || message.cut.includes("body") ? "…" : ""),
      h("td", {class: "number"}, open));
    const detail = h("tr", {class: "detail", hidden: true}, h("td", {colspan: columns}));
    open.addEventListener("click", () => {
      detail.hidden = !detail.hidden;
      open.setAttribute("aria-expanded", String(!detail.hidden));
      open.textContent = detail.hidden ? "Show" : "Hide";
      if (!detail.hidden) replace(detail.firstChild, whole(message, reason));
    });
    return [cells, detail];
  }

  function whole(message, reason) {
    const plain = Object.entries(message).filter(([key]) => !["body", "bodyBytes", "cut", "properties", "annotations"].includes(key));
    const maps = ["properties", "annotations"].flatMap((key) => Object.entries(message[key] ?? {}).map(([name, value]) => [`${key}.${name}`, value]));
    const body = h("pre", {tabindex: "0", "aria-label": "Body"}, shown(message.body));
    return [
      facts([...plain, ...maps].map(([key, value]) => [key, h("code", {}, String(value))])),
      h("p", {class: "muted small"}, `Body: ${bytes(message.bodyBytes)}${message.body?.base64 === undefined ? "" : ", as base64"}${message.cut.length ? `. Shortened: ${message.cut.join(", ")}` : ""}`),
      body,
      h("p", {class: "actions"},
        message.messageId !== undefined && h("a", {href: address(message.messageId)}, "Trace this message"),
        reason !== undefined && admin && h("button", {class: "small", onclick: () => redrive({sequences: [message.sequenceNumber]})}, "Redrive this message…"),
        actionsOn(message, reason)),
    ].filter(Boolean);
  }

  function actionsOn(message, reason) {
    const waits = ["available", "delayed", "deferred"].includes(message.state);
    const hasStayed = message.outcome === "dead-lettered" && reason !== undefined; // in its own queue
    const shift = (verb, label) => h("button", {class: "small", onclick: () => shiftMessages(queue, verb, message.sequenceNumber, 1, again)}, label);
    return [
      (waits || hasStayed) && shifts && h("button", {class: "small", onclick: () => editMessage(queue, message, again)}, "Edit and resend…"),
      ...(waits && shifts ? [shift("move", "Move…"), shift("copy", "Copy…")] : []),
      admin && message.state !== "archived" && h("button", {class: "small danger", onclick: () => discardMessage(queue, message, again)}, "Discard…"),
    ];
  }

  more.addEventListener("click", () => read(following));
  states.addEventListener("change", () => read(0));
  const form = h("form", {class: "head", onsubmit: (event) => { event.preventDefault(); read(0); }}, states, selector, ...times, h("button", {}, "Find"));
  form.style.margin = "0";
  const title = h("div", {class: "title"}, h("h2", {}, "Messages"), send, h("span", {class: "spring"}), allowed && form);
  const element = h("section", {class: "panel messages"}, title, allowed ? [error, hint, list, h("div", {class: "head body"}, more, some, matching, all)] : h("p", {class: "empty"}, "To look at messages you need the right browse on this queue."));
  if (allowed) {
    error.style.margin = hint.style.margin = "0 12px";
    read(0);
  }
  return {element, reload: () => allowed && read(0), selector: () => asked};
}

const moment = (time) => time.replace("T", " ").slice(0, 19);

function shown(body) {
  return body?.text ?? body?.base64 ?? "";
}
