// Counts of all queues and their rates. They outlive a view, so a new view has rates immediately.

import {counts} from "./api.js";

const RATES = ["enqueued", "delivered", "acknowledged"];
const LEAST_S = 0.2; // between two readings: rates over less are too inaccurate
let last = null; // {found, shown} of the last reading

// {time, names, of(column), rate(column)}: arrays by queue. An unknown rate is null.
export async function look(signal) {
  const found = await counts(signal);
  const seconds = last === null ? 0 : (found.time - last.found.time) / 1e6;
  if (last !== null && seconds < LEAST_S) return last.shown;
  const rates = last === null ? noRates(found) : ratesOf(found, last.found, seconds);
  last = {found, shown: shownOf(found, rates)};
  return last.shown;
}

export function forget() {
  last = null;
}

// A separate function, whose closure does not keep earlier readings alive.
function shownOf(found, rates) {
  return {time: found.time, names: found.queues, of: (column) => found[column], rate: (column) => rates[column]};
}

function noRates(found) {
  return Object.fromEntries(RATES.map((column) => [column, found.queues.map(() => null)]));
}

function ratesOf(found, before, seconds) {
  const places = new Map(before.queues.map((name, at) => [name, at]));
  const rate = (column, name, value) => (places.has(name) ? Math.max(0, value - before[column][places.get(name)]) / seconds : null);
  return Object.fromEntries(RATES.map((column) => [column, found.queues.map((name, at) => rate(column, name, found[column][at]))]));
}
