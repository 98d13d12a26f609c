// One call, whole: what was asked, what came of it, what it was judged by.

import { get, onEvents } from "../api.js";
import { button, code, el, fill, shown, took, when } from "../dom.js";
import { sessionName } from "../sessions.js";

export function showCall(panel, id, close) {
  async function load() {
    try {
      draw(await get(`/api/calls/${encodeURIComponent(id)}`));
    } catch (problem) {
      fill(panel, head("Call", close), el("p.problem", {}, problem.message));
    }
  }

  function draw(call) {
    fill(panel,
      head(call.tool, close),
      el("dl.facts", {}, facts(call).map(([name, value]) => [el("dt", {}, name), el("dd", {}, shown(value))])),
      part("Arguments", call.args && code(typeof call.args === "string" ? call.args : JSON.stringify(call.args, null, 2))),
      part("Result", call.output && code(call.output)));
  }

  load();
  const stop = onEvents((events) => { if (events.some((each) => each.call_id === id && each.kind === "call_finished")) load(); });
  const escape = (event) => { if (event.key === "Escape" && !event.target.closest("dialog")) close(); };
  document.addEventListener("keydown", escape);
  return () => { stop(); document.removeEventListener("keydown", escape); };
}

function head(title, close) {
  return el("div.detail-head", {}, el("h2", {}, shown(title)), button("Close", close, { class: "quiet" }));
}

function part(title, content) {
  return content ? el("section", {}, el("h3", {}, title), content) : null;
}

function facts(call) {
  const rows = [["State", call.state], ["Session", sessionName(call.session_id)], ["Began", when(call.at)], ["Took", took(call.duration_ms)],
    ["Verdict", call.verdict], ["Why", call.reason ?? call.why], ["Rules", (call.rules ?? []).map((each) => each.rule ?? each).join("\n")], ["Asked for by", call.source], ["Origin", call.origin]];
  return rows.filter(([, value]) => value);
}
