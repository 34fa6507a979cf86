// The panel of a queue's page that explains why its messages wait.

import {call} from "./api.js";
import {badge, h, panel, replace, text} from "./dom.js";
import {count, plural, span, time} from "./format.js";

function described(consumer) {
  const {connection, held, heldSeconds, kind, name, next, peer, reasons, receives, selector, user} = consumer;
  const title = connection
    ? h("a", {href: `#/connections/${encodeURIComponent(connection)}`, title: `link ${name}`}, `${peer} (${user})`)
    : kind === "lease" ? h("a", {href: "#/leases"}, `lease ${name}`) : `link ${name}`;
  const isIdle = reasons.every(({reason}) => ["empty", "no-group"].includes(reason));
  return h("li", {},
    h("div", {class: "head"},
      title,
      receives ? badge(`receives message ${count(next)} next`, "good") : badge(isIdle ? "waits for messages" : "receives nothing", isIdle ? "" : "warn"),
      held > 0 && h("span", {class: "muted small"}, `holds ${plural(held, "message")}${heldSeconds ? ` for ${span(heldSeconds)}` : ""}`)),
    selector && h("div", {class: "muted"}, "selector: ", h("code", {}, selector)),
    reasons.map((reason) => h("div", {}, reason.text)));
}

// `refresh` asks the broker for the reasons.
export function explanation(queue) {
  const list = h("div", {});
  const summary = h("span", {class: "muted small"});
  const element = panel(["Why messages wait", summary], list);
  async function refresh(signal) {
    const answer = await call("queue.explain", {queue}, signal);
    const due = answer.nextDue === null ? "" : `, the next until ${time(answer.nextDue * 1000)}`;
    text(summary, `${count(answer.available)} waiting, ${count(answer.acquired)} held, ${count(answer.delayed)} delayed${due}${answer.deferred ? `, ${count(answer.deferred)} deferred` : ""}`);
    const more = answer.consumerCount - answer.consumers.length;
    replace(list,
      answer.consumers.length ? h("ul", {class: "consumers"}, answer.consumers.map(described)) : h("p", {class: "empty"}, "The queue has no consumer."),
      more > 0 && h("p", {class: "empty"}, `${plural(more, "more consumer")} not shown.`));
  }
  return {element, refresh};
}
