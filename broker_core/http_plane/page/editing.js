// Dialogs that send, edit, move, copy and discard messages.

import {call} from "./api.js";
import {queueInput} from "./declarations.js";
import {ask, failed, field} from "./dialog.js";
import {h} from "./dom.js";
import {bytes, count, plural} from "./format.js";

const TEXTS = [["subject", "Subject"], ["messageId", "Message id"], ["correlationId", "Correlation id"], ["replyTo", "Reply to"], ["contentType", "Content type"], ["groupId", "Group id"]];
const GONE = "it is held, or has ended meanwhile. Look again.";

const plain = {spellcheck: "false", autocomplete: "off", autocapitalize: "none"};

function number(name, label, most = null) {
  const input = h("input", {name, type: "number", min: 0, max: most, step: name === "priority" ? 1 : "any", inputmode: "decimal"});
  return {name, input, element: field(label, input), value: () => (input.value === "" ? undefined : input.valueAsNumber)};
}

// The fields of a message. `before`: the message that is edited, as queue.messages shows it; null for a new one.
function contentForm(before) {
  const isCut = before?.cut.includes("body") ?? false;
  const isBinary = before?.body?.base64 !== undefined;
  const oldBody = isCut ? "" : before?.body?.text ?? before?.body?.base64 ?? "";
  const body = h("textarea", {name: "body", rows: 6, placeholder: isCut ? `unchanged: ${bytes(before.bodyBytes)} are too long to edit here` : null, ...plain});
  body.value = oldBody;
  const oldProperties = before?.properties && !before.cut.includes("properties") ? JSON.stringify(before.properties, null, 1) : "";
  const properties = h("textarea", {name: "properties", rows: 3, placeholder: before?.cut.includes("properties") ? "unchanged: too many to edit here" : '{"region": "eu", "n": 5}', ...plain});
  properties.value = oldProperties;
  const texts = TEXTS.map(([name, label]) => {
    const old = typeof before?.[name] === "string" ? before[name] : "";
    const input = h("input", {name, value: old, ...plain});
    return {name, old, input, element: field(label, input)};
  });
  const numbers = [number("priority", "Priority, 0 to 9", 9), number("ttl", "Time to live, s"), number("delay", "Delay, s")];
  if (before?.priority !== undefined) numbers[0].input.value = before.priority;
  const details = h("details", {}, h("summary", {}, "Header and properties"), h("div", {class: "fields"}, texts.map(({element}) => element), numbers.map(({element}) => element)));
  const element = h("div", {class: "body-form"}, field(isBinary && !isCut ? "Body, bytes in base64" : "Body", body), field("Application properties, a JSON object", properties), details);

  // Only changed fields of an edited message.
  function values() {
    const fields = {};
    if (before === null || body.value !== oldBody) fields[isBinary && !isCut ? "bodyBase64" : "body"] = body.value;
    if (properties.value.trim() !== oldProperties.trim()) fields.properties = parsed(properties.value);
    for (const {name, old, input} of texts) if (input.value !== old) fields[name] = input.value;
    const [priority, ttl, delay] = numbers.map(({value}) => value());
    if (priority !== undefined && priority !== before?.priority) fields.priority = priority;
    if (ttl !== undefined) fields.ttl = Math.max(1, Math.round(ttl * 1000));
    if (delay !== undefined) fields.delay = Math.round(delay * 1000);
    return fields;
  }
  return {element, values};
}

function parsed(text) {
  if (!text.trim()) return {};
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // Reported below: the texts of the browsers differ.
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error('The application properties must be a JSON object, such as {"region": "eu"}.');
  return value;
}

// `to`: {queue} or {exchange}.
export function sendMessage(to, done) {
  const form = contentForm(null);
  const key = h("input", {name: "routingKey", ...plain});
  const name = to.queue ?? to.exchange;
  ask({
    title: `Send a message to ${name}`,
    wide: true,
    content: [to.exchange !== undefined && field("Routing key", key), form.element].filter(Boolean),
    label: "Send it",
    act: async () => {
      const {sequence, dropped} = await call("message.send", {...to, ...(to.exchange !== undefined && {routingKey: key.value}), ...form.values()});
      done();
      if (dropped) return `The message was dropped: ${to.queue ? "a message with this id came before." : "no binding matches it."}`;
      return sequence === null ? `The message is sent through ${name}.` : `Message ${count(sequence)} is sent to ${name}.`;
    },
  });
}

export async function editMessage(queue, message, done) {
  const home = message.annotations?.["x-opt-death-queue"] ?? queue;
  const [target, names] = await queueInput({name: "target", value: home}).catch((error) => [failed(error), null]);
  if (!target) return;
  const form = contentForm(message);
  ask({
    title: `Edit and resend message ${count(message.sequenceNumber)} of ${queue}`,
    wide: true,
    content: [
      h("p", {class: "muted"}, "The copy goes to the end of its queue, and the original is settled as replaced. Both happen, or neither."),
      form.element, field("Queue for the copy", target), names,
    ],
    label: "Resend it",
    act: async () => {
      const answer = await call("message.replace", {queue, sequence: message.sequenceNumber, target: target.value.trim(), ...form.values()});
      done();
      return `Message ${count(message.sequenceNumber)} is replaced by message ${count(answer.sequence)} of ${answer.queue}.`;
    },
  });
}

// Move or copy one message, or all that wait. `verb`: move or copy.
export async function shiftMessages(queue, verb, sequence, total, done) {
  const [target, names] = await queueInput({name: "target"}).catch((error) => [failed(error), null]);
  if (!target) return;
  const most = h("input", {name: "messages", type: "number", min: 1, value: Math.max(1, total), required: true});
  const one = sequence !== null;
  const Verb = verb === "move" ? "Move" : "Copy";
  ask({
    title: one ? `${Verb} message ${count(sequence)} of ${queue}` : `${Verb} messages of ${queue}`,
    content: [
      !one && h("p", {class: "muted"}, `${plural(total, "message")} without a holder, delayed and deferred ones included, oldest first.`),
      h("div", {class: "row"}, field("To queue", target), !one && field("Maximum number of messages", most)), names,
    ].filter(Boolean),
    label: one ? `${Verb} it` : `${Verb} them`,
    act: async () => {
      const range = one ? {first: sequence, last: sequence} : {messages: most.valueAsNumber};
      const answer = await call(`queue.${verb}`, {queue, target: target.value.trim(), ...range});
      done();
      const shifted = answer.moved ?? answer.copied;
      const verbed = verb === "move" ? "moved" : "copied";
      if (one && !shifted) throw new Error(`Message ${count(sequence)} was not ${verbed}: ${GONE}`);
      return `${plural(shifted, "message")} ${verbed} to ${target.value.trim()}.${answer.full ? " It has no room for the rest." : ""}`;
    },
  });
}

export function discardMessage(queue, {sequenceNumber: sequence, state}, done) {
  const reason = h("input", {name: "error", maxlength: 500, placeholder: "discarded by an operator", ...plain});
  ask({
    title: `Discard message ${count(sequence)} of ${queue}?`,
    content: [h("p", {}, `It ends permanently${state === "acquired" ? ", although a consumer holds it" : ""}, with the outcome purged.`), field("Reason, for the archive", reason)],
    label: "Discard it",
    danger: true,
    act: async () => {
      const {discarded} = await call("queue.discard", {queue, sequence, error: reason.value.trim() || null});
      done();
      if (!discarded) throw new Error(`Message ${count(sequence)} was not discarded: it has ended meanwhile. Look again.`);
      return `Message ${count(sequence)} of ${queue} is discarded.`;
    },
  });
}
