// The frame round the pages: signing in, going from page to page, keys, theme, and whether the stream is live.

import { follow, get, hasToken, post, signIn } from "./api.js";
import { announce, button, code, dialog, el, field, fill, icon, prose, toast } from "./dom.js";
import { PAGES } from "./pages.js";
import "./sessions.js"; // it must hear who runs from the first event on

const main = document.getElementById("main");
let leave = null;
let go = null;
let showing = 0;

// -- theme --------------------------------------------------------------------------------------------------------

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
}
setTheme(localStorage.getItem("surehand-theme"));
document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  localStorage.setItem("surehand-theme", next);
  setTheme(next);
});

// -- pages --------------------------------------------------------------------------------------------------------

const nav = document.getElementById("nav");
for (const page of PAGES) {
  nav.append(el("a", { href: `#/${page.name}`, "data-page": page.name },
    icon(page.icon), el("span.nav-title", {}, page.title),
    el("span.badge", { id: `badge-${page.name}`, hidden: true })));
}
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); }); // the address says which page it is

document.getElementById("more").prepend(icon("M5 12h.1M12 12h.1M19 12h.1"));

let shownPage = PAGES[0];
let waiting = 0;

/** Show how many questions wait: beside the page's name and in the title of the window. */
export function setWaiting(count) {
  const badge = document.getElementById("badge-questions");
  waiting = count;
  badge.hidden = !count;
  fill(badge, count ? [String(count), el("span.sr", {}, " waiting")] : "");
  setTitle();
}

function setTitle() { document.title = `${waiting ? `(${waiting}) ` : ""}${shownPage.title} · Surehand`; }

export const isShown = (name) => shownPage.name === name;

function leavePage() {
  leave?.();
  leave = go = null;
}

/** Show the page of the address. A page's `mount` returns what leaves it; also what goes to another place on it, if it can. */
async function show() {
  const [, name, ...rest] = location.hash.split("/");
  const page = PAGES.find((each) => each.name === name) ?? PAGES[0];
  const turn = ++showing;
  const words = rest.map(decodeURIComponent);
  if (page === shownPage && go) { go(words); return; }
  const moved = page !== shownPage;
  shownPage = page;
  leavePage();
  for (const link of nav.children) {
    if (link.dataset.page === page.name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.getElementById("more").toggleAttribute("aria-current", PAGES.indexOf(page) > 3);
  setTitle();
  const root = el("div.page", { class: `page-${page.name}` });
  fill(main, root);
  if (moved) { main.focus({ preventScroll: true }); announce(page.title); } // who does not see the page is told, and reads on from its beginning
  try {
    const module = await page.load();
    if (turn !== showing) return;
    const mounted = module.mount(root, words);
    leave = mounted?.leave ?? mounted ?? null;
    go = mounted?.go ?? null;
    document.documentElement.dataset.ready = page.name;
  } catch (problem) {
    console.error(problem);
    fill(root, el("div.empty", { role: "alert" }, el("b", {}, "This page could not be loaded."), `${problem.message}. Reload to try again.`));
  }
}

// -- keys ---------------------------------------------------------------------------------------------------------

const keys = new Map();

/** Give a key a meaning while a page is shown; returns what takes it away. */
export function onKey(key, about, action) {
  keys.set(key, { about, action });
  return () => keys.delete(key);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = event.target;
  if (target.closest?.("input, textarea, select, [contenteditable], dialog")) return;
  if (event.key === "?") { event.preventDefault(); showKeys(); return; }
  const known = keys.get(event.key);
  if (known) { event.preventDefault(); known.action(event); return; }
  const number = Number(event.key);
  if (number >= 1 && number <= PAGES.length) location.hash = `#/${PAGES[number - 1].name}`;
});

function showKeys() {
  const rows = [...[...keys].map(([key, { about }]) => [key, about]), [`1-${PAGES.length}`, "go to a page"], ["?", "show this list"]];
  dialog("Keys", el("dl.keys", {}, rows.map(([key, about]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, about)])),
    [{ text: "Close", value: true, autofocus: true }]);
}
document.getElementById("help").addEventListener("click", showKeys);

/** What a narrow screen has no room for: the other pages, and the buttons of the side. */
document.getElementById("more").addEventListener("click", async () => {
  const pages = PAGES.slice(4).map((page) => el("a.button", { href: `#/${page.name}`, onclick: () => box.close(true), "aria-current": shownPage === page && "page" }, page.title));
  const buttons = [["Light or dark", "theme"], ["Add a device", "device"]].map(([text, id]) => button(text, () => { box.close(true); document.getElementById(id).click(); }));
  const box = dialog("More", el("div.more-pages", {}, pages, buttons), [{ text: "Close", value: true }]);
});

document.getElementById("device").addEventListener("click", async () => {
  try {
    const { code: secret, lasts_s } = await post("/api/codes");
    const url = `${location.origin}/#code=${secret}`;
    await dialog("Add a device", [el("p", {}, `Open this address there within ${Math.round(lasts_s / 60)} minutes. It works once.`), code(url, "Address")],
      [{ text: "Close", value: true, autofocus: true }]);
  } catch (problem) { toast(problem.message, "bad"); }
});

// -- signing in ---------------------------------------------------------------------------------------------------

function askForCode(problem = "") {
  leavePage();
  document.body.classList.add("signed-out");
  const input = el("input", { type: "text", autocomplete: "one-time-code", spellcheck: "false", autocapitalize: "off" });
  const told = el("p.problem", { role: "alert" }, prose(problem));
  const form = el("form.login", {},
    el("div.brand", {}, el("img", { src: "/icon.svg", alt: "", width: 26, height: 26 }), el("h1", {}, "Surehand")), el("p", {}, prose("Open the address that `surehand console` printed, or enter its code.")),
    field("Code", input), told, button("Sign in", () => form.requestSubmit(), { class: "primary" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const typed = input.value.trim();
    try {
      await signIn(typed.includes("code=") ? typed.split("code=").pop() : typed);
      start();
    } catch (refused) { fill(told, prose([refused.message, refused.hint].filter(Boolean).join(". "))); input.select(); }
  });
  fill(main, form);
  document.documentElement.dataset.ready = "login";
  input.focus();
}
document.addEventListener("signed-out", () => { if (!document.body.classList.contains("signed-out")) askForCode("You were signed out."); });

const link = document.getElementById("link");
async function start() {
  document.body.classList.remove("signed-out");
  follow((state) => {
    link.dataset.state = state;
    link.textContent = state === "live" ? "Connected" : "Reconnecting…";
    document.getElementById("lost").hidden = state === "live";
  });
  window.addEventListener("hashchange", show);
  show();
  (await import("./questions.js")).refresh();
}

async function begin() {
  let problem = "";
  if (location.hash.startsWith("#code=")) {
    const code = location.hash.slice(6);
    history.replaceState(null, "", "/");
    try { await signIn(code); } catch (refused) { problem = [refused.message, refused.hint].filter(Boolean).join(". "); }
  }
  try {
    if (!hasToken()) throw new Error("no token");
    await get("/api/sessions");
    start();
  } catch { askForCode(problem); }
}
begin();
