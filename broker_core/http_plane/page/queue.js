// One queue: options, users, oldest payload, messages and actions.

import {call, history, may} from "./api.js";
import {latest} from "./audit.js";
import {ACTIVITY, activity, groups} from "./connections.js";
import {alterQueue, bind, deleteQueue, unbind} from "./declarations.js";
import {ask, field, note} from "./dialog.js";
import {badge, facts, h, panel, replace, table, text} from "./dom.js";
import {conditions} from "./exchanges.js";
import {explanation} from "./explain.js";
import {bytes, count, filled, plural, rate, short, span, time} from "./format.js";
import {messages} from "./messages.js";
import {Chart, SAMPLES} from "./plot.js";
import {look, unheld} from "./rates.js";

const POLL_S = 2;
const SELDOM_S = 10;
const UNITS = {Ready: "msg", Held: "msg", Delayed: "msg", Deferred: "msg", "Dead letters": "msg", Oldest: null, Size: null, In: "msg/s", Out: "msg/s", Acknowledged: "msg/s"};

// Messages that were sent to a queue or exchange and are in no queue, by reason.
export function lost({refusedMessages, droppedMessages}) {
  const rows = [["refused when sent", refusedMessages], ["dropped", droppedMessages]].filter(([, counts]) => Object.keys(counts).length);
  return rows.map(([label, counts]) => [label, h("span", {class: "bad"}, Object.entries(counts).map(([reason, n]) => `${reason}: ${plural(n, "message")}`).join(", "))]);
}

export function show(root, poll, name) {
  const admin = may("admin", name);
  let stat = null;
  let exchanges = [];

  const badges = h("span", {});
  const buttons = h("span", {class: "head buttons"});
  const problem = h("p", {class: "empty", hidden: true});
  const stats = Object.fromEntries(Object.keys(UNITS).map((field) => [field, h("dd", {}, "–")]));
  const depth = new Chart(`Messages in ${name}, last hour`, ["Depth, msg"], short);
  const rates = new Chart(`Messages per second through ${name}, last hour`, ["In, msg/s", "Out, msg/s", "Acknowledged, msg/s"], rate);
  const about = h("div", {class: "body"});
  const pins = h("div", {class: "body"});
  const dead = h("div", {});
  const died = panel("Dead letters by reason and error", dead);
  died.hidden = true;
  const users = h("div", {});
  const bindings = h("div", {});
  const leases = h("div", {});
  const actions = latest(name);
  const waiting = explanation(name);
  const looked = messages(name, poll, {redrive, waiting: () => (stat ? unheld(stat) : 0), changed: () => reread()});

  const pause = h("button", {onclick: togglePause}, "Pause");
  if (admin) {
    buttons.append(
      pause,
      h("button", {onclick: alter}, "Alter…"),
      h("button", {onclick: () => bind({queue: name}, exchanges, reread)}, "Bind…"),
      h("button", {onclick: () => redrive()}, "Redrive…"),
      h("button", {class: "danger", onclick: purge}, "Purge…"),
      h("button", {class: "danger", onclick: remove}, "Delete…"),
    );
  } else buttons.append(badge("read only", "", "Changes need the right admin on this queue"));

  const all = h("div", {},
    h("section", {class: "panel"}, h("dl", {class: "stats"}, Object.entries(UNITS).map(([field, unit]) => h("div", {}, h("dt", {"data-unit": unit}, field), stats[field])))),
    h("div", {class: "grid"}, panel(["Depth", depth.legend], h("div", {class: "body"}, depth.element)), panel(["Rates", rates.legend], h("div", {class: "body"}, rates.element))),
    died,
    admin && waiting.element,
    looked.element,
    h("div", {class: "grid"}, panel("Options", about), panel("Oldest payload in the journal", pins)),
    panel("Consumers and producers", users),
    panel("Leases", leases),
    panel("Bindings", bindings),
    admin && actions.element,
  );
  replace(root, h("div", {class: "head"}, h("h1", {}, name), badges, h("span", {class: "spring"}), buttons), problem, all);

  async function numbers(signal) {
    const counts = await look(signal);
    const at = counts.names.indexOf(name);
    if (at < 0) return;
    const of = (column) => counts.of(column)[at];
    text(stats.Ready, short(of("available")));
    text(stats.Held, short(of("acquired")));
    text(stats.Delayed, short(of("delayed")));
    text(stats.Deferred, short(of("deferred")));
    stats.Deferred.parentElement.hidden = !of("deferred"); // most queues never have any
    text(stats["Dead letters"], short(of("deadLetters")));
    stats["Dead letters"].classList.toggle("bad", of("deadLetters") > 0);
    text(stats.Oldest, of("oldest") ? span((counts.time - of("oldest")) / 1e6) : "–");
    text(stats.Size, bytes(of("bytes")));
    text(stats.In, rate(counts.rate("enqueued")[at]));
    text(stats.Out, rate(counts.rate("delivered")[at]));
    text(stats.Acknowledged, rate(counts.rate("acknowledged")[at]));
  }

  async function plots(signal) {
    const series = await history([name], signal);
    const mine = series.queues[name];
    if (!mine) return;
    depth.show([mine.depth], SAMPLES, series.period);
    rates.show([mine.enqueued, mine.delivered, mine.acknowledged].map((values) => values.map((value) => value / series.period)), SAMPLES, series.period);
  }

  async function describe(signal) {
    try {
      stat = await call("queue.stat", {queue: name}, signal);
    } catch (error) {
      if (![403, 404].includes(error.status)) throw error;
      problem.hidden = false;
      all.hidden = buttons.hidden = true;
      text(problem, error.message);
      return;
    }
    problem.hidden = true;
    all.hidden = buttons.hidden = false;
    text(pause, stat.paused ? "Resume" : "Pause");
    replace(badges, badge(stat.type), " ", stat.paused && badge("paused", "warn"), stat.fill !== null && badge(filled(1000 * stat.fill), stat.fill < 1 ? "" : "bad", "The used part of the queue's limits"), stat.damaged.length > 0 && badge("damaged messages", "bad", stat.damaged.join("\n")));
    const options = Object.entries(stat.options).map(([key, value]) => [key, h("code", {}, String(value))]);
    replace(about, facts([
      ["type", stat.type],
      ...options,
      ["next sequence", count(stat.nextSequence)],
      ["settled", `${count(stat.archived)} messages`],
      stat.staged > 0 && ["staged", `${plural(stat.staged, "message")}, ${bytes(stat.stagedBytes)}, waiting for a publish or commit`],
      stat.unread > 0 && ["returned unread", count(stat.unread)],
      ...lost(stat),
      stat.refused > 0 && ["refused by all consumers", plural(stat.refused, "message")],
      stat.malformed > 0 && ["malformed", plural(stat.malformed, "message")],
      stat.archive && ["archive table", h("code", {}, stat.archive.table)],
      stat.archive && ["not recorded yet", `${plural(stat.unrecorded, "message")}, ${bytes(stat.unrecordedBytes)}, for ${span(stat.archive.lag)}`],
      stat.archive?.error && ["archive error", h("span", {class: "bad"}, stat.archive.error)],
    ]));
    const {oldest} = stat;
    replace(pins, oldest
      ? facts([
        ["message", oldest.sequence === undefined ? `stage ${oldest.stage}` : count(oldest.sequence)],
        ["state", oldest.state ?? "staged"],
        oldest.holder && ["held by", oldest.holder],
        oldest.time && ["arrived", time(oldest.time)],
        ["log position", count(oldest.position)],
        ["effect", "The journal keeps this payload until the message is settled."],
      ])
      : h("p", {class: "muted"}, "Every message of this queue is settled."));
    const dying = Object.keys(stat.deadLetters).length > 0;
    died.hidden = !dying;
    const {groups: deaths, others} = dying && may("browse", name) ? await call("queue.deadLetters", {queue: name}, signal)
      : {groups: Object.entries(stat.deadLetters).map(([reason, messages]) => ({reason, error: null, messages})), others: 0};
    replace(dead, table([["Reason", "time"], ["Error", "event"], ["Messages", "number"], ["", "number"]], deaths.map((group) => [
      h("span", {title: REASONS[group.reason]}, group.reason, h("span", {class: "muted narrow-2"}, ` – ${REASONS[group.reason] ?? ""}`)),
      group.error || "–",
      count(group.messages),
      admin ? h("button", {class: "small", "aria-label": `Redrive ${group.reason}: ${group.error ?? ""}`, onclick: () => redrive({group})}, "Redrive…") : "",
    ]), "No dead letters in this queue."));
    if (others) dead.append(h("p", {class: "empty"}, `${plural(others, "dead letter")} with other errors.`));
  }

  async function who(signal) {
    const [{connections}, held, listing] = await Promise.all([call("connection.list", {}, signal), call("lease.list", {}, signal), call("exchange.list", {}, signal)]);
    ({exchanges} = listing);
    const bound = exchanges.flatMap((entry) => entry.bindings.filter((binding) => binding.queue === name).map((binding) => [
      h("a", {href: "#/exchanges"}, entry.exchange), " ", badge(entry.type), h("span", {}, conditions(binding)),
      admin && may("admin", entry.exchange) ? h("button", {class: "small", onclick: () => unbind(entry.exchange, binding, reread)}, "Unbind…") : "",
    ]).map(([link, space, type, terms, button]) => [h("span", {}, link, space, type), terms, button]));
    replace(bindings, table([["Exchange"], ["Key and condition"], ["", "number"]], bound, "No exchange sends messages to this queue."));
    const links = connections.flatMap((connection) => connection.links.filter((link) => link.queue === name).map((link) => [
      h("a", {href: `#/connections/${encodeURIComponent(connection.id)}`}, connection.peer),
      connection.user,
      link.role,
      h("span", {class: "cut"}, link.name),
      count(link.credit),
      count(link.unsettled),
      link.slow ? badge("slow", "warn", "It settles no messages and has no credit left, while messages wait") : link.heldSeconds === null || !link.unsettled ? "" : span(link.heldSeconds),
      ...activity(link),
      link.role === "consumer" ? groups(link.groups) : "",
    ]));
    replace(users, table([["Peer"], ["User"], ["Role"], ["Link"], ["Credit, msg", "number"], ["Unsettled, msg", "number"], ["Held for", "number"], ...ACTIVITY, ["Groups held", "groups"]], links, "No AMQP link uses this queue."));
    const mine = held.leases.filter((lease) => lease.queue === name);
    replace(leases, table([["Lease"], ["Query"], ["State"], ["Batch", "number"], ["Messages", "number"], ["Renewed", "number"], ["Groups held", "groups"]], mine.map((lease) => [
      h("a", {href: "#/leases"}, lease.name),
      lease.query ?? "–",
      lease.stage,
      lease.batch === null ? "–" : count(lease.batch),
      count(lease.messages),
      lease.renewed === null ? "–" : `${span(lease.renewed)} ago`,
      groups(lease.groups),
    ]), "No Spark query has a lease on this queue."));
  }

  function reread() {
    again.forEach((refresh) => refresh());
  }

  async function togglePause() {
    try {
      await call(stat?.paused ? "queue.resume" : "queue.pause", {queue: name});
      note(stat?.paused ? `${name} delivers again.` : `${name} is paused: it accepts messages and delivers none.`);
    } catch (error) {
      poll.failed(error);
    }
    reread();
  }

  async function fresh() {
    try {
      return await call("queue.stat", {queue: name});
    } catch (error) {
      poll.failed(error);
      return null;
    }
  }

  async function purge() {
    const state = await fresh();
    if (!state) return;
    const n = unheld(state);
    ask({
      title: `Purge ${name}?`,
      content: [
        h("p", {}, `This ends ${plural(n, "message")} without a consumer permanently. It cannot be undone.`),
        state.acquired > 0 && h("p", {class: "muted"}, `${plural(state.acquired, "message")} held by consumers stay.`),
      ].filter(Boolean),
      label: `Purge ${plural(n, "message")}`,
      danger: true,
      act: async () => {
        const {purged} = await call("queue.purge", {queue: name});
        reread();
        return `${plural(purged, "message")} of ${name} purged.`;
      },
    });
  }

  // Redrive the messages with these sequence numbers, or a group, or the matches of the selector, or all dead letters.
  async function redrive({sequences = null, group = null, selector = group ? "" : looked.selector()} = {}) {
    const state = await fresh();
    if (!state) return;
    const all = group?.messages ?? (Object.values(state.deadLetters).reduce((sum, n) => sum + n, 0) || state.stayed);
    const number = h("input", {name: "messages", type: "number", min: 1, max: all || 1, value: all || 1, required: true});
    const choice = h("input", {name: "selector", value: selector, placeholder: "all dead letters", spellcheck: "false", autocomplete: "off"});
    const isSingle = sequences?.length === 1;
    ask({
      title: sequences ? `Redrive ${isSingle ? `message ${count(sequences[0])}` : plural(sequences.length, "message")} of ${name}?` : `Redrive dead letters of ${name}?`,
      content: [
        h("p", {}, "Each message returns to the queue where it became a dead letter, with all its attempts. Dead letters that stayed in their own queue become available at their old positions."),
        ...(sequences ? [] : [
          group && h("p", {}, "Only dead letters with the reason ", h("b", {}, group.reason), group.error ? [" with the error ", h("code", {}, group.error)] : ""),
          h("p", {class: "muted"}, all ? `There are ${plural(all, "dead letter")} here.` : "There are no dead letters here."),
          h("div", {class: "row"}, field("Maximum number, oldest first", number), may("browse", name) && field("Only matches of this selector", choice)),
        ].filter(Boolean)),
      ],
      label: sequences ? "Redrive" : "Redrive them",
      act: async () => {
        const chosen = {messages: number.valueAsNumber, selector: choice.value.trim() || null, reason: group?.reason ?? null, error: group?.error ?? null};
        const fields = sequences ? {ranges: sequences.flatMap((sequence) => [sequence, sequence])} : chosen;
        const {redriven, stayed, hints = []} = await call("queue.redrive", {queue: name, ...fields});
        reread();
        looked.reload();
        return `${plural(redriven, "message")} redriven.${stayed ? ` ${plural(stayed, "message")} could not be redriven: their original queue is full or deleted.` : ""}${hints.map((hint) => ` Note: ${hint}.`).join("")}`;
      },
    });
  }

  async function alter() {
    const state = await fresh();
    if (state) alterQueue(state, reread);
  }

  async function remove() {
    const state = await fresh();
    if (state) deleteQueue(state, exchanges.flatMap((entry) => entry.bindings).filter((binding) => binding.queue === name).length);
  }

  const again = [poll.every(SELDOM_S, describe), poll.every(POLL_S, numbers), poll.every(SELDOM_S, who)];
  if (admin) again.push(poll.every(SELDOM_S, actions.refresh), poll.every(SELDOM_S, waiting.refresh));
  poll.every(SELDOM_S, plots);
  return {title: name, refresh: reread};
}

const REASONS = {
  rejected: "Its consumer rejected it.",
  delivery_limit: "Its last allowed attempt has failed: see maxAttempts.",
  expired: "It expired before a consumer received it.",
  refused: "Every consumer of the queue refused it.",
  malformed: "No reader could decode it.",
};
