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

/** A short name for a session: the one it was given, or the folder it works in and the end of its id. */
export function sessionName(id) {
  const facts = known.get(id);
  if (facts?.agent) return facts.name;
  const short = String(id ?? "").replace(/^session_/, "");
  if (facts?.name) return facts.name;
  if (facts?.workspace) return `${base(facts.workspace)} · ${short.slice(-4)}`;
  return short.length > 16 ? short.slice(-6) : short;
}
