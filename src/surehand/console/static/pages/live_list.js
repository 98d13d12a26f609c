// A list of any number of calls of which only the visible ones are elements; calls are listed below the call that made them.

import { el, line, sayArgs, took, when } from "../dom.js";
import { sessionName } from "../sessions.js";

const MARGIN = 8;
const COLUMNS = [["state", el("span.sr", {}, "State")], ["time", "Started"], ["session", "Session"], ["tool", "Tool"], ["args", "Arguments"], ["bar last", "Duration"], ["verdict last", "Verdict"]];

export class CallList {
  constructor({ open, more }) {
    this.calls = new Map();
    this.callers = new Map();
    this._open = open;
    this._more = more;
    this._rows = [];
    this._chosen = null;
    this._folded = new Set();
    this._stale = true;
    this._drawn = new Map();
    this._window = el("div.window", { role: "rowgroup" });
    this.element = el("div.scroller", { role: "treegrid", "aria-label": "Calls, newest first", tabIndex: -1, onscroll: () => this._plan(), onkeydown: (event) => this._key(event) },
      el("div.call-heads", { role: "row" }, COLUMNS.map(([name, title]) => el("span", { role: "columnheader", class: name }, title))), this._window);
    this._sizes = new ResizeObserver(() => { this._stale = true; this._plan(); });
    this._sizes.observe(this.element);
    this._clock = setInterval(() => { if (this.running()) this.touch(); }, 1000);
  }

  get size() { return this.calls.size; }

  close() { this._sizes.disconnect(); clearInterval(this._clock); }

  running() {
    let count = 0;
    for (const call of this.calls.values()) if (call.state === "running") count += 1;
    return count;
  }

  /** Take calls as they come from the server, newest first. */
  replace(calls) {
    this.calls.clear();
    for (const call of calls) this.calls.set(call.call_id, call);
    this.element.scrollTop = 0;
    this.touch();
  }

  append(calls) {
    for (const call of calls) if (!this.calls.has(call.call_id)) this.calls.set(call.call_id, call);
    this.touch();
  }

  add(call) { this.calls.set(call.call_id, call); this.touch(); }

  choose(id) { this._chosen = id; this.touch(); }

  /** Give the focus to a call, or to the list where it is not in sight. */
  focus(id) { (this._drawn.get(id)?.element ?? this.element).focus({ preventScroll: true }); }

  /** Something changed: draw anew with the next frame. */
  touch() { this._stale = true; this._plan(); }

  _plan() {
    if (this._planned) return;
    this._planned = requestAnimationFrame(() => { this._planned = 0; this._draw(); });
  }

  /** Put the calls in order: newest first, those a call made below it. */
  _order() {
    const children = new Map();
    const tops = [];
    for (const call of this.calls.values()) {
      const parent = call.parent ?? this.callers.get(call.session_id);
      if (parent && this.calls.has(parent) && parent !== call.call_id) {
        if (!children.has(parent)) children.set(parent, []);
        children.get(parent).push(call);
      } else tops.push(call);
    }
    const newest = (one, other) => other.at - one.at;
    const rows = [];
    const put = (call, depth) => {
      const below = children.get(call.call_id);
      rows.push({ call, depth, below: below?.length ?? 0 });
      if (below && !this._folded.has(call.call_id) && depth < 20) for (const each of below.sort(newest)) put(each, depth + 1);
    };
    for (const call of tops.sort(newest)) put(call, 0);
    return rows;
  }

  _draw() {
    const height = matchMedia("(max-width: 760px)").matches ? 62 : 38;
    const changed = this._stale;
    if (changed) {
      this._rows = this._order();
      this._stale = false;
      this._longest = Math.max(1000, ...this._rows.slice(0, 200).map(({ call }) => call.duration_ms ?? 0));
    }
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / height) - MARGIN);
    const last = Math.min(this._rows.length, Math.ceil((scrollTop + clientHeight) / height) + MARGIN);
    this._window.style.height = `${this._rows.length * height}px`;
    const drawn = new Map();
    for (let at = first; at < last; at += 1) drawn.set(this._rows[at].call.call_id, this._update(this._rows[at], at, at * height, changed));
    for (const [id, { element }] of this._drawn) if (!drawn.has(id)) element.remove();
    this._drawn = drawn;
    let before = null; // in the order of the list, and what stands right is not moved: moving takes the focus away
    for (const { element } of drawn.values()) {
      const next = before ? before.nextElementSibling : this._window.firstElementChild;
      if (next !== element) this._window.insertBefore(element, next);
      before = element;
    }
    this.element.setAttribute("aria-rowcount", String(this._rows.length + 1));
    if (last > this._rows.length - 60) this._more();
  }

  /** Return the element of a row, which stays the same as long as the row is in sight: only what changed is written. */
  _update(row, at, top, changed) {
    const known = this._drawn.get(row.call.call_id);
    if (known && !changed) return known;
    const fresh = this._row(row, at);
    const look = fresh.outerHTML;
    const element = known?.element ?? fresh;
    element.style.top = `${top}px`;
    if (known && known.look !== look) {
      for (const name of fresh.getAttributeNames()) element.setAttribute(name, fresh.getAttribute(name));
      for (const name of element.getAttributeNames()) if (name !== "style" && !fresh.hasAttribute(name)) element.removeAttribute(name);
      element.replaceChildren(...fresh.childNodes);
    }
    return { element, look };
  }

  _row({ call, depth, below }, at) {
    const ms = call.state === "running" ? Math.max(0, Date.now() - call.at * 1000) : call.duration_ms;
    const done = call.progress?.total ? call.progress.done / call.progress.total : Math.min(1, (ms ?? 0) / this._longest);
    const word = call.state === "refused" ? "refused" : call.verdict ?? "";
    const say = word === "ask" && call.state !== "running" ? "approved" : word; // it was asked about, and ran
    const args = call.state === "running" && call.progress?.text ? call.progress.text : sayArgs(call.args);
    const fold = below ? el("span.fold", { title: "show or hide the calls it made", "aria-hidden": "true", onclick: (event) => { event.stopPropagation(); this._fold(call.call_id); } }, this._folded.has(call.call_id) ? `▸ ${below} ` : "▾ ") : null;
    return el("div.call", {
      role: "row", tabIndex: at === 0 || call.call_id === this._chosen ? 0 : -1, "data-call": call.call_id, "aria-rowindex": at + 2,
      "aria-level": depth + 1, "aria-expanded": below ? String(!this._folded.has(call.call_id)) : undefined, "aria-current": call.call_id === this._chosen || undefined, class: call.state === "running" ? "is-running" : "",
      "aria-label": `${call.tool}, ${call.state}, ${sessionName(call.session_id)}`, onclick: () => this._open(call),
    },
    el("span.dot", { role: "gridcell", "aria-label": call.state, class: call.state, title: call.state }),
    el("span.time", { role: "gridcell" }, when(call.at)),
    el("span.session", { role: "gridcell" }, line(sessionName(call.session_id), 40)),
    el("span.tool", { role: "gridcell", style: { "padding-left": `${depth * 14}px` } }, fold, line(call.tool, 60)),
    el("span.args", { role: "gridcell" }, line(args, 200)),
    el("span.bar", { role: "gridcell", style: { "--part": `${(done * 100).toFixed(1)}%` } }, took(ms)),
    el("span.verdict", { role: "gridcell", class: word, title: (call.rules ?? []).join(", ") || (call.reason ?? "") }, say));
  }

  _fold(id) {
    if (!this._folded.delete(id)) this._folded.add(id);
    this.touch();
  }

  _key(event) {
    const row = event.target.closest?.(".call");
    if (!row) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this._open(this.calls.get(row.dataset.call)); return; }
    const open = row.getAttribute("aria-expanded");
    if (open === { ArrowLeft: "true", ArrowRight: "false" }[event.key]) { event.preventDefault(); this._fold(row.dataset.call); return; }
    if (!step) return;
    event.preventDefault();
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}
