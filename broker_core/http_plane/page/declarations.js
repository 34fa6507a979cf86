// Dialogs that declare, alter, delete and bind queues and exchanges.

import {queueAddress} from "./alarms.js";
import {call} from "./api.js";
import {ask, failed, field} from "./dialog.js";
import {h, replace} from "./dom.js";
import {count, plural} from "./format.js";
import {optionEditor} from "./options.js";
import {look, unheld} from "./rates.js";

const TYPES = [["fifo", "fifo: in the order of arrival"], ["priority", "priority: the highest first"], ["lastvalue", "lastvalue: the newest of each key"]];
const EXCHANGES = [["direct", "direct: equal key"], ["fanout", "fanout: all queues"], ["topic", "topic: pattern of the key"], ["headers", "headers: equal headers"]];
const EXCHANGE_OPTIONS = {
  unroutable: {default: "refuse", allowed: "refuse, drop, alternate", help: "Treatment of a message without a matching binding."},
  alternate: {default: null, allowed: "the name of a queue or an exchange", help: "Target of these messages."},
};
const NAMES = 1000; // offered while a name is typed

const nameInput = (properties) => h("input", {required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...properties});
const choose = (properties, options, chosen = null) => h("select", properties, options.map(([value, label = value]) => h("option", {value, selected: value === chosen}, label)));
const submit = (dialog) => dialog.querySelector("button[type=submit]");

// A text field that offers the names of queues.
export async function queueInput(properties) {
  const {names} = await look(null);
  const list = h("datalist", {id: "names"}, names.slice(0, NAMES).map((value) => h("option", {value})));
  return [nameInput({list: "names", ...properties}), list];
}

const declaredOptions = async () => (await call("queue.options")).options;
const ofType = (options, type, usable = () => true) => Object.fromEntries(Object.entries(options).filter(([, option]) => usable(option) && (option.type === null || option.type === type)));

export async function declareQueue() {
  const options = await declaredOptions().catch(failed);
  if (!options) return;
  const name = nameInput({name: "queue"});
  const type = choose({name: "type"}, TYPES);
  const place = h("div", {});
  const fresh = () => {
    editor = optionEditor(ofType(options, type.value), {}, () => {});
    replace(place, h("details", {open: type.value === "lastvalue"}, h("summary", {}, "Options"), editor.element), editor.list);
  };
  let editor = null;
  type.addEventListener("change", fresh);
  fresh();
  ask({
    title: "Declare a queue",
    wide: true,
    content: [h("div", {class: "row"}, field("Name", name), field("Type", type)), place],
    label: "Declare it",
    act: async () => {
      const queue = name.value.trim();
      const {created} = await call("queue.declare", {queue, type: type.value, options: editor.changes()});
      location.hash = queueAddress(queue);
      return created ? `Queue ${queue} is declared.` : `Queue ${queue} exists with these options.`;
    },
  });
}

// `state`: the answer of queue.stat.
export async function alterQueue(state, done) {
  const options = await declaredOptions().catch(failed);
  if (!options) return;
  const editor = optionEditor(ofType(options, state.type, (option) => option.alterable), state.options, (n) => {
    submit(dialog).disabled = !n;
    submit(dialog).textContent = `Alter ${plural(n, "option")}`;
  });
  const dialog = ask({
    title: `Alter ${state.queue}`,
    wide: true,
    content: [
      h("p", {}, `This concerns ${plural(unheld(state) + state.acquired, "message")}, ${plural(state.consumers, "consumer")} and ${plural(state.leases.length, "lease")}.`),
      editor.element,
      editor.list,
    ],
    label: "Alter",
    act: async () => {
      const changes = editor.changes();
      await call("queue.alter", {queue: state.queue, options: changes});
      done();
      return `${Object.keys(changes).join(", ")} of ${state.queue} altered.`;
    },
  });
  editor.show();
}

export function deleteQueue(state, bindings) {
  const {queue} = state;
  const n = unheld(state) + state.acquired;
  const lost = [["ready", state.available], ["delayed", state.delayed], ["deferred", state.deferred], ["held", state.acquired]].filter(([, number]) => number).map(([label, number]) => `${count(number)} ${label}`).join(", ");
  ask({
    title: `Delete ${queue}?`,
    content: [
      h("p", {}, n ? `${plural(n, "message")} end with it: ${lost}. This cannot be undone.` : "It has no messages. If one arrives meanwhile, the queue is kept."),
      h("p", {class: "muted"}, `${plural(state.consumers, "consumer")}, ${plural(state.leases.length, "lease")} and ${plural(bindings, "binding")} lose their queue.`),
    ],
    label: n ? `Delete it with ${plural(n, "message")}` : "Delete it",
    danger: true,
    act: async () => {
      const {messages} = await call("queue.delete", {queue, force: state.acquired > 0, ifEmpty: !n});
      location.hash = "#/queues";
      return `Queue ${queue} is deleted, with ${plural(messages, "message")}.`;
    },
  });
}

export function declareExchange(done) {
  const name = nameInput({name: "exchange"});
  const type = choose({name: "type"}, EXCHANGES);
  const editor = optionEditor(EXCHANGE_OPTIONS, {}, () => {});
  ask({
    title: "Declare an exchange",
    wide: true,
    content: [h("div", {class: "row"}, field("Name", name), field("Type", type)), editor.element, editor.list],
    label: "Declare it",
    act: async () => {
      const exchange = name.value.trim();
      const {created} = await call("exchange.declare", {exchange, type: type.value, options: editor.changes()});
      done();
      return created ? `Exchange ${exchange} is declared.` : `Exchange ${exchange} exists with these options.`;
    },
  });
}

export function deleteExchange({exchange, bindings}, done) {
  ask({
    title: `Delete the exchange ${exchange}?`,
    content: [h("p", {}, `${plural(bindings.length, "binding")} end with it. The queues and their messages stay. Later messages to ${exchange} are refused.`)],
    label: `Delete it with ${plural(bindings.length, "binding")}`,
    danger: true,
    act: async () => {
      await call("exchange.delete", {exchange});
      done();
      return `Exchange ${exchange} is deleted.`;
    },
  });
}

function headersOf(text) {
  const pairs = text.split("\n").filter((line) => line.trim()).map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]);
  return Object.fromEntries(pairs);
}

// Bind `queue` to `exchange`; one of them may be null, and is asked for. `exchanges`: the answer of exchange.list.
export async function bind({queue = null, exchange = null}, exchanges, done) {
  const [target, names] = queue === null ? await queueInput({name: "queue"}).catch((error) => [failed(error), null]) : [nameInput({name: "queue", value: queue, readonly: true}), ""];
  if (!target) return;
  const source = choose({name: "exchange", disabled: exchange !== null}, exchanges.map((entry) => [entry.exchange, `${entry.exchange} (${entry.type})`]), exchange);
  const key = h("input", {name: "key", spellcheck: "false", autocomplete: "off", autocapitalize: "none"});
  const selector = h("input", {name: "selector", placeholder: "all messages", spellcheck: "false", autocomplete: "off"});
  const headers = h("textarea", {name: "headers", rows: 2, placeholder: "region=eu", spellcheck: "false"});
  const needs = h("div", {}, field("Headers, one name=value in each line", headers));
  const typeOf = () => exchanges.find((entry) => entry.exchange === source.value)?.type;
  const show = () => { needs.hidden = typeOf() !== "headers"; };
  source.addEventListener("change", show);
  show();
  ask({
    title: queue === null ? `Bind a queue to ${exchange}` : `Bind ${queue} to an exchange`,
    content: [h("div", {class: "row"}, field("Exchange", source), field("Queue", target)), names, field("Routing key, or pattern of a topic exchange", key), needs, field("Only matches of this selector", selector)],
    label: "Bind",
    act: async () => {
      const fields = {exchange: source.value, queue: target.value.trim(), key: key.value, selector: selector.value.trim() || null};
      const {created, hints = []} = await call("exchange.bind", {...fields, arguments: needs.hidden ? {} : headersOf(headers.value)});
      done();
      return `${created ? `${fields.queue} is bound to ${fields.exchange}.` : "This binding exists."}${hints.map((hint) => ` Note: ${hint}.`).join("")}`;
    },
  });
}

export function unbind(exchange, {queue, key}, done) {
  ask({
    title: `Unbind ${queue} from ${exchange}?`,
    content: [h("p", {}, `The bindings with the key ${key === "" ? "“” (empty)" : key} end. ${queue} and its messages stay.`)],
    label: "Unbind",
    danger: true,
    act: async () => {
      const {unbound} = await call("exchange.unbind", {exchange, queue, key});
      done();
      return `${plural(unbound, "binding")} of ${queue} removed.`;
    },
  });
}
