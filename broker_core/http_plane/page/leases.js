// Leases of Spark queries: their batches, and the two ways to end a batch.

import {call, may} from "./api.js";
import {ask, choice} from "./dialog.js";
import {badge, h, replace, table, text} from "./dom.js";
import {count, plural, span} from "./format.js";

const POLL_S = 3;
const OLD_S = 300; // a lease with messages is marked if it was not renewed for longer

export function show(root, poll) {
  const list = h("div", {});
  const total = h("span", {class: "muted small", role: "status"});

  function row(lease) {
    const held = lease.stage !== "idle" && lease.messages > 0;
    const old = held && lease.renewed !== null && lease.renewed > OLD_S;
    return [
      h("span", {}, lease.name),
      lease.query ?? "–",
      h("code", {class: "run"}, lease.run),
      h("a", {href: `#/queues/${encodeURIComponent(lease.queue)}`}, lease.queue),
      h("span", {}, lease.stage, " ", old && badge("abandoned?", "warn", `It holds messages and was not renewed for ${span(lease.renewed)}`)),
      lease.batch === null ? "–" : count(lease.batch),
      count(lease.messages),
      lease.renewed === null ? "–" : `${span(lease.renewed)} ago`,
      lease.selector ? h("code", {}, lease.selector) : "–",
      held && may("settle", lease.queue) ? h("button", {class: "small", onclick: () => release(lease)}, "Release…") : "",
    ];
  }

  function release(lease) {
    ask({
      title: `Release the messages of ${lease.queue} that ${lease.name} holds`,
      content: [
        h("p", {}, `Batch ${count(lease.batch)} has ${plural(lease.messages, "message")}. Its query last renewed the lease ${lease.renewed === null ? "before the broker started" : `${span(lease.renewed)} ago`}.`),
        choice("how", "return", "Return them", "They are ready again, for the next consumer. Correct if the query has not written them. If it has, they are processed twice.", true),
        choice("how", "settle", "Settle them", "They count as processed. Correct if the query has written the batch and then failed. If it has not, they are lost to the query.", false),
      ],
      label: `Release ${plural(lease.messages, "message")}`,
      danger: true,
      act: async (form) => {
        const {messages} = await call("lease.release", {lease: lease.lease, how: form.get("how")});
        refresh();
        return form.get("how") === "settle" ? `${plural(messages, "message")} settled.` : `${plural(messages, "message")} returned.`;
      },
    });
  }

  replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Leases"), total), list));
  const refresh = poll.every(POLL_S, async (signal) => {
    const {leases} = await call("lease.list", {}, signal);
    text(total, count(leases.length));
    replace(list, table(
      [["Lease"], ["Query"], ["Run of the query", "narrow-1"], ["Queue"], ["State"], ["Batch", "number"], ["Messages", "number"], ["Renewed", "number"], ["Selector", "narrow-1"], ["", "number"]],
      leases.map(row),
      "No Spark query has a lease.",
    ));
  });
  return {title: "Leases", refresh};
}
