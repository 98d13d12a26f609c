// Work: kept sessions with their transcripts, tasks that run, processes, MCP servers.

import { get, onEvents, post } from "../api.js";
import { diffView } from "../diff.js";
import { button, code, dialog, el, fill, line, sayArgs, shown, table, toast, took, when } from "../dom.js";
import { sessionName } from "../sessions.js";
import { noWorkspace, workspace, workspacePicker } from "../workspace.js";

export function mount(root) {
  const boxes = { tasks: el("div"), processes: el("div"), sessions: el("div"), servers: el("div") };
  const fail = (box) => (problem) => fill(box, el("p.problem", {}, problem.message));

  async function tasks() {
    const { tasks: found, silent } = await get("/api/tasks");
    const rows = found.filter((task) => task.status !== "completed" && task.status !== "cancelled" && task.status !== "deleted");
    fill(boxes.tasks, table(["Task", "State", "Session", "(Actions)"], rows.map((task) => el("tr", {}, el("td", {}, el("span.chip", {}, task.kind ?? "todo"), " ", line(task.title, 160)), el("td", {}, task.status), el("td.muted", {}, sessionName(task.session_id)),
      el("td", {}, task.kind && task.kind !== "todo" && task.status === "in_progress" && [button("Output", () => output(task), { class: "quiet", "aria-label": `Output of ${task.title}` }), button("Stop", () => stop(task), { class: "quiet danger", "aria-label": `Stop ${task.title}` })]))), "No background tasks."),
      silent.length > 0 && el("p.hint", {}, `${silent.length} ${silent.length === 1 ? "session does" : "sessions do"} not answer.`));
  }

  async function order(task, want) { return post("/api/tasks", { want, id: task.id, session_id: task.session_id, root: task.root }); }

  async function output(task) {
    const text = code("", "Output");
    const show = async () => { try { fill(text, shown((await order(task, "output")).output || "(nothing yet)")); } catch (problem) { fill(text, problem.message); clearInterval(timer); } };
    const timer = setInterval(show, 1000);
    show();
    await dialog(task.title, text, [{ text: "Close", value: true, autofocus: true }]);
    clearInterval(timer);
  }

  async function stop(task) {
    try { await order(task, "stop"); toast(`Stopped: ${task.title}`); await tasks(); } catch (problem) { toast(problem.message, "bad"); }
  }

  async function processes() {
    const { processes: found } = await get("/api/processes");
    fill(boxes.processes, table(["Process", "Command", "Running for", "(Actions)"], found.map((each) => el("tr", {}, el("td", {}, String(each.pid)), el("td.mono", {}, line(each.command, 200)), el("td", {}, took((each.seconds ?? 0) * 1000)), el("td", {}, each.orphan && el("span.chip.bad", {}, "orphaned"), button("Stop", () => stopProcess(each), { class: "quiet danger", "aria-label": `Stop process ${each.pid}` })))), "No running commands."),
      found.some((each) => each.orphan) && button("End orphaned processes", async () => {
        try { const done = await post("/api/processes/reap"); toast(`${done.ended.length} ended, ${done.removed.length} folders removed`); await processes(); } catch (problem) { toast(problem.message, "bad"); }
      }, { class: "danger" }));
  }

  async function stopProcess({ pid, started }) {
    try { await post("/api/processes/stop", { pid, started }); toast(`Stopped: process ${pid}`); await processes(); } catch (problem) { toast(problem.message, "bad"); }
  }

  async function sessions() {
    const { sessions: found } = await get("/api/kept-sessions", { workspace: workspace() });
    fill(boxes.sessions, table(["Session", "Last active", "Calls", "First prompt"], found.slice(0, 200).map((each) => el("tr", {}, el("td", {}, button(each.name, () => transcript(each.name), { class: "quiet link" }), " ", each.running && el("span.chip.run", {}, "running")), el("td.muted", {}, when(each.updated)), el("td", {}, String(each.calls)), el("td", {}, line(each.first, 120)))), "No sessions yet."));
  }

  async function transcript(name) {
    try {
      const { records } = await get("/api/transcript", { workspace: workspace(), name });
      await dialog(name, el("div.transcript", {}, records.map(said)), [{ text: "Close", value: true, autofocus: true }]);
    } catch (problem) { toast(problem.message, "bad"); }
  }

  async function servers(connect = false) {
    const { servers: found, warnings } = await get("/api/servers", { workspace: workspace(), connect: connect ? "1" : "" });
    fill(boxes.servers, warnings.map((each) => el("p.problem", {}, shown(each))), table(["Server", "State", "Tools", "Address or command"], found.map((each) => el("tr", {}, el("td", {}, el("b", {}, shown(each.name))), el("td", {}, el("span.chip", { class: each.state === "ready" || each.state === "connected" ? "ok" : each.problem ? "bad" : "" }, each.state)),
      el("td", {}, el("details", {}, el("summary", {}, String(each.tools.length)), el("span.mono", {}, shown(each.tools.join(", "))))), el("td.muted", {}, shown(each.problem || each.where)))), "No MCP servers configured. Add one with `surehand mcp add`."),
      found.flatMap((each) => Object.entries(each.changed)).map(([tool, change]) => el("section.card", { "aria-label": `Changed: ${tool}` }, el("p.problem", {}, shown(`The definition of ${tool} has changed since you approved it. Its calls ask until you approve the new one.`)), diffView(change, { title: "Its definition" }),
        button("Approve the new definition", () => approve(tool, change), { class: "primary" }))),
      found.length > 0 && button("Connect", () => servers(true).catch(fail(boxes.servers)), { class: "quiet" }));
  }

  async function approve(tool, change) {
    try { await post("/api/servers/approve", { workspace: workspace(), tool, change }); toast(`Approved: ${tool}`); await servers(); } catch (problem) { toast(problem.message, "bad"); }
  }

  const show = () => {
    tasks().catch(fail(boxes.tasks));
    processes().catch(fail(boxes.processes));
    if (!workspace()) { boxes.sessions.parentElement.hidden = boxes.servers.parentElement.hidden = true; if (!root.querySelector(".empty")) root.append(noWorkspace()); return; }
    sessions().catch(fail(boxes.sessions));
    servers().catch(fail(boxes.servers));
  };
  let due = 0;
  const unfollow = onEvents((events) => {
    if (due || !events.some((event) => /^(task|hello|session|call_finished)/.test(event.kind))) return;
    due = setTimeout(() => { due = 0; tasks().catch(fail(boxes.tasks)); processes().catch(fail(boxes.processes)); }, 1500);
  });
  root.append(el("div.page-head", {}, el("h1", {}, "Work"), el("span.grow"), workspacePicker(show)),
    el("section.card", {}, el("h2", {}, "Tasks"), boxes.tasks), el("section.card", {}, el("h2", {}, "Processes"), boxes.processes),
    el("section.card", {}, el("h2", {}, "Sessions"), boxes.sessions), el("section.card", {}, el("h2", {}, "MCP servers"), boxes.servers));
  return () => { unfollow(); clearTimeout(due); };
}

function said(record) {
  const data = record.data ?? {};
  if (record.kind === "message") return data.message?.text ? el("div.said", { class: data.message.role }, el("b", {}, data.message.role), el("p", {}, shown(data.message.text))) : null;
  if (record.kind === "call_finished") return el("div.said.call-line", {}, el("span.dot", { role: "img", "aria-label": data.result?.ok ? "ok" : "failed", class: data.result?.ok ? "ok" : "failed" }), el("b", {}, shown(record.tool)), el("span.mono", {}, line(sayArgs(data.call?.args ?? {}), 160)), data.result?.error && code(data.result.error.message, "Why it failed"));
  if (record.kind === "permission_decided") return el("p.hint", {}, shown(`${record.tool}: ${data.answer}${data.reason ? ` (${data.reason})` : ""}`));
  if (record.kind === "note") return el("p.hint", {}, shown(data.message ?? ""));
  return null;
}
