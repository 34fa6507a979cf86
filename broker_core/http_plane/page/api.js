// The broker's API, and the user of the session.

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let csrf = null;
let onLogin = () => {};

export const session = {user: null, rights: {}, login: false, here: false};

// `call` is called when the broker requires a login.
export function whenLoginIsNeeded(call) {
  onLogin = call;
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, {cache: "no-store", credentials: "same-origin", ...options});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "UNREACHABLE", "The broker does not answer. It may be restarting; this page keeps trying.");
  }
  if (answer.status === 204) return null;
  let body = null;
  try {
    body = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (answer.ok && body !== null) return body;
  const {code = "ERROR", message = `The broker answered with HTTP ${answer.status}.`} = body?.error ?? {};
  if (answer.status === 401 && session.here) {
    session.here = false;
    onLogin();
  }
  throw new Refusal(answer.status, code, message);
}

function post(path, fields, method = "POST", signal = null) {
  const headers = {"content-type": "application/json"};
  if (csrf !== null) headers["x-csrf-token"] = csrf;
  return ask(path, {method, headers, body: method === "POST" ? JSON.stringify(fields) : null, signal});
}

// A login in another tab has replaced the session: ask for its secret once.
async function again(refusal, path, fields, signal) {
  if (refusal.code !== "CSRF_TOKEN") throw refusal;
  await whoAmI();
  return post(path, fields, "POST", signal);
}

export const call = (action, fields = {}, signal = null) =>
  post(`/api/v1/${action}`, fields, "POST", signal).catch((error) => again(error, `/api/v1/${action}`, fields, signal));

export const counts = (signal) => ask("/api/v1/counts", {signal});

// The history of the named queues, or without names the sum of all queues under the name "".
export function history(queues, signal) {
  const query = new URLSearchParams(queues.map((name) => ["queue", name]));
  return ask(`/api/v1/history?${query}`, {signal});
}

function remember(answer) {
  csrf = answer.csrf;
  Object.assign(session, {user: answer.user, rights: answer.rights, login: answer.login});
  session.here = !answer.login || answer.user !== null;
}

export async function whoAmI() {
  remember(await ask("/api/v1/session"));
}

export async function logIn(user, password) {
  remember(await post("/api/v1/session", {user, password}));
}

export async function logOut() {
  await post("/api/v1/session", {}, "DELETE");
  await whoAmI();
}

// Whether the page offers an action; the broker decides. Without a queue: on every queue.
export function may(right, queue = null) {
  return Object.entries(session.rights).some(
    ([pattern, rights]) => rights.includes(right) && (queue === null ? /^\*+$/.test(pattern) : matches(pattern, queue)),
  );
}

export const maySomewhere = (right) => Object.values(session.rights).some((rights) => rights.includes(right));

function matches(pattern, name) {
  const parts = pattern.split("*");
  if (parts.length === 1) return pattern === name;
  if (!name.startsWith(parts[0])) return false;
  let at = parts[0].length;
  for (const part of parts.slice(1, -1)) {
    const place = name.indexOf(part, at);
    if (place < 0) return false;
    at = place + part.length;
  }
  return name.length - at >= parts.at(-1).length && name.endsWith(parts.at(-1));
}
