// Audit: the record of every call, filtered and followed, and the check that nobody altered it.

import { get, onEvents } from "../api.js";
import { button, code, dialog, el, empty, fill, line, sayArgs, shown, table, when } from "../dom.js";
import { verdictChip } from "./policy.js";
import { noWorkspace, workspace, workspacePicker } from "../workspace.js";

export function mount(root) {
  const list = el("div", {}, el("p.hint", { role: "status" }, "Loading…"));
  const proof = el("p", { role: "status" });
  const text = el("input", { type: "search", placeholder: "Search records", "aria-label": "Only records with these words" });
  const tool = el("input", { type: "text", placeholder: "Tool", "aria-label": "Only of this tool" });
  const refused = el("input", { type: "checkbox", id: "audit-refused" });
  const follow = el("input", { type: "checkbox", id: "audit-follow", checked: true });
  let records = [];
  let timer = 0;

  const query = (before = 0) => ({ workspace: workspace(), text: text.value, tool: tool.value, refused: refused.checked ? "1" : "", limit: 200, before });

  async function show() {
    filters.hidden = verifyButton.hidden = !workspace();
    if (!workspace()) { fill(list, noWorkspace()); return; }
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
    const filtered = text.value || tool.value || refused.checked;
    if (!total) { fill(list, filtered ? empty("No matching records", "Change or clear the filters above.") : empty("No records yet", "Every call is recorded here, refused ones included.")); return; }
    fill(list, el("p.hint", {}, `${total.toLocaleString()} ${total === 1 ? "record" : "records"}`),
      table(["Record", "When", "Tool", "Arguments", "Verdict", "Result"],
        records.map((record) => el("tr.clickable", { onclick: () => open(record) },
          el("td", {}, button(String(record.n), (event) => { event.stopPropagation(); open(record); }, { class: "quiet link", "aria-label": `Record ${record.n}` })), el("td.muted", {}, when(record.at)), el("td", {}, el("b", {}, shown(record.tool ?? record.kind))), el("td.mono", {}, line(sayArgs(record.args ?? {}), 120)),
          el("td", {}, record.approval ? el("span.chip", {}, `asked: ${record.approval.answer}`) : record.verdict && verdictChip(record.verdict)),
          el("td", {}, el("span.chip", { class: record.ok ? "ok" : record.kind === "call" ? "bad" : "warn" }, record.kind !== "call" ? record.kind : record.ok ? "ok" : record.error?.code ?? "failed"))))),
      records.length < total && button("Older", more));
  }

  const open = (record) => dialog(`Record ${record.n}`, code(JSON.stringify(record, null, 2), "Record"), [{ text: "Close", value: true, autofocus: true }]);

  async function verify() {
    fill(proof, "Checking…");
    try {
      const found = await get("/api/audit/verify", { workspace: workspace() });
      fill(proof, found.ok ? el("span.chip.ok", {}, `Verified: ${found.lines.toLocaleString()} records, none missing or altered`) : [el("span.chip.bad", {}, "The chain is broken"), found.faults.slice(0, 20).map((each) => el("span", {}, " ", shown(each)))]);
    } catch (problem) { fill(proof, problem.message); }
  }

  const soon = () => { clearTimeout(timer); timer = setTimeout(show, 250); };
  for (const each of [text, tool]) each.addEventListener("input", soon);
  refused.addEventListener("change", show);
  const verifyButton = button("Verify the chain", verify);
  const filters = el("div.filters", { role: "search" }, text, tool, el("label", {}, refused, " Refused only"), el("label", {}, follow, " Follow"));
  const unfollow = onEvents((events) => { if (follow.checked && events.some((event) => event.kind === "call_finished")) { clearTimeout(timer); timer = setTimeout(show, 1000); } });
  root.append(el("div.page-head", {}, el("h1", {}, "Audit"), el("span.grow"), workspacePicker(show), verifyButton), proof, filters, list);
  return () => { unfollow(); clearTimeout(timer); };
}
