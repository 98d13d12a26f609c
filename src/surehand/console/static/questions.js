// What waits for an answer, whichever page is shown: the count in the title, a notification, and the list for the page.

import { get, onEvents } from "./api.js";
import { isShown, setWaiting } from "./app.js";
import { announce, el, toast } from "./dom.js";
import { sessionName } from "./sessions.js";

export const questions = new Map();
/** What became of questions that were on the page: id → { answer, by, reason }. */
export const answered = new Map();
const listeners = new Set();
const CHANGES = new Set(["hello", "permission_asked", "permission_decided", "permission_withdrawn", "session_closed", "session_lost"]);
let asking = null;
let again = false;
let known = null;

export function onQuestions(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Read what waits; several wishes at once are one request. */
export function refresh() {
  if (asking) { again = true; return asking; }
  asking = read().catch(() => {}).finally(() => { asking = null; if (again) { again = false; refresh(); } });
  return asking;
}

async function read() {
  const found = await get("/api/questions");
  const waiting = new Map(found.questions.map((each) => [each.id, each]));
  for (const id of questions.keys()) if (!waiting.has(id) && !answered.has(id)) answered.set(id, { answer: "gone", by: "", at: Date.now() });
  for (const [id, row] of questions) if (!waiting.has(id)) { answered.get(id).row ??= row; answered.get(id).at ??= Date.now(); }
  questions.clear();
  for (const [id, row] of waiting) questions.set(id, row);
  while (answered.size > 50) answered.delete(answered.keys().next().value);
  tell();
}

function tell() {
  setWaiting(questions.size);
  const fresh = [...questions.values()].filter((each) => known && !known.has(each.id));
  known = new Set(questions.keys());
  for (const each of fresh) notify(each);
  for (const listener of listeners) listener();
}

/** Announce a question whichever page is shown: it must not hang unseen. */
function notify(question) {
  const text = `${question.tool} asks for permission in ${sessionName(question.root)}`;
  if (isShown("questions")) announce(text); else toast(text, "", el("a", { href: `#/questions/${encodeURIComponent(question.id)}` }, "Look at it"));
  if (!("Notification" in window) || Notification.permission !== "granted" || !document.hidden) return;
  const told = new Notification(`${question.tool} asks for permission`, { body: `${sessionName(question.root)}: ${question.reason}`.slice(0, 200), tag: question.id });
  told.onclick = () => { window.focus(); location.hash = `#/questions/${encodeURIComponent(question.id)}`; told.close(); };
}

onEvents((events) => {
  for (const event of events) {
    if (event.kind === "permission_decided" && questions.has(event.question)) {
      answered.set(event.question, { answer: event.answer, by: event.by, reason: event.reason, row: questions.get(event.question), at: Date.now() });
    }
  }
  if (events.some((event) => CHANGES.has(event.kind))) refresh();
});
