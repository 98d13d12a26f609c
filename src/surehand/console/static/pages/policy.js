// Policy: rules in force, a verdict while you type, what another rule would change, and which rules would save questions.

import { get, post } from "../api.js";
import { button, el, field, fill, line, prose, sayArgs, shown, table, toast, when } from "../dom.js";
import { noWorkspace, workspace, workspacePicker } from "../workspace.js";

const VERDICTS = { allow: "ok", ask: "warn", deny: "bad", error: "bad" };
export const verdictChip = (verdict) => el("span.chip", { class: VERDICTS[verdict] ?? "" }, verdict);

export function mount(root) {
  const verdict = el("div.verdict-box", { role: "status", "aria-live": "polite" });
  const differs = el("div");
  const rules = el("div");
  const suggestions = el("div");
  const typed = el("input", { type: "text", placeholder: "git push --force   ·   https://example.com   ·   read .env   ·   write src/app.py", spellcheck: "false", autocapitalize: "off" });
  const tried = el("textarea", { rows: 2, placeholder: "deny Bash(rm:*)", spellcheck: "false" });
  let timer = 0;
  let turn = 0;

  async function check() {
    const text = typed.value.trim();
    if (!text) { fill(verdict); return; }
    const mine = ++turn;
    if (!verdict.childElementCount) fill(verdict, el("p.hint", {}, "Checking…"));
    try {
      const answer = await post("/api/policy/check", { workspace: workspace(), typed: text, rules: tried.value });
      if (mine === turn) fill(verdict, explain(answer));
    } catch (problem) { if (mine === turn) fill(verdict, el("p.problem", {}, [problem.message, problem.hint].filter(Boolean).join(". "))); }
  }
  const soon = () => { clearTimeout(timer); timer = setTimeout(check, 200); };
  typed.addEventListener("input", soon);
  tried.addEventListener("input", soon);

  async function compare() {
    try {
      const found = await post("/api/policy/compare", { workspace: workspace(), rules: tried.value });
      fill(differs, el("p.muted", {}, `${found.differences} of the ${found.calls} calls of the last ${found.days} days would be judged differently.`),
        table(["When", "Call", "Now", "With these rules"], found.rows.map((row) => el("tr", {}, el("td", {}, when(row.at)), el("td.mono", {}, row.tool, " ", line(sayArgs(row.args), 160)), el("td", {}, verdictChip(row.before)), el("td", {}, verdictChip(row.now))))));
    } catch (problem) { toast(problem.message, "bad"); }
  }

  async function save() {
    const [first, ...more] = tried.value.split("\n").map((each) => each.trim()).filter(Boolean);
    if (!first || more.length) { toast("Enter exactly one rule to save it.", "bad"); return; }
    await saveRule(first);
  }

  async function saveRule(rule) {
    try {
      const { saved, sessions } = await post("/api/policy/rules", { rule });
      toast(`Saved: allow ${saved}. ${sessions} running ${sessions === 1 ? "session uses" : "sessions use"} it from now on.`);
      show();
    } catch (problem) { toast([problem.message, problem.hint].filter(Boolean).join(". "), "bad"); }
  }

  async function show() {
    if (!workspace()) { fill(parts, noWorkspace()); return; }
    try {
      const [listed, suggested] = await Promise.all([get("/api/policy/rules", { workspace: workspace() }), get("/api/policy/suggestions", { workspace: workspace() })]);
      fill(rules, listed.warnings.map((each) => el("p.problem", {}, shown(each))), ruleTable(listed));
      fill(suggestions, table(["Rule", "Questions saved", "(Answer)"], suggested.suggestions.map((each) => el("tr", {}, el("td.mono", {}, shown(each.rule)), el("td", {}, String(each.questions)),
        el("td", {}, button("Allow always", () => saveRule(`allow ${each.rule}`), { class: "quiet", "aria-label": `Allow always: ${each.rule}` })))), "No rule would have saved you a question lately."));
    } catch (problem) { fill(rules, el("p.problem", {}, problem.message)); }
    check();
  }

  const parts = el("div.parts", {},
    el("section.card", {}, field("Check a command, address or path", typed, "A command, a URL, or `read` or `write` with a path. Nothing is run."), verdict),
    el("section.card", {}, field("Try rules before you save them", tried, "One per line. They count for the check above and for the comparison with recorded calls."),
      el("div.dialog-buttons", {}, button("Compare with recorded calls", compare), button("Save the rule", save, { class: "primary" })), differs),
    el("section.card", {}, el("h2", {}, "Suggested rules"), el("p.hint", {}, "They would have saved you the most questions."), suggestions),
    el("section.card", {}, el("h2", {}, "Rules in force"), rules));
  root.append(el("div.page-head", {}, el("h1", {}, "Policy"), el("span.grow"), workspacePicker(show)), parts);
  return () => clearTimeout(timer);
}

/** What an effect is about: a path, an address, a command, a server's tool, an agent, or why it is unknown. */
function subject(effect) {
  if (effect.kind === "remote") return `${effect.tool} of ${effect.server}`;
  return effect.path ?? effect.url ?? effect.host ?? effect.words?.join(" ") ?? effect.profile ?? effect.reason ?? "";
}

function explain(answer) {
  return [
    el("p", {}, verdictChip(answer.decision), " ", prose(answer.reason)),
    table(["Verdict", "Command"], (answer.commands ?? []).map((each) => el("tr", {}, el("td", {}, verdictChip(each.verdict)), el("td.mono", {}, line(each.words.join(" "), 300))))),
    answer.effects?.length > 0 && el("details", { open: answer.effects.some((each) => each.verdict === "deny") }, el("summary", {}, `${answer.effects.length} ${answer.effects.length === 1 ? "effect" : "effects"}`),
      table(["Verdict", "Effect", "Why"], answer.effects.map((each) => el("tr", {}, el("td", {}, verdictChip(each.verdict)), el("td.mono", {}, each.kind, " ", line(subject(each), 300)), el("td.muted", {}, prose(each.why ?? "")))))),
    answer.rules?.length > 0 && el("p.hint", {}, "Rules: ", answer.rules.map((each) => [el("span.mono", {}, shown(`${each.verdict} ${each.rule}`)), each.source ? ` (${each.source}) ` : " "])),
    answer.suggestion && el("p.hint", {}, "This rule would save the question: ", el("span.mono", {}, shown(`allow ${answer.suggestion}`))),
    answer.hint && el("p.hint", {}, shown(answer.hint)),
  ];
}

function ruleTable({ mode, rules }) {
  const own = rules.filter((rule) => rule.source !== "built-in");
  const built = rules.filter((rule) => rule.source === "built-in");
  const listed = (rows) => table(["Verdict", "Rule", "From", "Reason"],
    rows.map((rule) => el("tr", {}, el("td", {}, verdictChip(rule.verdict)), el("td.mono", {}, shown(rule.rule ?? rule.text)), el("td.muted", {}, shown([rule.source, rule.file && `${rule.file}${rule.line ? `:${rule.line}` : ""}`].filter(Boolean).join(" "))), el("td.muted", {}, shown(rule.reason ?? "")))), "You have no rules of your own.");
  return [el("p.muted", {}, `Mode: ${mode}`), listed(own),
    el("details", {}, el("summary", {}, `${built.length} built-in rules`), listed(built))];
}
