// The sessions that run, and what to call them.

import { onEvents } from "./api.js";
import { base } from "./dom.js";

export const sessions = new Map();
const known = new Map();
const listeners = new Set();

onEvents((events) => {
  let changed = false;
  for (const event of events) {
    if (event.kind === "hello") { sessions.set(event.session_id, event); known.set(event.session_id, event); changed = true; }
    if (event.kind === "subagent_start") known.set(event.child_session_id, { name: event.profile || "sub-agent", agent: true, root: event.session_id });
    if ((event.kind === "session_closed" || event.kind === "session_lost") && sessions.delete(event.session_id)) changed = true;
  }
  if (changed) for (const listener of listeners) listener();
});

export function onSessions(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A short name for a session: the one it was given, or its kind or folder and the end of its id. */
export function sessionName(id) {
  const facts = known.get(id);
  if (facts?.agent) return facts.name;
  const name = String(facts?.name || id || "");
  const made = /^([a-z]+)_[0-9a-f]{8,}$/.exec(name); // nobody chose it
  if (!made) return name;
  const kind = made[1] === "session" ? (facts?.workspace ? base(facts.workspace) : "session") : made[1];
  return `${kind} · ${name.slice(-4)}`;
}
