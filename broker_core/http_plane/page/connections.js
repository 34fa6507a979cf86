// Connections, their sessions and links.

import {call, may, session} from "./api.js";
import {ask, field} from "./dialog.js";
import {badge, h, replace, table, text} from "./dom.js";
import {count, plural, rate, span} from "./format.js";

const POLL_S = 3;
const MOST_ROWS = 300; // drawn; the filter finds the others
const GROUPS = 5; // shown of the groups that a link or a lease holds
const LISTED = 100; // groups in an answer of the broker

export function groups(names) {
  if (names.length <= GROUPS) return names.join(", ") || "–";
  const more = `and ${names.length < LISTED ? "" : "at least "}${count(names.length - GROUPS)} more`;
  return h("span", {title: names.join("\n")}, names.slice(0, GROUPS).join(", "), " ", h("span", {class: "muted"}, more));
}

// Cells of a consumer or browser in a table of links, and their headings.
export const ACTIVITY = [["Selector", "selector"], ["Priority", "number"], ["Sent/s", "number"], ["Settled/s", "number"], ["Last settled", "number"]];

export function activity(link) {
  const settled = link.lastSettled === null ? "–" : `${span(Math.max(0, Date.now() / 1000 - link.lastSettled / 1e6))} ago`;
  const rates = [link.sentPerSecond, link.settledPerSecond].map((perSecond) => rate(perSecond));
  return [h("code", {title: link.selector}, link.selector ?? "–"), link.priority === null ? "–" : String(link.priority), ...rates, settled];
}

export function show(root, poll, chosen = null) {
  const list = h("div", {});
  const total = h("span", {class: "muted small", role: "status"});
  const filter = h("input", {type: "search", placeholder: "Filter: user, peer, queue", "aria-label": "Filter connections", size: 26, spellcheck: "false"});
  const opened = new Set(chosen ? [chosen] : []);
  let connections = [];

  function matches(connection) {
    const wanted = filter.value.toLowerCase();
    const words = [connection.id, connection.user, connection.peer, connection.container, ...connection.links.map((link) => link.queue)];
    return words.some((word) => word.toLowerCase().includes(wanted));
  }

  function draw() {
    const shown = connections.filter(matches);
    text(total, shown.length === connections.length ? count(shown.length) : `${count(shown.length)} of ${count(connections.length)}`);
    const focused = document.activeElement?.dataset.key;
    replace(list, table(
      [["Peer"], ["User"], ["Protocol", "narrow-2"], ["Container", "narrow-1"], ["Since", "number narrow-2"], ["Links", "number narrow-2"], ["Credit, msg", "number narrow-1"], ["Unsettled, msg", "number"], ["State"], ["", "number"]],
      shown.slice(0, MOST_ROWS).flatMap(row),
      connections.length ? "No connection matches." : "No clients are connected.",
    ));
    if (shown.length > MOST_ROWS) list.append(h("p", {class: "empty"}, `${count(shown.length - MOST_ROWS)} more: filter to see them.`));
    if (focused) list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function row(connection) {
    const {id, links} = connection;
    const open = opened.has(id);
    const sum = (key) => links.reduce((total, link) => total + link[key], 0);
    const toggle = h("button", {class: "plain", "aria-expanded": String(open), onclick: () => { open ? opened.delete(id) : opened.add(id); draw(); }}, connection.peer);
    toggle.dataset.key = `open ${id}`;
    const close = h("button", {class: "small danger", onclick: () => closing(connection)}, "Close…");
    close.dataset.key = `close ${id}`;
    const mine = session.user === connection.user || may("admin");
    const cells = h("tr", {},
      h("td", {class: "mono"}, toggle),
      h("td", {}, connection.user),
      h("td", {class: "narrow-2"}, `${connection.protocol}${connection.tls ? " + TLS" : ""}`),
      h("td", {class: "cut narrow-1"}, connection.container || "–"),
      h("td", {class: "number narrow-2"}, span(Date.now() / 1000 - connection.since / 1e6)),
      h("td", {class: "number narrow-2"}, count(connection.linkCount)),
      h("td", {class: "number narrow-1"}, count(sum("credit"))),
      h("td", {class: "number"}, count(sum("unsettled"))),
      h("td", {}, connection.stalled ? badge("stalled", "bad", "The client does not read from its socket") : connection.slow ? badge("slow", "warn", "A consumer settles no messages and has no credit left, while messages wait") : badge("ok", "good")),
      h("td", {class: "number"}, mine && close));
    if (!open) return [cells];
    const roles = links.map((link) => [
      link.role,
      link.queue ? h("a", {href: `#/queues/${encodeURIComponent(link.queue)}`}, link.queue) : "–",
      link.name,
      count(link.credit),
      count(link.unsettled),
      link.slow ? badge(`slow: ${span(link.heldSeconds)}`, "warn") : link.unsettled && link.heldSeconds !== null ? span(link.heldSeconds) : "–",
      ...activity(link),
      groups(link.groups),
    ]);
    const calls = connection.calls?.length ? h("p", {class: "muted"}, `Running calls: ${connection.calls.join(", ")}.`) : null;
    return [cells, h("tr", {class: "detail"}, h("td", {colspan: 10},
      h("p", {class: "muted small"}, `${id}, ${plural(connection.sessions, "session")}, container ${connection.container || "without a name"}`), calls ?? "",
      table([["Role"], ["Queue"], ["Link"], ["Credit, msg", "number"], ["Unsettled, msg", "number"], ["Oldest unsettled", "number"], ...ACTIVITY, ["Groups held", "groups"]], roles, connection.protocol === "flight" ? "Flight connections have calls instead of links." : "No links.")))];
  }

  function closing(connection) {
    const held = connection.links.reduce((total, link) => total + (link.role === "consumer" ? link.unsettled : 0), 0);
    const reason = h("input", {name: "reason", maxlength: 200, placeholder: "closed by an operator"});
    ask({
      title: `Close the connection of ${connection.user} from ${connection.peer}?`,
      content: [
        h("p", {}, `It has ${plural(connection.linkCount, "link")}. ${plural(held, "message")} that it holds return to their queues and may be delivered again. A client that reconnects will come back.`),
        connection.protocol === "amqp" ? field("Reason for the client", reason) : "",
      ],
      label: "Close it",
      danger: true,
      act: async () => {
        const {closed} = await call("connection.close", {id: connection.id, reason: reason.value || null});
        refresh();
        return closed ? `The connection from ${connection.peer} is closed.` : "The connection was closed already.";
      },
    });
  }

  filter.addEventListener("input", draw);
  replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Connections"), total, h("span", {class: "spring"}), filter), list));
  const refresh = poll.every(POLL_S, async (signal) => {
    ({connections} = await call("connection.list", {}, signal));
    draw();
  });
  return {title: "Connections", refresh};
}
