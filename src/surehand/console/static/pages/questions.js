// Questions: what waits for an answer in all sessions, and every way to answer it.

import { post } from "../api.js";
import { onKey } from "../app.js";
import { diffView } from "../diff.js";
import { button, code, el, empty, field, fill, prose, shown, span, toast } from "../dom.js";
import { answered, onQuestions, questions, refresh } from "../questions.js";
import { sessionName } from "../sessions.js";

/** A key answers only what has been on the page for a moment: lists move while people type. */
const SEEN_MS = 500;
const ALLOWED = { once: "once", session: "for this session", always: "always" };

export function mount(root, [wanted]) {
  const list = el("div.questions", { tabIndex: -1, role: "group", "aria-label": "Questions" });
  const none = empty("No questions", "When a session needs your permission, its question appears here at once.");
  const gone = el("div.answered-list");
  const cards = new Map();
  let chosen = wanted ?? null;
  let since = 0;

  const notify = button("Notify me", async () => {
    const said = await Notification.requestPermission();
    notify.hidden = said !== "default";
    toast(said === "granted" ? "You will be notified of new questions while this page is in the background." : "Notifications stay off.");
  }, { hidden: !("Notification" in window) || Notification.permission !== "default" });

  fill(root, el("div.page-head", {}, el("h1", {}, "Questions"), el("span.grow"), notify), list, none, gone);

  function draw() {
    const answering = list.contains(document.activeElement);
    for (const [id, card] of cards) if (!questions.has(id)) { card.close(); cards.delete(id); }
    for (const question of questions.values()) {
      if (!cards.has(question.id)) {
        const card = new Card(question, () => choose(question.id, false)); // what moves under a finger is not hit
        cards.set(question.id, card);
        list.append(card.element);
      }
    }
    choose(cards.has(chosen) ? chosen : cards.keys().next().value ?? null, false);
    if (answering && !list.contains(document.activeElement)) (cards.get(chosen)?.element ?? list).focus({ preventScroll: true }); // who answers by keyboard goes on with the next
    none.hidden = cards.size > 0;
    fill(gone, [...answered.entries()].reverse().slice(0, 5).filter(([, each]) => each.row).map(([, each]) => outcome(each)));
  }

  function choose(id, scroll = true) {
    if (chosen !== id || !since) since = performance.now();
    chosen = id;
    for (const [each, card] of cards) card.mark(each === id);
    if (id && scroll) cards.get(id).element.scrollIntoView({ block: "nearest" });
  }

  function step(by) {
    const ids = [...cards.keys()];
    const next = ids[Math.min(ids.length - 1, Math.max(0, ids.indexOf(chosen) + by))];
    if (next) { choose(next); cards.get(next).element.focus({ preventScroll: true }); }
  }

  const act = (name) => () => {
    const card = cards.get(chosen);
    if (card && performance.now() - since >= SEEN_MS) card[name]();
  };
  const keys = [
    onKey("j", "next question", () => step(1)), onKey("k", "previous question", () => step(-1)),
    onKey("y", "allow once, or apply exactly the dry run", act("once")), onKey("s", "allow for this session", act("session")),
    onKey("a", "always: look at the rule, then save it", act("always")), onKey("n", "no, with a reason", act("no")),
    onKey("d", "try it on a copy first", act("tryFirst")), onKey("e", "edit the arguments", act("change")),
  ];
  const stop = onQuestions(draw);
  const clock = setInterval(() => { for (const card of cards.values()) card.tick(); }, 1000);
  draw();
  refresh();
  return () => { stop(); clearInterval(clock); keys.forEach((off) => off()); for (const card of cards.values()) card.close(); };
}

function outcome({ row, answer, by, reason }) {
  const words = answer === "gone" ? "is no longer waiting" : `${answer === "no" ? "refused" : `allowed ${ALLOWED[answer] ?? answer}`} by ${by}${reason ? `: ${reason}` : ""}`;
  return el("p.outcome", {}, el("span.chip", { class: answer === "no" ? "bad" : answer === "gone" ? "" : "ok" }, answer === "gone" ? "closed" : answer), el("b", {}, shown(row.tool)), " ", shown(words, 300));
}

class Card {
  constructor(question, choose) {
    this.question = question;
    this.dry_run = question.dry_run;
    this._waits = el("span.muted.waits");
    this._diff = el("div");
    this._panel = el("div.panel");
    this._problem = el("p.problem", { role: "alert" });
    this._buttons = el("div.answers", { role: "group", "aria-label": "Answers" });
    this.element = el("article.card.question", { tabIndex: -1, "aria-label": `${question.tool} asks for permission`, "data-question": question.id, onpointerdown: choose, onfocusin: choose }, this._content());
    if (question.diff || question.preview) this._show(question.preview, question.diff);
    this._drawButtons();
    this.tick();
  }

  close() { this.element.remove(); }

  mark(chosen) { this.element.classList.toggle("chosen", chosen); if (chosen) this.element.setAttribute("aria-current", "true"); else this.element.removeAttribute("aria-current"); }

  tick() {
    const now = Date.now() / 1000;
    const left = this.question.expires - now;
    fill(this._waits, `waiting ${span(Math.max(1, Math.round(now - this.question.asked)))}`, left < 120 && el("span.soon", {}, `, ${Math.max(0, Math.round(left))} s left`));
  }

  _content() {
    const q = this.question;
    const foreign = q.origins.filter((each) => each !== "workspace");
    return [
      el("div.question-head", {}, el("h2", {}, shown(q.tool)), el("span.chip", {}, shown(sessionName(q.root))), q.agent && el("span.chip", {}, "sub-agent: ", shown(q.agent, 60)), q.source !== "user" && el("span.chip", {}, `asked by ${q.source}`), el("span.grow"), this._waits),
      el("p.why", {}, prose(q.reason)),
      foreign.length ? el("p.foreign", {}, "Text from ", shown(foreign.join(", "), 200), " has entered this session.") : null,
      code(q.arguments.replace(/^ {2}/gm, ""), "What would run", { class: "exact" }),
      q.effects.length ? el("details.effects", { open: q.effects.length <= 6 }, el("summary", {}, `${q.effects.length} effect${q.effects.length > 1 ? "s" : ""}`), el("ul.effects-list", {}, q.effects.slice(0, 200).map((each) => el("li", {}, el("span.chip", { class: { allow: "ok", ask: "warn", deny: "bad" }[each.verdict] }, each.verdict), el("span", {}, shown(each.text), el("span.muted", {}, " ", prose(each.why, 200))))))) : null,
      el("p.muted.where", {}, "Runs in ", shown(q.cwd)),
      this._diff, this._panel, this._problem, this._buttons,
    ];
  }

  _show(preview, diff) {
    fill(this._diff, preview && !diff.includes(preview) && el("p.hint", {}, shown(preview, 4000)), diff && diffView(diff, { title: this.dry_run ? "Dry run on a copy: this would change" : "This would change" }), !diff && this.dry_run && el("p.hint", {}, "Dry run on a copy: no file would change."));
  }

  _drawButtons() {
    const q = this.question;
    const key = (letter) => el("kbd", { "aria-hidden": "true" }, letter);
    fill(this._buttons,
      button([this.dry_run ? "Apply exactly this" : "Allow once", key("y")], () => this.once(), { class: "primary", "data-answer": "once" }),
      this.dry_run && button("Run for real", () => this._send({ kind: "once", dry_run: "" }), { title: "run it now instead of applying the changes of the dry run" }),
      q.suggestion && button(["This session", key("s")], () => this.session(), { title: `until the session ends: ${q.suggestion}`, "data-answer": "session" }),
      q.suggestion && button(["Always…", key("a")], () => this.always(), { "data-answer": "always" }),
      q.can_try && button([this.dry_run ? "Try again" : "Try on a copy", key("d")], () => this.tryFirst(), { "data-answer": "try" }),
      q.args && button(["Edit…", key("e")], () => this.change(), { "data-answer": "change" }),
      button(["No…", key("n")], () => this.no(), { class: "danger", "data-answer": "no" }));
  }

  _ask(label, value, submit, action, { hint = "", rows = 0, css = "primary" } = {}) {
    const input = rows ? el("textarea", { rows, spellcheck: "false" }) : el("input", { type: "text", autocomplete: "off" });
    input.value = value;
    const form = el("form.inline", {}, field(label, input, hint), el("div.dialog-buttons", {}, button("Cancel", () => { fill(this._panel); this.element.focus(); }, { class: "quiet" }), el("button", { type: "submit", class: css }, submit)));
    form.addEventListener("submit", (event) => { event.preventDefault(); action(input.value); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { fill(this._panel); this.element.focus(); }
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    fill(this._panel, form);
    input.focus();
    input.scrollIntoView({ block: "nearest" });
  }

  // -- answers ------------------------------------------------------------------------------------------------------

  once() { return this._send(this.dry_run ? { kind: "once", dry_run: this.dry_run } : { kind: "once" }); }

  session() {
    if (!this.question.suggestion) return;
    this._ask("Allow until this session ends", this.question.suggestion, "Allow for this session", (rule) => this._send({ kind: "session", rule, ...this._tried() }), { rows: 2, hint: "One rule per line. Whatever they cover runs without asking." });
  }

  always() {
    if (!this.question.suggestion) return;
    this._ask("This rule is added to your settings", this.question.suggestion, "Save and allow", (rule) => this._send({ kind: "always", rule, ...this._tried() }), { rows: 2, hint: "You can edit it before it is saved. One rule per line." });
  }

  no() { this._ask("Why not? The model reads this.", "", "Refuse", (reason) => this._send({ kind: "no", reason: reason || "the user said no" }), { css: "danger" }); }

  change() {
    if (!this.question.args) return;
    this._ask("Arguments (JSON); the edited call is judged again", JSON.stringify(this.question.args, null, 2), "Ask again with these", (text) => {
      let args;
      try { args = JSON.parse(text); } catch (problem) { this._say(`This is not valid JSON: ${problem.message}`); return; }
      this._send({ kind: "once", args });
    }, { rows: Math.min(14, 3 + JSON.stringify(this.question.args, null, 2).split("\n").length) });
  }

  _tried() { return this.dry_run ? { dry_run: this.dry_run } : {}; }

  async tryFirst() {
    const q = this.question;
    if (!q.can_try || this._busy) return;
    this._setBusy(true);
    fill(this._diff, el("p.hint", { role: "status" }, "Running on a copy; nothing changes here…"));
    try {
      const shownNow = await post(`/api/questions/${encodeURIComponent(q.id)}/try`, { session_id: q.root, digest: q.digest });
      this.dry_run = shownNow.dry_run;
      this._show(shownNow.preview, shownNow.diff);
    } catch (problem) { fill(this._diff); this._say(problem.message); } finally {
      this._setBusy(false);
      this._drawButtons();
      this._buttons.scrollIntoView({ block: "nearest" });
    }
  }

  async _send(answer) {
    if (this._busy) return;
    const q = this.question;
    this._setBusy(true);
    this._say("");
    try {
      const said = await post(`/api/questions/${encodeURIComponent(q.id)}/answer`, { session_id: q.root, digest: q.digest, ...answer });
      answered.set(q.id, { answer: said.answer, by: "you", reason: answer.reason, row: q, at: Date.now() });
      toast(said.answer === "no" ? `${q.tool} was refused` : answer.args ? `${q.tool} is judged again` : `${q.tool}: allowed ${ALLOWED[said.answer] ?? said.answer}`);
    } catch (problem) {
      this._say(problem.message);
      if (problem.data?.answered) answered.set(q.id, { ...problem.data.answered, row: q });
    } finally {
      this._setBusy(false);
      refresh();
    }
  }

  _say(text) { fill(this._problem, shown(text, 1000)); }

  /** Take no further answer for the while; buttons keep the focus, which disabled ones would lose. */
  _setBusy(busy) { this._busy = busy; for (const each of this._buttons.children) each.setAttribute("aria-disabled", String(busy)); this.element.setAttribute("aria-busy", String(busy)); }
}
