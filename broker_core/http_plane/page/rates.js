// Counts of all queues and their rates. They outlive a view, so a new view has rates immediately.

import {counts} from "./api.js";

const RATES = ["enqueued", "delivered", "acknowledged"];
const LEAST_S = 0.2; // between two readings: rates over less are too inaccurate
const CHANGE_S = 20; // over which a change counts, and at most twice that
const LEAST_CHANGE_S = 8;
let last = null; // {counted, shown} of the last reading
let marks = []; // at most two earlier readings, CHANGE_S apart: {time, places, live, delivered}

// {time, names, of(column), rate(column), growth, deliveries}: arrays by queue. An unknown rate or change is null.
export async function look(signal) {
  const counted = await counts(signal);
  const seconds = last === null ? 0 : (counted.time - last.counted.time) / 1e6;
  if (last !== null && seconds < LEAST_S) return last.shown;
  const rates = last === null ? noRates(counted) : ratesOf(counted, last.counted, seconds);
  last = {counted, shown: shownOf(counted, rates, changesOf(counted, marks[0] ?? null))};
  mark(counted);
  return last.shown;
}

export function forget() {
  last = null;
  marks = [];
}

// Messages without a holder, of an answer of queue.stat.
export const unheld = (state) => state.available + state.delayed + state.deferred;

const live = (counted) => counted.available.map((n, at) => n + counted.acquired[at] + counted.delayed[at] + counted.deferred[at]);

function mark(counted) {
  if (marks.length && counted.time - marks.at(-1).time < CHANGE_S * 1e6) return;
  const places = new Map(counted.queues.map((name, at) => [name, at]));
  marks = [...marks.slice(-1), {time: counted.time, places, live: live(counted), delivered: counted.delivered}];
}

// By how much queues grew since an earlier reading, and how many messages they delivered.
function changesOf(counted, before) {
  const none = counted.queues.map(() => null);
  if (before === null || counted.time - before.time < LEAST_CHANGE_S * 1e6) return {growth: none, deliveries: none};
  const change = (now, then) => counted.queues.map((name, at) => (before.places.has(name) ? now[at] - then[before.places.get(name)] : null));
  return {growth: change(live(counted), before.live), deliveries: change(counted.delivered, before.delivered)};
}

// A separate function, whose closure does not keep earlier readings alive.
function shownOf(counted, rates, changes) {
  return {time: counted.time, names: counted.queues, of: (column) => counted[column], rate: (column) => rates[column], ...changes};
}

function noRates(counted) {
  return Object.fromEntries(RATES.map((column) => [column, counted.queues.map(() => null)]));
}

function ratesOf(counted, before, seconds) {
  const places = new Map(before.queues.map((name, at) => [name, at]));
  const rate = (column, name, value) => (places.has(name) ? Math.max(0, value - before[column][places.get(name)]) / seconds : null);
  return Object.fromEntries(RATES.map((column) => [column, counted.queues.map((name, at) => rate(column, name, counted[column][at]))]));
}
