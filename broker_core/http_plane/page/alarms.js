// Alarms: the strip above every view, and the alarms of a queue for the list. An alarm links to its object.

import {h, replace} from "./dom.js";
import {plural, span} from "./format.js";

const SHOWN = 2; // alarms of the strip, until the reader asks for all: many alarms must not hide the view
const COMMAND = /`penstock ([a-z]+)[^`]*`(?: or `[^`]*`)?/;
const VIEW_OF = {connection: ["connections", "Connections"], lease: ["leases", "Leases"], journal: ["storage", "Storage"], archive: ["storage", "Storage"]};
// The view of an alarm without a queue, by the beginning of its name.
const OBJECTS = {disk: "storage", journal: "storage", archive: "storage", copy: "storage", files: "connections", slow: "connections", audit: "audit"};

let byQueue = new Map();
let all = false;

export const alarmOf = (queue) => byQueue.get(queue);
export const queueAddress = (queue) => `#/queues/${encodeURIComponent(queue)}`;

// A text in which a command that lists or changes something is a link to the view that does so.
function linked({text, queue}) {
  const match = COMMAND.exec(text);
  const view = match && (match[1] === "queue" && queue ? [`queues/${encodeURIComponent(queue)}`, "the queue's page"] : VIEW_OF[match[1]]);
  if (!view) return [text];
  return [text.slice(0, match.index), h("a", {href: `#/${view[0]}`}, view[1]), ...linked({text: text.slice(match.index + match[0].length), queue})];
}

function line(alarm) {
  const view = alarm.queue ? queueAddress(alarm.queue) : OBJECTS[alarm.name.split("-")[0]] && `#/${OBJECTS[alarm.name.split("-")[0]]}`;
  const age = h("span", {class: "since", "aria-hidden": "true"}, `for ${span(Date.now() / 1000 - alarm.since / 1000)}`);
  return h("li", {},
    view && !alarm.queue ? h("a", {class: "alarm", href: view}, alarm.name) : h("b", {}, alarm.name),
    alarm.queue && h("a", {href: view}, alarm.queue),
    h("span", {}, linked(alarm), " ", age));
}

export function showAlarms(element, alarms) {
  byQueue = new Map(alarms.filter((alarm) => alarm.queue).map((alarm) => [alarm.queue, alarm]));
  const rest = alarms.length - SHOWN;
  const toggle = () => {
    all = !all;
    showAlarms(element, alarms);
    element.querySelector("button")?.focus();
  };
  const more = rest > 0 && h("button", {class: "plain", "aria-expanded": String(all), onclick: toggle}, all ? "Fewer" : `${plural(rest, "more alarm")}`);
  replace(element, alarms.length ? [h("ul", {}, alarms.slice(0, all ? alarms.length : SHOWN).map(line)), more] : []);
}
