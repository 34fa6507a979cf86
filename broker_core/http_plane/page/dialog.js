// Confirmation dialogs, and notes about results.

import {h} from "./dom.js";

const NOTE_MS = 6000;

export function note(message, kind = "good") {
  const box = document.getElementById("notes");
  const shown = [...box.children].find((entry) => entry.dataset.message === message);
  if (shown) return;
  const close = () => entry.remove();
  const entry = h("div", {class: kind}, h("p", {}, message), h("button", {class: "plain small", onclick: close}, "Close"));
  entry.dataset.message = message;
  box.append(entry);
  while (box.children.length > 4) box.firstChild.remove();
  if (kind !== "bad") setTimeout(close, NOTE_MS);
}

export const failed = (error) => note(error.message, "bad");

// Ask for confirmation, or for the fields of a form. `act` receives the form's fields after a yes, and returns a note. If it fails, the dialog stays open and
// shows the error.
export function ask({title, content = [], label, danger = false, wide = false, act}) {
  const error = h("p", {class: "bad", role: "alert"});
  const yes = h("button", {class: danger ? "danger primary" : "primary", type: "submit"}, label);
  const cancel = h("button", {type: "button", onclick: () => dialog.close()}, "Cancel");
  const submit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    error.textContent = "";
    try {
      const outcome = await act(new FormData(form));
      dialog.close();
      if (outcome) note(outcome);
    } catch (problem) {
      error.textContent = problem.message;
      yes.disabled = false;
    }
  };
  const form = h("form", {method: "dialog", onsubmit: submit}, h("h2", {}, title), content, error, h("div", {class: "buttons"}, cancel, yes));
  const dialog = h("dialog", {class: wide && "wide", onclose: () => dialog.remove()}, form);
  document.body.append(dialog);
  dialog.showModal();
  if (danger) cancel.focus();
  return dialog;
}

export function choice(name, value, label, text, checked = false) {
  return h("label", {class: "choice"}, h("input", {type: "radio", name, value, checked}), h("b", {}, label), h("p", {}, text));
}

export function field(label, control) {
  return h("label", {class: "field"}, h("span", {}, label), control);
}
