// The workspace that a page is about: chosen once, remembered, the same on every page.

import { get } from "./api.js";
import { base, el, empty } from "./dom.js";

const KEY = "surehand-workspace";

export const workspace = () => localStorage.getItem(KEY) ?? "";

/** What the pages about a workspace say before there is one. */
export const noWorkspace = () => empty("No workspace yet", "A folder appears here once Surehand has worked in it: start `surehand chat` there, or connect an MCP client.");

/** A choice of workspaces; `changed` is called when another one is taken, and once at the start. */
export function workspacePicker(changed) {
  const select = el("select", { "aria-label": "Workspace" });
  select.addEventListener("change", () => { localStorage.setItem(KEY, select.value); changed(select.value); });
  get("/api/workspaces").then(({ workspaces }) => {
    for (const each of workspaces) {
      select.append(el("option", { value: each.path, title: each.path }, `${base(each.path)}${each.running ? " (in use)" : ""} – ${each.path}`));
    }
    if (!workspaces.some((each) => each.path === workspace())) localStorage.setItem(KEY, workspaces[0]?.path ?? "");
    select.value = workspace();
    select.hidden = !workspaces.length;
    changed(workspace());
  }).catch(() => changed(""));
  return select;
}
