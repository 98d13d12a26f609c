// Changes: the undo history as a timeline by turn; undo and redo with what they would do shown first.

import { get, onEvents, post } from "../api.js";
import { diffView } from "../diff.js";
import { base, button, bytes, dialog, el, empty, field, fill, shown, toast, when } from "../dom.js";
import { sessionName } from "../sessions.js";
import { noWorkspace } from "../workspace.js";

const PAGE = 300;
const SIGNS = { created: "+", deleted: "−", changed: "~" };

export function mount(root, [chosenWorkspace]) {
  const workspace = el("select", { "aria-label": "Workspace", onchange: () => { location.hash = `#/changes/${encodeURIComponent(workspace.value)}`; } });
  const session = el("select", { "aria-label": "Session", onchange: reload }, el("option", { value: "" }, "Session: all"));
  const file = el("input", { type: "search", placeholder: "File or folder", "aria-label": "Only this file or folder", onchange: reload });
  const about = el("span.muted");
  const timeline = el("div.timeline");
  const wholeSession = button("Undo this session…", () => reverse("undo", { session: session.value }, `Undo everything session ${sessionName(session.value)} changed`), { hidden: true });
  const pruneButton = button("Prune…", prune, { class: "quiet" });
  let limit = PAGE;
  let size = 0;
  let timer = 0;

  const filters = el("div.filters", { role: "search" }, workspace, session, file);
  fill(timeline, el("p.hint", { role: "status" }, "Loading…"));
  fill(root, el("div.page-head", {}, el("h1", {}, "Changes"), about, el("span.grow"), wholeSession, pruneButton), filters, timeline);

  async function start() {
    try {
      const { workspaces } = await get("/api/workspaces");
      fill(workspace, workspaces.map((each) => el("option", { value: each.path }, `${base(each.path)}${each.running ? " (in use)" : ""} – ${each.path}`)));
      if (chosenWorkspace) workspace.value = chosenWorkspace;
      filters.hidden = pruneButton.hidden = !workspaces.length;
      if (!workspaces.length) { fill(timeline, noWorkspace()); return; }
      await reload();
    } catch (problem) { fill(timeline, el("p.problem", {}, problem.message)); }
  }

  async function reload() {
    if (!workspace.value) return;
    try {
      draw(await get("/api/changes", { workspace: workspace.value, session: session.value, file: file.value.trim(), limit }));
    } catch (problem) { fill(timeline, el("p.problem", {}, problem.message)); }
  }

  function draw({ changes, dropped, size_bytes }) {
    size = size_bytes;
    fill(about, `${changes.length}${changes.length === limit ? "+" : ""} ${changes.length === 1 ? "change" : "changes"}, ${bytes(size_bytes)} of history`);
    for (const each of changes) {
      const id = each.main_session_id || each.session_id;
      if (id && ![...session.options].some((option) => option.value === id)) session.append(el("option", { value: id }, sessionName(id)));
    }
    wholeSession.hidden = !session.value;
    const open = new Set([...timeline.querySelectorAll("details[open]")].map((each) => each.dataset.change));
    const groups = [];
    for (const change of changes) {
      const key = change.turn || change.id;
      if (groups.at(-1)?.key !== key) groups.push({ key, turn: change.turn, changes: [] });
      groups.at(-1).changes.push(change);
    }
    fill(timeline,
      groups.map((group) => drawGroup(group, open)),
      !changes.length && (session.value || file.value ? empty("No matching changes", "Change or clear the filters above.") : empty("No changes yet", "Every change to a file of this workspace appears here and can be undone.")),
      changes.length === limit && button("Older changes", () => { limit += PAGE; reload(); }),
      dropped && el("p.hint", {}, shown(dropped)));
  }

  function drawGroup({ turn, changes }, open) {
    const first = changes[0];
    const standing = changes.filter((each) => each.kind === "change" && each.state === "done");
    return el("div.turn", {},
      el("div.turn-head", {}, el("h2", {}, when(first.at)), el("span.chip", {}, shown(sessionName(first.main_session_id || first.session_id), 60)), el("span.muted", {}, `${changes.length} change${changes.length > 1 ? "s" : ""}`), el("span.grow"),
        turn && standing.length > 1 && button("Undo turn…", () => reverse("undo", { turns: [turn] }, "Undo the whole turn"), { class: "quiet" })),
      changes.map((change) => drawChange(change, open)));
  }

  function drawChange(change, open) {
    const isUndone = change.kind === "change" && change.state === "undone";
    const word = change.kind !== "change" ? `${change.kind} of ${change.about.join(", ")}` : change.state === "done" ? "" : change.state;
    const details = el("details.change", { "data-change": change.id, class: isUndone ? "undone" : "", ontoggle: () => { if (details.open && !body.childElementCount) load(); } },
      el("summary", {}, el("span.change-id", {}, change.id), el("b", {}, shown(change.tool, 60)), el("span.change-files", {}, files(change)), word && el("span.chip", { class: change.kind === "change" ? "warn" : "run" }, word)),
    );
    const body = el("div.change-body");
    details.append(body);

    async function load() {
      fill(body, el("p.hint", { role: "status" }, "Loading…"));
      try {
        const whole = await get(`/api/changes/${encodeURIComponent(change.id)}`, { workspace: workspace.value });
        fill(body,
          el("dl.facts", {}, [["Changed by", `${sessionName(change.session_id)} (${change.tool})`], ["What", change.description], ["Note", change.note], ["Call", change.call_id]].filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, shown(value, 600))])),
          whole.diff ? diffView(whole.diff) : el("p.hint", {}, "No files differ."),
          el("div.answers", {},
            change.kind !== "redo" && !isUndone && change.kind !== "undo" && button("Undo this…", () => reverse("undo", { change_id: change.id }, `Undo change ${change.id}`), { class: "primary", "data-action": "undo" }),
            (isUndone || change.kind === "undo") && button("Redo…", () => reverse("redo", { change_id: change.id }, `Redo change ${change.id}`), { class: "primary", "data-action": "redo" }),
            button("Undo everything after…", () => reverse("undo", session.value ? { to: change.id, session: session.value } : { to: change.id, all_sessions: true }, `Undo everything after change ${change.id}`), { "data-action": "back" }),
            change.call_id && el("a.button", { href: `#/live/${encodeURIComponent(change.call_id)}` }, "Show call")));
      } catch (problem) { fill(body, el("p.problem", {}, problem.message)); }
    }
    if (open.has(change.id)) details.open = true;
    return details;
  }

  function files(change) {
    if (!change.files.length) return shown(change.description, 200);
    const names = change.files.slice(0, 3).map((each) => `${SIGNS[each.action]} ${each.path.startsWith(`${workspace.value}/`) ? each.path.slice(workspace.value.length + 1) : each.path}`);
    return [...shown(names.join("   "), 300), change.file_count > 3 ? ` and ${change.file_count - 3} more` : ""];
  }

  /** Show what undo or redo would do, with conflicts, and do exactly that once it is wanted. */
  async function reverse(verb, what, title) {
    const chosen = { workspace: workspace.value, ...what };
    const body = el("div.dialog-body");
    let preview = null;

    async function look(more = {}) {
      Object.assign(chosen, more);
      fill(body, el("p.hint", {}, "Checking what would change…"));
      try {
        preview = await post(`/api/${verb}`, { ...chosen, dry_run: true });
        drawPreview();
      } catch (problem) { preview = null; fill(body, el("p.problem", { role: "alert" }, problem.message)); }
    }

    function drawPreview() {
      if (preview.ok) {
        fill(body, el("p", {}, shown(preview.summary, 2000)), chosen.force && el("p.foreign", {}, "Later changes are overwritten. They stay in the history and can be restored."),
          preview.diff ? diffView(preview.diff, { title: "This would change" }) : el("p.hint", {}, "No file would change."));
        return;
      }
      const { message, hint, details } = preview.error;
      const conflict = details?.diff !== undefined;
      fill(body, el("p.problem", { role: "alert" }, shown(message.split("\n")[0], 1000)), hint && el("p.hint", {}, shown(hint, 1000)),
        conflict && diffView(details.diff, { title: "What would be lost" }),
        conflict && el("div.answers", {}, !chosen.merge && button("Merge: keep changes to other lines", () => look({ merge: true, force: false })), !chosen.force && button("Overwrite", () => look({ force: true, merge: false }), { class: "danger" })));
    }

    look();
    const done = await dialog(title, body, [
      { text: "Cancel", value: null, class: "quiet" },
      {
        text: verb === "undo" ? "Undo" : "Redo", class: "primary", value: async () => {
          if (!preview?.ok) { toast("Nothing to do yet: see the message above.", "bad"); return undefined; }
          try { return await post(`/api/${verb}`, { ...chosen, digest: preview.digest }); } catch (problem) {
            toast(problem.message, "bad");
            if (problem.data?.preview) { preview = problem.data.preview; drawPreview(); }
            return undefined;
          }
        },
      }]);
    if (done) { toast(done.output.split("\n")[0]); reload(); }
  }

  async function prune() {
    const input = el("input", { type: "number", min: 0, step: 1, value: String(Math.floor(size / 2 / 1048576)) });
    const said = await dialog("Prune the history", [el("p", {}, `The history of this workspace takes ${bytes(size)}. The oldest changes are deleted until the rest fits; those can no longer be undone.`), field("Keep at most (MB)", input)],
      [{ text: "Cancel", value: null, class: "quiet" }, { text: "Delete the oldest", class: "danger", value: () => post("/api/history/prune", { workspace: workspace.value, keep_bytes: Math.max(0, Math.round(Number(input.value) * 1048576)) }).catch((problem) => { toast(problem.message, "bad"); return undefined; }) }]);
    if (said) { toast(`${said.dropped} ${said.dropped === 1 ? "change" : "changes"} deleted, ${bytes(said.size_bytes)} kept.`); reload(); }
  }

  const stop = onEvents((events) => {
    if (!events.some((event) => event.kind === "file_changed" || (event.kind === "call_finished" && event.change_id))) return;
    clearTimeout(timer);
    timer = setTimeout(reload, 400);
  });
  start();
  return () => { stop(); clearTimeout(timer); };
}
