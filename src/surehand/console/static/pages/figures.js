// Figures: calls a minute, how long they took, what failed, tokens and cost, over an hour, a day or a week.

import { get } from "../api.js";
import { button, el, fill, span, table, took, when } from "../dom.js";
import { columns, sparkline } from "../chart.js";

/** A mark below a plot: the time within a day, the day within a week. */
function clock(seconds, period) {
  const options = period === "week" ? { weekday: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hour12: false };
  return new Intl.DateTimeFormat(undefined, options).format(new Date(seconds * 1000));
}

export function mount(root) {
  const box = el("div.figures", {}, el("p.hint", { role: "status" }, "Loading…"));
  let chosen = "hour";
  let timer = 0;
  const spans = el("div.segments", { role: "group", "aria-label": "Period" });
  for (const each of ["hour", "day", "week"]) spans.append(button(`Last ${each}`, () => { chosen = each; show(); }, { "data-span": each }));

  async function show() {
    clearTimeout(timer);
    for (const each of spans.children) each.setAttribute("aria-pressed", String(each.dataset.span === chosen));
    try { draw(await get("/api/figures", { span: chosen })); } catch (problem) { fill(box, el("p.problem", {}, problem.message)); }
    timer = setTimeout(show, 15_000);
  }

  function draw(found) {
    const minutes = found.width_s / 60;
    const label = (at) => `${when(found.since + at * found.width_s)}: ${found.calls[at]} calls, ${found.errors[at]} failed`;
    const failed = found.errors.reduce((sum, each) => sum + each, 0);
    const marks = [0, 1, 2, 3, 4].map((at) => found.since + ((found.until - found.since) * at) / 4);
    const most = found.bounds_ms.length;
    const total = found.tools.reduce((sum, tool) => tool.times.map((each, at) => each + (sum[at] ?? 0)), new Array(most + 1).fill(0));
    const times = (at) => `${total[at]} calls took ${at ? `over ${took(found.bounds_ms[at - 1])}` : "little"}${at < most ? `, at most ${took(found.bounds_ms[at])}` : ""}`;
    fill(box,
      el("div.tiles", {}, [["calls", found.total.toLocaleString()], ["failed or refused", failed.toLocaleString()], ["peak calls per minute", String(Number((Math.max(...found.calls) / minutes).toFixed(1)))], ["running now", String(found.running)], ["sessions now", String(found.sessions)]]
        .map(([about, value]) => el("div.card.tile", {}, el("b", {}, value), el("span.muted", {}, about)))),
      el("section.card", {}, el("h2", {}, "Calls"), columns(found.calls, found.errors, { label, about: `${found.total} calls, ${failed} of them failed or refused`, names: marks.map((each) => clock(each, chosen)) }),
        el("p.hint", {}, el("span.legend"), `calls per ${found.width_s === 60 ? "minute" : span(found.width_s)}`, el("span.legend.bad"), "failed or refused")),
      el("section.card", {}, el("h2", {}, "Queue and slots"), table(["Tool", "Running", "Waiting", "Slots"],
        found.slots.map((slot) => el("tr", {}, el("td", {}, el("b", {}, slot.tool)), el("td", {}, String(slot.running)), el("td", {}, slot.waiting ? el("span.chip.warn", {}, String(slot.waiting)) : "0"), el("td", {}, String(slot.limit)))), "Nothing is running or waiting.")),
      el("section.card", {}, el("h2", {}, "Durations"), columns(total, null, { label: times, about: `distribution of durations: ${total.map((count, at) => count && times(at)).filter(Boolean).join("; ") || "no calls"}`, height: 80,
        names: [...found.bounds_ms.map((each) => `≤ ${span(each / 1000)}`), "more"] })),
      el("section.card", {}, el("h2", {}, "By tool"), table(["Tool", "Calls", "p50", "p95", "Durations", "Errors"],
        found.tools.map((tool) => el("tr", {}, el("td", {}, el("b", {}, tool.tool)), el("td", {}, tool.calls.toLocaleString()), el("td", {}, took(tool.p50_ms)), el("td", {}, took(tool.p95_ms)), el("td", {}, sparkline(tool.times, `durations of ${tool.tool}`)),
          el("td", {}, Object.entries(tool.errors).map(([kind, count]) => [el("span.chip.bad", {}, `${kind} ${count}`), " "])))), "No calls in this period.")),
      el("section.card", {}, el("h2", {}, "Models"), table(["Model", "Turns", "Tokens in", "Tokens out", "Cost (estimate)"],
        found.usage.map((row) => el("tr", {}, el("td", {}, row.model), el("td", {}, String(row.turns)), el("td", {}, (row.usage.input_tokens + row.usage.cache_read_tokens + row.usage.cache_write_tokens).toLocaleString()), el("td", {}, row.usage.output_tokens.toLocaleString()), el("td", {}, row.cost === null ? "unknown" : `about $${row.cost.toFixed(4)}`))), "No model was used in this period.")),
      found.missed > 0 && el("p.hint", {}, `${found.missed} events of running sessions were missed here; the audit log has them all.`));
  }

  root.append(el("div.page-head", {}, el("h1", {}, "Figures"), el("span.grow"), spans), box);
  show();
  return () => clearTimeout(timer);
}
