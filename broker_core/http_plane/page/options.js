// Options of a queue or an exchange, as controls. Only changed values are shown as changes, and sent.

import {h, replace} from "./dom.js";

// The values of an option that has a list of them. `allowed`: as in the answer of queue.options.
function choicesOf(allowed) {
  const values = allowed.split(", ");
  return values.length > 1 && values.every((value) => /^\w+$/.test(value)) ? values : null;
}

function control(name, {allowed, default: usual}, value) {
  const choices = choicesOf(allowed);
  const standard = usual === null ? "none" : String(usual);
  if (choices) {
    return h("select", {"aria-label": name}, h("option", {value: ""}, `${standard} (default)`),
      choices.filter((choice) => choice !== standard || choice === value).map((choice) => h("option", {value: choice, selected: choice === value}, choice)));
  }
  const isNumber = allowed.startsWith("a whole number");
  return h("input", {"aria-label": name, value, placeholder: `${standard} (default)`, title: allowed, inputmode: isNumber && "numeric", spellcheck: "false", autocomplete: "off", autocapitalize: "none"});
}

// `declared`: options by name. `values`: the present ones. `changed()` is called after each input.
export function optionEditor(declared, values, changed) {
  const rows = Object.entries(declared).map(([name, option]) => {
    const before = values[name] === undefined || values[name] === option.default ? "" : String(values[name]);
    const input = control(name, option, before);
    const element = h("div", {class: "option"}, h("div", {}, h("b", {}, name), h("p", {class: "muted small"}, option.help)), input);
    const standard = option.default === null ? "none" : String(option.default);
    return {name, before, input, element, standard, value: () => input.value.trim()};
  });
  const list = h("ul", {class: "changes", role: "status"});
  const differing = () => rows.filter((row) => row.value() !== row.before);
  const show = () => {
    replace(list, differing().map(({name, before, value, standard}) => h("li", {}, h("b", {}, name), ": ", h("s", {}, before || standard), " → ", value() || `${standard} (default)`)));
    for (const row of rows) row.element.classList.toggle("changed", row.value() !== row.before);
    changed(differing().length);
  };
  const element = h("div", {class: "options", oninput: show}, rows.map((row) => row.element));
  return {element, list, show, changes: () => Object.fromEntries(differing().map((row) => [row.name, row.value() || null]))};
}
