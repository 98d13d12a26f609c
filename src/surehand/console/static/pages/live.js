// Live: the calls of all sessions as they run, newest first, sub-agents as a tree under the call that started them.

import { get, onEvents } from "../api.js";
import { el, empty, fill, shown } from "../dom.js";
import { onSessions, sessionName, sessions } from "../sessions.js";
import { CallList } from "./live_list.js";
import { showCall } from "./live_detail.js";

const PAGE = 400;
const KEPT = 20_000;

export function mount(root, [chosen]) {
  root.classList.add("page-fill");
  const list = new CallList({ open: (call) => { location.hash = `#/live/${encodeURIComponent(call.call_id)}`; }, more: loadMore });
  const search = el("input", { type: "search", placeholder: "Search arguments, paths and output", "aria-label": "Filter by text", oninput: () => later(reload) });
  const state = select("State", ["running", "ok", "failed", "refused", "cancelled", "lost"]);
  const tool = select("Tool", []);
  const session = select("Session", []);
  const strip = el("div.session-strip", { role: "group", "aria-label": "Running sessions" });
  const count = el("span.muted"); // no live region: it changes with every call
  const none = el("div.none", { hidden: true });
  const split = el("div.split", {}, list.element);
  list.element.append(none);
  let total = 0;
  let loading = false;
  let timer = 0;
  let closeDetail = null;

  fill(root,
    el("div.page-head", {}, el("h1", {}, "Live"), count),
    strip,
    el("div.filters", { role: "search" }, search, session, tool, state),
    split);

  function select(name, options) {
    const made = el("select", { "aria-label": name, onchange: reload }, el("option", { value: "" }, `${name}: all`));
    made.append(...options.map((each) => el("option", { value: each }, each)));
    return made;
  }

  const filters = () => ({ text: search.value.trim(), state: state.value, tool: tool.value, session: session.value });

  function matches(call) {
    const wanted = filters();
    if (wanted.tool && call.tool !== wanted.tool) return false;
    if (wanted.state && call.state !== wanted.state) return false;
    if (wanted.session && call.session_id !== wanted.session && call.root !== wanted.session) return false;
    const text = `${call.tool} ${call.args ?? ""} ${call.output ?? ""} ${call.session_id}`.toLowerCase();
    return wanted.text.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  function later(action) {
    clearTimeout(timer);
    timer = setTimeout(action, 150);
  }

  async function reload() {
    loading = true;
    try {
      const found = await get("/api/calls", { limit: PAGE, ...filters() });
      total = found.total;
      list.replace(found.calls);
      for (const call of found.calls) addOption(tool, call.tool, call.tool);
      tell();
    } catch (problem) {
      none.hidden = false;
      fill(none, el("p.problem", { role: "alert" }, problem.message));
    } finally { loading = false; }
  }

  async function loadMore() {
    if (loading || list.size >= Math.min(total, KEPT)) return;
    loading = true;
    try {
      const found = await get("/api/calls", { limit: 1000, skip: list.size, ...filters() });
      total = found.total;
      list.append(found.calls);
      tell();
    } finally { loading = false; }
  }

  function addOption(into, value, text) {
    if (![...into.options].some((each) => each.value === value)) into.append(el("option", { value }, text));
  }

  function tell() {
    const running = list.running();
    fill(count, `${total.toLocaleString()} ${total === 1 ? "call" : "calls"}${running ? `, ${running} running` : ""}`);
    const filtered = Object.values(filters()).some(Boolean);
    none.hidden = list.size > 0;
    if (!list.size) fill(none, filtered ? empty("No matching calls", "Change or clear the filters above.") : empty("No calls yet", "Calls of every session appear here as they run. Start `surehand chat` in a folder, or connect an MCP client."));
  }

  function drawSessions() {
    fill(strip, [...sessions.values()].map((each) => el("button.session-card", {
      type: "button", title: `process ${each.pid}`, "aria-pressed": String(session.value === each.session_id),
      onclick: () => { session.value = session.value === each.session_id ? "" : each.session_id; drawSessions(); reload(); },
    }, el("b", {}, shown(sessionName(each.session_id))), el("span", {}, shown(each.workspace)), el("span", {}, shown(`${each.program} · ${each.mode} mode`)))));
    strip.hidden = !sessions.size;
    for (const each of sessions.values()) addOption(session, each.session_id, sessionName(each.session_id));
  }

  function open(id) {
    closeDetail?.();
    const panel = el("aside.detail", { "aria-label": "Call", tabIndex: -1 });
    split.append(panel);
    split.classList.add("open");
    list.choose(id);
    const stop = showCall(panel, id, () => { location.hash = "#/live"; });
    closeDetail = () => { const inside = panel.contains(document.activeElement); stop(); panel.remove(); split.classList.remove("open"); list.choose(null); if (inside) list.focus(id); closeDetail = null; };
    panel.focus();
  }

  const calls = list.calls;
  const stopEvents = onEvents((events) => {
    let fresh = 0;
    for (const event of events) {
      if (event.kind === "call_started") {
        const call = { ...event, state: "running" };
        if (!calls.has(call.call_id) && matches(call)) { calls.set(call.call_id, call); list.add(call); fresh += 1; addOption(tool, call.tool, call.tool); }
      } else if (event.kind === "call_progress") {
        const call = calls.get(event.call_id);
        if (call) { call.progress = event; list.touch(); }
      } else if (event.kind === "call_finished") {
        const { kind, seq, at, ...rest } = event;
        const known = calls.get(event.call_id);
        const done = { ...(known ?? { at }), ...rest, ended: at, state: stateOf(event) };
        if (known) { Object.assign(known, done); list.touch(); } else if (matches(done)) { list.add(done); fresh += 1; }
      } else if (event.kind === "subagent_start") {
        list.callers.set(event.child_session_id, event.caller);
      } else if (event.kind === "session_closed" || event.kind === "session_lost") {
        for (const call of calls.values()) {
          if (call.state === "running" && (call.session_id === event.session_id || call.root === event.session_id)) call.state = "lost";
        }
        list.touch();
      } else if (event.kind === "gap" && event.reader) {
        later(reload);
      }
    }
    total += fresh;
    tell();
  });
  const stopSessions = onSessions(drawSessions);
  drawSessions();
  reload();
  if (chosen) open(chosen);
  const leave = () => { stopEvents(); stopSessions(); list.close(); clearTimeout(timer); closeDetail?.(); };
  return { leave, go: ([id]) => { chosen = id; if (id) open(id); else closeDetail?.(); } };
}

function stateOf(event) {
  if (event.ok) return "ok";
  return { permission_denied: "refused", cancelled: "cancelled" }[event.error?.code] ?? "failed";
}
