// API: what programs can ask of the console, from its own description.

import { get } from "../api.js";
import { el, fill, prose } from "../dom.js";

export function mount(root) {
  const list = el("div.endpoints");
  const about = el("p.muted");
  fill(root, el("div.page-head", {}, el("h1", {}, "API"), el("span.grow"), el("a", { href: "/api/openapi.json" }, "openapi.json")), about, list);
  get("/api/openapi.json").then((described) => {
    fill(about, prose(described.info.description));
    fill(list, Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, told]) => {
      const body = Object.entries(told.requestBody?.content["application/json"].schema.properties ?? {}).map(([name, each]) => [name, each.description]);
      const query = (told.parameters ?? []).filter((each) => each.in === "query").map((each) => [each.name, each.description]);
      return el("section.card", {}, el("div.question-head", {}, el("span.chip", { class: method === "get" ? "run" : "warn" }, method.toUpperCase()), el("h2", {}, path), el("span.muted", {}, prose(told.summary))),
        (body.length + query.length) > 0 && el("dl.facts", {}, [...query, ...body].map(([name, what]) => [el("dt", {}, el("code", {}, name)), el("dd", {}, prose(what))])));
    })));
  }).catch((problem) => fill(list, el("p.problem", {}, problem.message)));
}
