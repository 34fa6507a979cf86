// Counts of all queues, and what changes in a second: kept over views, so that a rate is there when one opens.

import {counts} from "./api.js";

const RATES = ["enqueued", "delivered", "acknowledged"];
let last = null;

// {time, names, of(column), rate(column)}: arrays by queue; a rate is null where nothing is known yet.
export async function look(signal) {
  const found = await counts(signal);
  const before = last;
  const same = before !== null && before.queues.length === found.queues.length && before.queues.every((name, at) => name === found.queues[at]);
  const places = before === null || same ? null : new Map(before.queues.map((name, at) => [name, at]));
  const seconds = before === null ? 0 : (found.time - before.time) / 1e6;
  if (before !== null && seconds < 0.2) return before.shown;
  const rates = Object.fromEntries(
    RATES.map((column) => [
      column,
      found[column].map((value, at) => {
        const place = places === null ? at : places.get(found.queues[at]);
        return before === null || place === undefined ? null : Math.max(0, value - before[column][place]) / seconds;
      }),
    ]),
  );
  found.shown = {time: found.time, names: found.queues, of: (column) => found[column], rate: (column) => rates[column]};
  if (before !== null) before.shown = null;
  last = found;
  return found.shown;
}

export function forget() {
  last = null;
}
