// Audit: the record of every call, filtered and followed, and the proof that nobody touched it.

import { get, onEvents } from "../api.js";
import { button, code, dialog, el, fill, line, sayArgs, shown, table, when } from "../dom.js";
import { verdictChip } from "./policy.js";
import { workspace, workspacePicker } from "../workspace.js";

export function mount(root) {
  const list = el("div");
  const proof = el("p", { role: "status" });
  const text = el("input", { type: "search", placeholder: "Words", "aria-label": "Only records with these words" });
  const tool = el("input", { type: "text", placeholder: "Tool", "aria-label": "Only of this tool" });
  const refused = el("input", { type: "checkbox", id: "audit-refused" });
  const follow = el("input", { type: "checkbox", id: "audit-follow", checked: true });
  let records = [];
  let timer = 0;

  const query = (before = 0) => ({ workspace: workspace(), text: text.value, tool: tool.value, refused: refused.checked ? "1" : "", limit: 200, before });

  async function show() {
    if (!workspace()) return;
    try {
      const found = await get("/api/audit", query());
      records = found.records;
      draw(found.total);
    } catch (problem) { fill(list, el("p.problem", {}, problem.message)); }
  }

  async function more() {
    const found = await get("/api/audit", query(records[records.length - 1].n));
    records = [...records, ...found.records];
    draw(records.length + found.total - found.records.length);
  }

  function draw(total) {
    fill(list, el("p.hint", {}, `${total.toLocaleString()} records`),
      table(["Record", "When", "Tool", "Arguments", "Verdict", "Result"],
        records.map((record) => el("tr.clickable", { onclick: () => open(record) },
          el("td", {}, button(String(record.n), (event) => { event.stopPropagation(); open(record); }, { class: "quiet", "aria-label": `Record ${record.n}` })), el("td.muted", {}, when(record.at)), el("td", {}, el("b", {}, shown(record.tool ?? record.kind))), el("td.mono", {}, line(sayArgs(record.args ?? {}), 120)),
          el("td", {}, record.approval ? el("span.chip", {}, `asked: ${record.approval.answer}`) : record.verdict && verdictChip(record.verdict)),
          el("td", {}, el("span.chip", { class: record.ok ? "ok" : record.kind === "call" ? "bad" : "warn" }, record.kind !== "call" ? record.kind : record.ok ? "ok" : record.error?.code ?? "failed"))))),
      records.length < total && button("Older", more));
  }

  const open = (record) => dialog(`Record ${record.n}`, code(JSON.stringify(record, null, 2), "Record"), [{ text: "Close", value: true, autofocus: true }]);

  async function verify() {
    fill(proof, "checking…");
    try {
      const found = await get("/api/audit/verify", { workspace: workspace() });
      fill(proof, found.ok ? el("span.chip.ok", {}, `${found.lines.toLocaleString()} records, the chain is whole`) : [el("span.chip.bad", {}, "the chain is broken"), found.faults.slice(0, 20).map((each) => el("span", {}, " ", shown(each)))]);
    } catch (problem) { fill(proof, problem.message); }
  }

  const soon = () => { clearTimeout(timer); timer = setTimeout(show, 250); };
  for (const each of [text, tool]) each.addEventListener("input", soon);
  refused.addEventListener("change", show);
  const unfollow = onEvents((events) => { if (follow.checked && events.some((event) => event.kind === "call_finished")) { clearTimeout(timer); timer = setTimeout(show, 1000); } });
  root.append(el("div.page-head", {}, el("h1", {}, "Audit"), el("span.grow"), workspacePicker(show), button("Verify the chain", verify)), proof,
    el("div.filters", {}, text, tool, el("label", {}, refused, " refused only"), el("label", {}, follow, " follow")), list);
  return () => { unfollow(); clearTimeout(timer); };
}
