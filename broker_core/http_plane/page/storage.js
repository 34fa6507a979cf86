// Disk, journal, archive, copy.

import {call} from "./api.js";
import {badge, facts, h, panel, replace, table} from "./dom.js";
import {bytes, count, plural, span, time} from "./format.js";
import {meter} from "./plot.js";

const POLL_S = 5;

export function show(root, poll) {
  const [disk, journal, archive, copy] = [0, 1, 2, 3].map(() => h("div", {class: "body"}));
  const [needs, tables] = [h("div", {}), h("div", {})];
  const link = (queue) => h("a", {href: `#/queues/${encodeURIComponent(queue)}`}, queue);
  replace(root,
    h("div", {class: "grid"}, panel("Broker and disk", disk), panel("Journal", journal)),
    panel("Queues that need most of the journal", needs),
    h("div", {class: "grid"}, panel("Archive", archive), panel("Copy", copy)),
    panel("Archive by queue", tables));

  const refresh = poll.every(POLL_S, async (signal) => {
    const [status, log, recorded] = await Promise.all([call("broker.status", {}, signal), call("broker.journal", {}, signal), call("archive.status", {}, signal)]);
    replace(disk, facts([
      ["version", status.version],
      ["started", `${time(status.startedAt)}, ${span(status.uptimeSeconds)} ago`],
      ["listens on", status.listeners.join(", ")],
      status.directory && ["directory", h("code", {}, status.directory)],
      ["free on the disk", bytes(status.freeBytes)],
      ["journal", bytes(status.journalBytes)],
    ]), meter(status.journalBytes / (status.journalBytes + status.freeBytes)));
    const {oldest} = log;
    replace(journal, facts([
      ["size", `${bytes(log.bytes)}, at most ${bytes(log.mostBytes)}`],
      ["needed", bytes(log.neededBytes)],
      log.heldBytes > 0 && ["held by readers", bytes(log.heldBytes)],
      ["segments", count(log.segments.length)],
      ["oldest needed", !oldest ? "nothing" : oldest.queue === undefined ? `position ${count(oldest.position)}`
        : h("span", {}, oldest.stage ? `stage ${oldest.stage} of ` : `message ${count(oldest.sequence)} (${oldest.state}) of `, link(oldest.queue), oldest.time ? `, since ${time(oldest.time)}` : "")],
    ]), meter(log.mostBytes ? log.bytes / log.mostBytes : 0));
    replace(needs, table([["Queue"], ["Needed", "number"], ["Share of the journal", "number"]],
      log.queues.map((user) => [link(user.queue), bytes(user.neededBytes), log.bytes ? `${((100 * user.neededBytes) / log.bytes).toFixed(1)} %` : "–"]), "No queue needs the journal."));
    const off = recorded.archive === "off";
    replace(archive, off ? h("p", {class: "muted"}, "Off: retention removes settled messages.") : facts([
      ["location", h("code", {}, recorded.archive)],
      ["waiting for recording", `${plural(recorded.unrecorded, "message")}, ${bytes(recorded.unrecordedBytes)}`],
      ["behind", h("span", {}, span(recorded.lag), " ", recorded.behind && badge("behind", "warn"))],
      ["recorded", `${plural(recorded.recorded, "message")} in ${plural(recorded.passes, "recording")}`],
      ["kept for", recorded.retention ? span(recorded.retention) : "unlimited"],
      recorded.diskFullIn !== null && recorded.diskFullIn !== undefined && ["disk full in", span(recorded.diskFullIn)],
    ]));
    const copied = status.copy;
    replace(copy, !copied ? h("p", {class: "muted"}, "No copy is configured.") : facts([
      ["location", h("code", {}, copied.url)],
      ["state", h("span", {}, copied.state, " ", copied.error && badge("failing", "bad"))],
      ["behind", `${span(copied.lagSeconds)}, ${bytes(copied.lagBytes)}`],
      copied.error && ["error", h("span", {class: "bad"}, copied.error)],
    ]));
    replace(tables, off ? h("p", {class: "empty"}, "The archive is off.") : table([["Queue"], ["Waiting messages", "number"], ["Waiting size", "number"], ["Behind", "number"], ["Error"]],
      recorded.queues.map((queue) => [link(queue.queue), count(queue.unrecorded ?? 0), bytes(queue.unrecordedBytes ?? 0), span(queue.lag ?? 0), queue.error ?? "–"]), "Everything is recorded."));
  });
  return {title: "Storage", refresh};
}
