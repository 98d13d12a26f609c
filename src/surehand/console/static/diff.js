// A unified diff as elements: in one column, or old and new side by side.

import { el, shown } from "./dom.js";

const ROWS = 4000;
const WIDTH = 1000;

/** Read a diff into files of rows: [kind, old number, new number, text]. */
function read(text) {
  const files = [];
  let file = null;
  let old = 0;
  let fresh = 0;
  for (const line of text.split("\n")) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    if (line.startsWith("--- ") && !(file?.open)) { file = { name: line.slice(4), rows: [], open: false }; files.push(file); continue; }
    if (line.startsWith("+++ ") && file && !file.open) { if (!line.startsWith("+++ /dev/null")) file.name = line.slice(4); continue; }
    file ??= (files.push({ name: "", rows: [], open: false }), files.at(-1));
    if (hunk) { file.open = true; old = Number(hunk[1]); fresh = Number(hunk[2]); file.rows.push(["hunk", "", "", line]); continue; }
    if (!file.open) { if (line) file.rows.push(["note", "", "", line]); continue; }
    if (line.startsWith("+")) file.rows.push(["add", "", fresh++, line.slice(1)]);
    else if (line.startsWith("-")) {
      file.rows.push(["del", old++, "", line.slice(1)]);
    } else if (line.startsWith(" ") || line === "") { file.rows.push(["same", old++, fresh++, line.slice(1)]); }
    else { file.open = line.startsWith("\\") ? file.open : false; file.rows.push(["note", "", "", line]); }
  }
  for (const each of files) while (each.rows.at(-1)?.[0] === "same" && each.rows.at(-1)[3] === "") each.rows.pop();
  return files.filter((each) => each.rows.length || each.name);
}

/** How wide the columns are, and what they are for who hears them; the eye knows. */
function heads(...names) {
  return [el("colgroup", {}, names.map((each) => el("col", { class: each.endsWith("line") ? "no" : "" }))),
    el("thead.sr", {}, el("tr", {}, names.map((each) => el("th", { scope: "col" }, each))))];
}

function unified(rows) {
  return el("table.diff", {}, heads("Old line", "New line", "Text"), el("tbody", {}, rows.map(([kind, old, fresh, text]) => el("tr", { class: kind },
    el("td.no", {}, String(old)), el("td.no", {}, String(fresh)),
    el("td.text", {}, el("span.sr", {}, kind === "add" ? "added: " : kind === "del" ? "removed: " : ""), shown(text, WIDTH))))));
}

function sideBySide(rows) {
  const pairs = [];
  let at = 0;
  while (at < rows.length) {
    const [kind] = rows[at];
    if (kind !== "del" && kind !== "add") { pairs.push([rows[at], rows[at]]); at += 1; continue; }
    const gone = [];
    const come = [];
    while (rows[at]?.[0] === "del") gone.push(rows[at++]);
    while (rows[at]?.[0] === "add") come.push(rows[at++]);
    for (let each = 0; each < Math.max(gone.length, come.length); each += 1) pairs.push([gone[each], come[each]]);
  }
  return el("table.diff.sides", {}, heads("Old line", "Before", "New line", "After"), el("tbody", {}, pairs.map(([left, right]) => {
    if (left && (left[0] === "hunk" || left[0] === "note")) return el("tr", { class: left[0] }, el("td.no"), el("td.text", { colspan: 3 }, shown(left[3], WIDTH)));
    return el("tr", {}, el("td.no", {}, left ? String(left[1]) : ""), el("td.text", { class: left?.[0] === "del" ? "del" : left ? "" : "none" }, left?.[0] === "del" && el("span.sr", {}, "removed: "), left ? shown(left[3], WIDTH) : ""),
      el("td.no", {}, right ? String(right[2]) : ""), el("td.text", { class: right?.[0] === "add" ? "add" : right ? "" : "none" }, right?.[0] === "add" && el("span.sr", {}, "added: "), right ? shown(right[3], WIDTH) : ""));
  })));
}

/** Show a diff; how it is laid out is remembered. */
export function diffView(text, { title = "Changes" } = {}) {
  const files = read(text);
  const body = el("div.diff-body");
  const wide = matchMedia("(min-width: 900px)");
  const choice = el("div.segments", { role: "group", "aria-label": "Layout of the diff" });
  let layout = localStorage.getItem("surehand-diff") ?? "unified";

  function draw() {
    const side = layout === "sides" && wide.matches;
    let left = ROWS;
    body.replaceChildren(...files.map((file) => {
      const rows = file.rows.slice(0, Math.max(0, left));
      left -= rows.length;
      const more = file.rows.length - rows.length;
      return el("div.diff-file", {}, file.name && el("div.diff-name", {}, shown(file.name.replace(/^[ab]\//, ""))), side ? sideBySide(rows) : unified(rows),
        more > 0 && el("p.hint", {}, `${more.toLocaleString()} more lines are not shown`));
    }));
    choice.replaceChildren(...[["unified", "Unified"], ["sides", "Side by side"]].map(([name, label]) =>
      el("button", { type: "button", class: "quiet", "aria-pressed": String(layout === name), onclick: () => { layout = name; localStorage.setItem("surehand-diff", name); draw(); } }, label)));
  }
  draw();
  const added = files.reduce((sum, file) => sum + file.rows.filter(([kind]) => kind === "add").length, 0);
  const gone = files.reduce((sum, file) => sum + file.rows.filter(([kind]) => kind === "del").length, 0);
  return el("div.diff-view", {}, el("div.diff-head", {}, el("span", {}, title), el("span.plus", {}, `+${added}`), el("span.minus", {}, `−${gone}`), choice), body);
}
