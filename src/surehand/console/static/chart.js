// Small plots as SVG: columns over time, a distribution, a line in a table. Each says in words what it shows.

import { el, svg } from "./dom.js";

/** Columns with their scale, a second series (errors) drawn over the first; `label(i)` names a column, `names` stand below. */
export function columns(series, over, { label, about, names = [], height = 120 }) {
  const width = 720;
  const most = Math.max(1, ...series);
  const step = width / series.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height + 4}`, class: "chart", role: "img", "aria-label": about, preserveAspectRatio: "none" });
  series.forEach((count, at) => {
    if (!count) return;
    const tall = Math.max(2, (count / most) * height);
    const title = svg("title", {}, label(at));
    picture.append(svg("rect", { x: at * step + 0.5, y: height - tall, width: Math.max(1, step - 1.5), height: tall, rx: 1.5, class: "column" }, title));
    if (over?.[at]) {
      const part = Math.max(2, (over[at] / most) * height);
      picture.append(svg("rect", { x: at * step + 0.5, y: height - part, width: Math.max(1, step - 1.5), height: part, rx: 1.5, class: "column bad" }));
    }
  });
  picture.append(svg("line", { x1: 0, y1: height + 0.5, x2: width, y2: height + 0.5, class: "axis" }));
  return el("div.chart-box", {}, el("div.chart-scale", { "aria-hidden": "true" }, el("span", {}, most.toLocaleString()), el("span", {}, "0")), picture,
    el("div.chart-labels", { class: names.length === series.length && "each" }, names.map((each) => el("span", {}, each))));
}

/** A row of tiny columns for a cell of a table. */
export function sparkline(series, about) {
  const height = 22;
  const most = Math.max(1, ...series);
  const picture = svg("svg", { viewBox: `0 0 ${series.length * 6} ${height}`, class: "spark", role: "img", "aria-label": about });
  series.forEach((count, at) => {
    const tall = count ? Math.max(2, (count / most) * height) : 0.5;
    picture.append(svg("rect", { x: at * 6, y: height - tall, width: 5, height: tall, rx: 1, class: "column" }));
  });
  return picture;
}
