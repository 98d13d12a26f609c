// Elements are made of text, never of markup: nothing a model or a file wrote is ever parsed as HTML.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "textContent", "className", "open", "tabIndex"]);

/** Make an element: `el("button", { class: "quiet", onclick }, "Text", child)`. Strings become text nodes. */
export function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = [made.className, value].filter(Boolean).join(" ");
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, one] of Object.entries(value)) made.style.setProperty(name, one);
    else if (PROPERTIES.has(key)) made[key] = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** Make an element of a drawing. */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** An icon of lines, for who sees; what it stands for is written beside it. */
export function icon(path) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: path }));
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// Control, bidi, zero-width and blank look-alike characters: written out, so that a text is what it seems.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Return text as nodes, with hidden characters as marked codes. */
export function shown(text, limit = 200_000) {
  const whole = String(text ?? "");
  const cut = whole.length > limit ? whole.slice(0, limit) : whole;
  const nodes = [];
  let from = 0;
  for (const found of cut.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(cut.slice(from, found.index));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(el("span.hidden-char", { title: "a character that is not visible" }, `U+${code}`));
    from = found.index + found[0].length;
  }
  nodes.push(cut.slice(from));
  if (cut !== whole) nodes.push(el("span.muted", {}, ` … ${(whole.length - cut.length).toLocaleString()} more characters`));
  return nodes;
}

/** Return text on one line. */
export function line(text, limit = 400) {
  return shown(String(text ?? "").slice(0, limit * 2).replace(/\s*\n\s*/g, " ⏎ "), limit);
}

/** Arguments as a person would say them: the first one plain, the rest by name. Text that is not JSON, or not all of it, stays as it is. */
export function sayArgs(given) {
  let args = given ?? "";
  if (typeof args === "string") try { args = JSON.parse(args); } catch { return args; }
  if (args === null || typeof args !== "object" || Array.isArray(args)) return String(given);
  const say = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(args).map(([name, value], at) => (at ? `${name}: ${say(value)}` : say(value))).join(" · ");
}

/** Text in which `backticks` mark code. */
export function prose(text, limit = 2000) {
  const cut = String(text ?? "").split("`");
  if (cut.length % 2 === 0) return shown(text, limit); // one of them stands for itself
  return cut.map((part, at) => (at % 2 ? el("code", {}, shown(part, limit)) : shown(part, limit)));
}

/** Text in a box of its own, which can be scrolled with the keyboard; the label says what it is. */
export function code(text, label, props = {}) {
  return el("pre.code", { tabIndex: 0, role: "group", "aria-label": label, ...props }, shown(text));
}

/** A table: heads (a plain text each; in brackets: only read out), rows of cells, and the text shown instead when there are none. */
export function table(heads, rows, none = "") {
  if (!rows.length) return none ? el("p.muted", {}, prose(none)) : null;
  const head = (text) => el("th", { scope: "col" }, text.startsWith("(") ? el("span.sr", {}, text.slice(1, -1)) : text);
  return el("div.table-box", {}, el("table", {}, el("thead", {}, el("tr", {}, heads.map(head))), el("tbody", {}, rows)));
}

/** What a page says while it has nothing to show: what is missing, and how to get it. */
export function empty(title, text) {
  return el("div.empty", {}, el("b", {}, title), prose(text));
}

/** A label and a field, tied together. */
let fields = 0;
export function field(label, input, hint = "") {
  input.id ||= `field-${++fields}`;
  return el("div.field", {}, el("label", { for: input.id }, label), input, hint && el("p.hint", {}, prose(hint)));
}

export function button(text, onclick, props = {}) {
  return el("button", { type: "button", onclick, ...props }, text);
}

/** Show a dialog until it is closed; resolves with the value its buttons gave. The focus goes back to where it was. */
export function dialog(title, content, buttons) {
  let close;
  const closed = new Promise((resolve) => {
    close = (value) => {
      box.close();
      box.remove();
      (before?.isConnected && before !== document.body ? before : document.getElementById("main")).focus({ preventScroll: true });
      resolve(value);
    };
    const before = document.activeElement;
    const box = el("dialog", { "aria-label": title, oncancel: (event) => { event.preventDefault(); close(null); } },
      el("h2", {}, title), el("div.dialog-body", {}, content),
      el("div.dialog-buttons", {}, buttons.map((each) =>
        button(each.text, async () => { const value = each.value instanceof Function ? await each.value() : each.value; if (value !== undefined) close(value); },
          { class: each.class ?? "", autofocus: each.autofocus }))));
    document.body.append(box);
    box.showModal();
  });
  return Object.assign(closed, { close });
}

/** Say something to who does not see the page. */
export function announce(text) {
  const region = document.getElementById("announcer");
  region.append(el("p", {}, shown(text, 500)));
  while (region.childElementCount > 5) region.firstChild.remove();
}

/** Say something for a moment; what may be done about it goes with it as a link. */
export function toast(text, kind = "", link = null) {
  const told = el("div.toast", { class: kind }, shown(text, 500), link && [" ", link]);
  document.getElementById("toasts").append(told);
  setTimeout(() => told.remove(), kind === "bad" ? 9000 : 4500);
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });

/** When something was: the clock for today, the day otherwise. */
export function when(seconds) {
  const date = new Date(seconds * 1000);
  return date.toDateString() === new Date().toDateString() ? CLOCK.format(date) : DAY.format(date);
}

/** How long something took. */
export function took(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A round length of time, without trailing zeros. */
export function span(seconds) {
  const [count, unit] = seconds < 1 ? [seconds * 1000, "ms"] : seconds < 120 ? [seconds, "s"] : seconds < 7200 ? [seconds / 60, "min"] : [seconds / 3600, "h"];
  return `${Number(count.toFixed(1))} ${unit}`;
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let at = -1;
  do { count /= 1024; at += 1; } while (count >= 1024 && at < units.length - 1);
  return `${count.toFixed(count < 10 ? 1 : 0)} ${units[at]}`;
}

/** The last part of a path. */
export function base(path) {
  return String(path ?? "").replace(/\/+$/, "").split("/").pop() || path;
}
