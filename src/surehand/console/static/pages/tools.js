// Tools: what each takes, how it is and was, and a form made from its schema to call it.

import { get, post } from "../api.js";
import { button, code, el, field, fill, prose, shown, toast, took } from "../dom.js";
import { sparkline } from "../chart.js";
import { noWorkspace, workspace, workspacePicker } from "../workspace.js";

const FLAGS = [["read_only", "read-only"], ["destructive", "destructive"], ["requires_permission", "asks"], ["idempotent", "idempotent"], ["concurrency_safe", "parallel"]];
const USUAL = new Set(["registered", "ready", "idle"]);

export function mount(root, [wanted]) {
  const list = el("div", {}, el("p.hint", { role: "status" }, "Loading…"));
  const search = el("input", { type: "search", placeholder: "Name or description", "aria-label": "Filter tools" });
  let tools = [];

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = tools.filter((tool) => words.every((word) => `${tool.name} ${tool.description}`.toLowerCase().includes(word)));
    fill(list, found.length ? el("div.tool-list", {}, found.map(card)) : el("p.empty", {}, "No matching tools."));
  }

  function card(tool) {
    const calls = tool.figures?.calls ?? 0;
    const failed = Object.values(tool.figures?.errors ?? {}).reduce((sum, each) => sum + each, 0);
    const body = el("div.tool-body");
    const details = el("details.card", { id: `tool-${tool.name}`, open: tool.name === wanted },
      el("summary", {}, el("h2", {}, shown(tool.name)), !USUAL.has(tool.state) && el("span.chip", { class: ["error", "failed", "disabled", "switched off"].includes(tool.state) ? "bad" : "" }, tool.state),
        FLAGS.filter(([flag]) => tool[flag]).map(([, word]) => el("span.chip", {}, word)),
        el("span.muted.tool-figures", {}, calls ? ` ${calls.toLocaleString()} ${calls === 1 ? "call" : "calls"} this week${failed ? `, ${failed} failed` : ""}` : ""),
        el("span.muted.tool-about", {}, prose(tool.description.split("\n")[0], 300))),
      body);
    const open = () => { if (details.open && !body.childNodes.length) fill(body, page(tool, calls)); };
    details.addEventListener("toggle", open);
    open();
    return details;
  }

  function page(tool, calls) {
    const result = el("div", { role: "status" });
    const form = schemaForm(tool.inputSchema);
    async function call(dryRun) {
      let args;
      try { args = form.value(); } catch (problem) { toast(problem.message, "bad"); return; }
      fill(result, el("p.muted", {}, "Running…"));
      try {
        const answer = await post("/api/tools/call", { workspace: workspace(), tool: tool.name, args, dry_run: dryRun });
        fill(result, el("p", {}, el("span.chip", { class: answer.ok ? "ok" : "bad" }, answer.ok ? (dryRun ? "dry run" : "ok") : answer.error.code)), code(answer.output || JSON.stringify(answer.data, null, 2), "Result"), answer.error?.hint && el("p.hint", {}, shown(answer.error.hint)));
      } catch (problem) { fill(result, el("p.problem", {}, problem.message)); }
    }
    async function health() {
      try {
        const report = await post("/api/tools/health", { workspace: workspace(), tool: tool.name });
        toast(`${tool.name}: ${report.status}${report.message ? `, ${report.message}` : ""}`, report.status === "healthy" ? "" : "bad");
      } catch (problem) { toast(problem.message, "bad"); }
    }
    async function flip() {
      const enabled = tool.state === "switched off";
      try {
        const done = await post("/api/tools/switch", { workspace: workspace(), tool: tool.name, enabled });
        toast(`${tool.name} is ${enabled ? "enabled" : "disabled"}, also in ${done.sessions} running ${done.sessions === 1 ? "session" : "sessions"}`);
        show();
      } catch (problem) { toast(problem.message, "bad"); }
    }
    return [
      el("p", {}, prose(tool.description.split("\n").slice(1).join("\n").trim())),
      calls > 0 && figuresOf(tool),
      el("div.tool-form", {}, form.element),
      el("div.dialog-buttons", {}, button(tool.state === "switched off" ? "Enable" : "Disable", flip, { class: "quiet" }), button("Check health", health, { class: "quiet" }), button("Dry run", () => call(true)), button("Call", () => call(false), { class: "primary" })),
      result,
      el("details", {}, el("summary", {}, "Schema"), code(JSON.stringify(tool.inputSchema, null, 2), "Schema")),
    ];
  }

  async function show() {
    search.hidden = !workspace();
    if (!workspace()) { fill(list, noWorkspace()); return; }
    try { ({ tools } = await get("/api/tools", { workspace: workspace() })); draw(); }
    catch (problem) { fill(list, el("p.problem", { role: "alert" }, problem.message)); }
  }
  search.addEventListener("input", draw);
  root.append(el("div.page-head", {}, el("h1", {}, "Tools"), el("span.grow"), search, workspacePicker(show)), list);
}

function figuresOf({ name, figures }) {
  const errors = Object.entries(figures.errors).map(([kind, count]) => [el("span.chip.bad", {}, `${kind} ${count}`), " "]);
  return el("dl.facts", {}, el("dt", {}, "p50"), el("dd", {}, took(figures.p50_ms)), el("dt", {}, "p95"), el("dd", {}, took(figures.p95_ms)),
    el("dt", {}, "durations"), el("dd", {}, sparkline(figures.times, `distribution of the durations of ${name}`)), errors.length > 0 && [el("dt", {}, "errors"), el("dd", {}, errors)]);
}

/** A form for a JSON Schema: a field for each plain property, JSON for the rest. */
export function schemaForm(schema) {
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, one]) => {
    const kind = one.type ?? one.anyOf?.find((each) => each.type !== "null")?.type;
    const choices = one.enum ?? one.anyOf?.find((each) => each.enum)?.enum;
    let input;
    if (choices) input = el("select", {}, el("option", { value: "" }, "(not given)"), choices.map((each) => el("option", { value: JSON.stringify(each) }, String(each))));
    else if (kind === "boolean") input = el("select", {}, ["", "true", "false"].map((each) => el("option", { value: each }, each || "(not given)")));
    else if (kind === "integer" || kind === "number") input = el("input", { type: "number", step: kind === "integer" ? "1" : "any" });
    else if (kind === "string" && !/content|command|text|string|prompt|code/.test(name)) input = el("input", { type: "text", spellcheck: "false" });
    else input = el("textarea", { rows: 3, spellcheck: "false", placeholder: kind === "string" ? "" : "JSON" });
    const read = () => {
      if (input.value === "") return undefined;
      if (kind === "string" && !choices) return input.value;
      try { return JSON.parse(input.value); } catch { throw new Error(`${name} is not valid JSON`); }
    };
    return { name, read, element: field(required.has(name) ? `${name} *` : name, input, one.description ?? "") };
  });
  return {
    element: el("div.fields", {}, rows.map((row) => row.element)),
    value: () => Object.fromEntries(rows.map((row) => [row.name, row.read()]).filter(([, value]) => value !== undefined)),
  };
}
