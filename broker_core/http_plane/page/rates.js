// Counts of all queues and their rates. They outlive a view, so a new view has rates immediately.

import {counts} from "./api.js";

const RATES = ["enqueued", "delivered", "acknowledged"];
const LEAST_S = 0.2; // between two readings: rates over less are too inaccurate
let last = null; // {counted, shown} of the last reading

// {time, names, of(column), rate(column)}: arrays by queue. An unknown rate is null.
export async function look(signal) {
  const counted = await counts(signal);
  const seconds = last === null ? 0 : (counted.time - last.counted.time) / 1e6;
  if (last !== null && seconds < LEAST_S) return last.shown;
  const rates = last === null ? noRates(counted) : ratesOf(counted, last.counted, seconds);
  last = {counted, shown: shownOf(counted, rates)};
  return last.shown;
}

export function forget() {
  last = null;
}

// A separate function, whose closure does not keep earlier readings alive.
function shownOf(counted, rates) {
  return {time: counted.time, names: counted.queues, of: (column) => counted[column], rate: (column) => rates[column]};
}

function noRates(counted) {
  return Object.fromEntries(RATES.map((column) => [column, counted.queues.map(() => null)]));
}

function ratesOf(counted, before, seconds) {
  const places = new Map(before.queues.map((name, at) => [name, at]));
  const rate = (column, name, value) => (places.has(name) ? Math.max(0, value - before[column][places.get(name)]) / seconds : null);
  return Object.fromEntries(RATES.map((column) => [column, counted.queues.map((name, at) => rate(column, name, counted[column][at]))]));
}
