// Which queues need an operator, and why: the default order of the list.

import {alarmOf} from "./alarms.js";
import {plural, short, span} from "./format.js";

const OLD_S = 60; // a message that waits for longer, while nothing is delivered, is stuck
const GROWN = 10; // messages by which a queue grows at least
const FULL = 1000; // thousandths of a queue's limits
const CALM = 9;

// {rank, label, kind, title}: the lowest rank comes first. `queue` is an entry of the list, `now` in microseconds.
export function attention(queue, now) {
  const alarm = alarmOf(queue.name);
  const isFull = queue.fill >= FULL; // another badge shows the fill level
  if (alarm) return {rank: 0, label: isFull && alarm.name === "queue-full" ? "" : alarm.name, kind: "bad", title: alarm.text};
  const onlyDead = queue.deadLetters > 0 && queue.deadLetters >= queue.available;
  const age = queue.oldest ? (now - queue.oldest) / 1e6 : 0;
  const still = queue.deliveries === null ? queue.acquired === 0 : queue.deliveries === 0;
  const users = queue.consumers + queue.leases;
  if (!onlyDead && !queue.paused && queue.available > 0 && age > OLD_S && still) {
    const why = users ? `${plural(users, "consumer")} received none of its messages` : "It has no consumer";
    return {rank: users ? 1 : 2, label: users ? "stuck" : "no consumer", kind: "warn", title: `${why}; the oldest waits for ${span(age)}`};
  }
  if (isFull) return {rank: 3, label: "", kind: "warn", title: ""};
  if (!onlyDead && queue.growth >= GROWN && queue.growth * 20 >= queue.available) {
    return {rank: 4, label: "growing", kind: "warn", title: `${short(queue.growth)} messages more than half a minute ago`};
  }
  if (queue.deadLetters > 0) return {rank: 5, label: "dead letters", kind: "", title: plural(queue.deadLetters, "dead letter")};
  return {rank: CALM, label: "", kind: "", title: ""};
}
