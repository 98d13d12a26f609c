// Requests to the server, and the stream of what happens. The token of the page goes with what changes something.

const TOKEN = "surehand-token";

export class ApiError extends Error {
  constructor(status, data) {
    const text = String(data.error ?? `the console answered ${status}`);
    super(text.charAt(0).toUpperCase() + text.slice(1));
    this.status = status;
    this.hint = data.hint ?? "";
    this.data = data;
  }
}

async function send(method, path, { query, body } = {}) {
  const words = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  const url = words.size ? `${path}?${words}` : path;
  const headers = method === "GET" ? {} : { "content-type": "application/json", "x-surehand-token": localStorage.getItem(TOKEN) ?? "" };
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: method === "GET" ? undefined : JSON.stringify(body ?? {}) });
  } catch {
    throw new ApiError(0, { error: "The console does not answer", hint: "Is it still running in its terminal?" });
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/api/login") document.dispatchEvent(new CustomEvent("signed-out"));
    throw new ApiError(answer.status, data);
  }
  return data;
}

export const get = (path, query) => send("GET", path, { query });
export const post = (path, body) => send("POST", path, { body });

export async function signIn(code) {
  const { token } = await post("/api/login", { code });
  localStorage.setItem(TOKEN, token);
}

export const hasToken = () => localStorage.getItem(TOKEN) !== null;

// -- the stream ---------------------------------------------------------------------------------------------------

const listeners = new Set();
let waiting = [];
let due = false;
let source = null;
let last = "";

/** Have a function called with the events of an instant, as a list; returns what takes it away. */
export function onEvents(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function flush() {
  due = false;
  const events = waiting;
  waiting = [];
  for (const listener of listeners) {
    try { listener(events); } catch (problem) { console.error(problem); }
  }
}

/** Hand an event to the pages: many events of one instant are one update. */
function deliver(event) {
  waiting.push(event);
  if (due) return;
  due = true;
  // A page in the background draws nothing, but its title and its notifications go on.
  if (document.hidden) setTimeout(flush, 200); else requestAnimationFrame(flush);
}

/** Follow the stream; `tell` is called with "live" or "lost". */
export function follow(tell) {
  source?.close();
  source = new EventSource(last ? `/api/events?after=${encodeURIComponent(last)}` : "/api/events");
  source.onopen = () => tell("live");
  source.onmessage = (message) => {
    if (message.lastEventId) last = message.lastEventId;
    deliver(JSON.parse(message.data));
  };
  source.onerror = () => {
    tell("lost");
    if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
    get("/api/sessions").catch(() => {}); // says so where somebody signed us out
    setTimeout(() => follow(tell), 2000);
  };
}
