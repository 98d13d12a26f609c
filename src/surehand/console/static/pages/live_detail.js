// One call, whole: what was asked, what came of it, what it was judged by; and stopping it.

import { get, onEvents, post } from "../api.js";
import { diffView } from "../diff.js";
import { button, code, el, fill, prose, shown, toast, took, when } from "../dom.js";
import { sessionName } from "../sessions.js";

const ABOVE = new Set(["tool", "call_id", "session_id", "started", "started_at", "duration_ms", "source", "origin"]); // what the facts say already
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function showCall(panel, id, close) {
  async function load() {
    try {
      draw(await get(`/api/calls/${encodeURIComponent(id)}`));
    } catch (problem) {
      fill(panel, head("Call", close), el("p.problem", {}, problem.message));
    }
  }

  async function stop() {
    try { await post(`/api/calls/${encodeURIComponent(id)}/stop`); toast("Stopping the call."); } catch (problem) { toast(problem.message, "bad"); }
  }

  function draw(call) {
    const error = call.error && [call.error.message, call.error.hint].filter(Boolean).join("\n");
    fill(panel,
      head(call.tool, close, call.state === "running" && button("Stop", stop, { class: "danger" })),
      el("dl.facts", {}, facts(call).map(([name, value]) => [el("dt", {}, name), el("dd", {}, shown(value))])),
      part("Arguments", call.args && args(call.args)),
      part("Error", error && code(error, "Why it failed")),
      part("Image", (call.images ?? []).filter((each) => IMAGES.has(each.mime_type)).map((each) => el("img", { alt: "image in the result", src: `data:${each.mime_type};base64,${each.data}` }))),
      part("Change", call.diff && diffView(call.diff)),
      part(call.whole ? "Result" : "Result, shortened", call.output && !error?.includes(call.output) && code(call.output, "Result")),
      part("Judged", judged(call)),
      part("Details", call.meta && resources(call.meta)),
      !call.whole && call.state !== "running" && el("p.hint", {}, "Only what the audit log recorded is left: the session has ended, or the call is too old."));
  }

  fill(panel, head("Call", close), el("p.hint", { role: "status" }, "Loading…"));
  load();
  const stopEvents = onEvents((events) => { if (events.some((each) => each.call_id === id && each.kind === "call_finished")) load(); });
  const escape = (event) => { if (event.key === "Escape" && !event.target.closest("dialog")) close(); };
  document.addEventListener("keydown", escape);
  return () => { stopEvents(); document.removeEventListener("keydown", escape); };
}

function head(title, close, more) {
  return el("div.detail-head", {}, el("h2", {}, shown(title)), more, button("Close", close, { class: "quiet" }));
}

function part(title, content) {
  if (!content || (Array.isArray(content) && !content.length)) return null;
  return el("section", {}, title && el("h3", {}, title), content);
}

function args(given) {
  if (typeof given === "string") return code(given, "Arguments");
  return Object.entries(given).map(([name, value]) => el("div", {}, el("span.hint", {}, shown(name, 100)), code(typeof value === "string" ? value : JSON.stringify(value, null, 2), name)));
}

function facts(call) {
  const approval = call.approval && [call.approval.answer, call.approval.by && `by ${call.approval.by}`].filter(Boolean).join(" ");
  const rows = [["State", call.state], ["Session", sessionName(call.session_id)], ["Started", when(call.at)], ["Duration", took(call.duration_ms)],
    ["Verdict", call.verdict], ["Why", call.reason ?? call.why], ["Rules", rulesOf(call).join("\n")], ["Approval", approval], ["Called by", call.source], ["Origin", call.origin], ["Change", call.change_id]];
  return rows.filter(([, value]) => value);
}

function rulesOf(call) {
  return (call.rules ?? []).map((each) => (typeof each === "string" ? each : each.rule));
}

function judged(call) {
  const effects = call.judged?.effects ?? [];
  return effects.length ? el("ul.effects-list", {}, effects.slice(0, 200).map(({ verdict, why, kind, ...rest }) =>
    el("li", {}, el("span.chip", { class: { allow: "ok", ask: "warn", deny: "bad" }[verdict] }, verdict), el("span", {}, shown(`${kind} ${Object.values(rest).filter((each) => typeof each !== "boolean").map((each) => (Array.isArray(each) ? each.join(" ") : each)).join(" ")}`, 500), el("span.muted", {}, " ", prose(why, 200)))))) : null;
}

function resources(meta) {
  const rows = Object.entries(meta).filter(([name, value]) => !ABOVE.has(name) && value !== false && ["string", "number", "boolean"].includes(typeof value));
  return rows.length ? el("dl.facts", {}, rows.map(([name, value]) => [el("dt", {}, shown(name.replace(/_/g, " "))), el("dd", {}, shown(String(value), 400))])) : null;
}
