// The frame: login, views, alarms, keys.

import {showAlarms} from "./alarms.js";
import {call, logIn, logOut, maySomewhere, session, whenLoginIsNeeded, whoAmI} from "./api.js";
import {failed, field, note} from "./dialog.js";
import {badge, h, replace, svg, text} from "./dom.js";
import {span} from "./format.js";
import {Poll} from "./poll.js";
import {forget} from "./rates.js";
import * as audit from "./audit.js";
import * as connections from "./connections.js";
import * as exchanges from "./exchanges.js";
import * as leases from "./leases.js";
import * as queue from "./queue.js";
import * as queues from "./queues.js";
import * as storage from "./storage.js";
import * as trace from "./trace.js";
import * as users from "./users.js";

const ALARMS_S = 5;
const VIEWS = [["queues", "Queues", queues], ["exchanges", "Exchanges", exchanges], ["connections", "Connections", connections], ["leases", "Leases", leases], ["storage", "Storage", storage], ["users", "Users", users], ["trace", "Trace", trace], ["audit", "Audit", audit]];
const KEYS = [[`1 … ${VIEWS.length}`, "views"], ["/", "filter"], ["↑ ↓", "from queue to queue"], ["Enter", "open"], ["r", "refresh"], ["Esc", "back, close"], ["?", "these keys"]];

const root = document.getElementById("view");
const bar = document.getElementById("bar");
const alarms = document.getElementById("alarms");
let poll = null;
let view = null;
let watch = null;
let product = "";

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

function drawBar(at) {
  const links = VIEWS.map(([name, label]) => h("a", {href: `#/${name}`, "aria-current": name === at && "page"}, label));
  const drawing = svg("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, svg("circle", {cx: 8, cy: 8, r: 5.5}), svg("path", {d: "M8 2.5a5.5 5.5 0 0 1 0 11z", fill: "currentColor"}));
  replace(
    bar,
    h("a", {class: "brand", href: "#/queues"}, h("img", {src: "/page/icon.svg", alt: ""}), "Penstock"),
    session.here && h("nav", {"aria-label": "Views"}, links),
    h("span", {class: "spring"}),
    h("span", {class: "who"},
      product && h("span", {class: "muted small narrow-1"}, product),
      session.here && !["admin", "send", "settle"].some(maySomewhere) && badge("read only", "", "Your rights allow you to view, but not to change"),
      session.login && session.user !== null && [h("span", {class: "muted"}, session.user), h("button", {class: "small", onclick: leave}, "Log out")],
      h("button", {class: "icon", onclick: theme, title: "Light or dark", "aria-label": "Light or dark"}, drawing)),
  );
}

async function leave() {
  try {
    await logOut();
  } catch (error) {
    failed(error);
  }
  route();
}

function login() {
  const user = h("input", {name: "user", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false"});
  const password = h("input", {name: "password", type: "password", autocomplete: "current-password", required: true});
  const error = h("p", {class: "bad", role: "alert"});
  const enter = h("button", {class: "primary"}, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    enter.disabled = true;
    text(error, "");
    try {
      await logIn(user.value, password.value);
      route();
    } catch (problem) {
      text(error, problem.message);
      password.value = "";
      enter.disabled = false;
      password.focus();
    }
  };
  replace(root, h("form", {class: "login", onsubmit: submit}, h("h1", {}, "Log in"), field("User", user), field("Password", password), error, enter));
  document.title = "Log in – Penstock";
  user.focus();
}

function stop() {
  poll?.stop();
  poll = view = null;
}

// Show the view that the address names.
function route() {
  stop();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const [name = "queues", rest] = location.hash.replace(/^#\//, "").split("/");
  const known = VIEWS.find(([view]) => view === name) ?? VIEWS[0];
  drawBar(known[0]);
  if (!session.here) {
    watch?.stop();
    watch = null;
    forget();
    showAlarms(alarms, []);
    login();
    return;
  }
  if (watch === null) begin();
  poll = new Poll(failed);
  const shown = (rest && known[0] === "queues" ? queue : known[2]).show(root, poll, rest ? plain(rest) : undefined);
  view = shown;
  document.title = `${shown.title} – Penstock`;
}

function plain(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function begin() {
  watch = new Poll(() => {});
  watch.every(ALARMS_S, async (signal) => {
    const status = await call("broker.status", {}, signal);
    product = `${status.version ?? ""} · up ${span(status.uptimeSeconds ?? 0)}`;
    const shown = bar.querySelector(".who > .narrow-1");
    if (shown) text(shown, product);
    else drawBar(bar.querySelector("[aria-current]")?.getAttribute("href").slice(2) ?? "queues");
    showAlarms(alarms, status.alarms ?? []);
  });
}

function keys() {
  const dialog = h("dialog", {onclose: () => dialog.remove()}, h("form", {method: "dialog"}, h("h2", {}, "Keys"), h("dl", {class: "facts"}, KEYS.flatMap(([key, effect]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, effect)])), h("div", {class: "buttons"}, h("button", {}, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "Escape" && event.target.matches("input[type=search]")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || typing || !session.here) return;
  const at = Number(event.key);
  if (at >= 1 && at <= VIEWS.length) location.hash = `#/${VIEWS[at - 1][0]}`;
  else if (event.key === "/") {
    const filter = root.querySelector("input[type=search], .messages input");
    filter?.focus();
    if (filter) event.preventDefault();
  } else if (event.key === "r") view?.refresh();
  else if (event.key === "?") keys();
  else if (event.key === "Escape" && location.hash.split("/").length > 2) location.hash = location.hash.split("/").slice(0, 2).join("/");
});

const chosen = localStorage.getItem("theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
window.addEventListener("hashchange", route);
whenLoginIsNeeded(async () => {
  note("Your login has ended: log in again.", "bad");
  await whoAmI().catch(failed);
  route();
});

async function start() {
  try {
    await whoAmI();
    route();
  } catch (error) {
    failed(error);
    setTimeout(start, 2000);
  }
}
start();
