"""Checks of a page's accessibility: Chromium's accessibility tree, and the contrast of every text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CONTROLS = {
    *("button", "checkbox", "combobox", "DisclosureTriangle", "link", "listbox", "menuitem", "radio", "searchbox"),
    *("slider", "spinbutton", "switch", "tab", "textbox"),
}
NAMED = CONTROLS | {"dialog", "img", "image", "navigation", "treegrid"}
TABLES = {"grid", "table", "treegrid"}

CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const read = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const light = (color) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = color.map((each) => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const color = read(getComputedStyle(each).backgroundColor);
      if (color[3]) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const faint = [];
  let count = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const style = getComputedStyle(element);
    if (!texts.currentNode.data.trim() || element.closest('.sr, .skip, :disabled, option')) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    const back = behind(element);
    const ink = read(style.color);
    const [one, other] = [light(over([ink[0], ink[1], ink[2], ink[3] * opacity], back)), light(back)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    count += 1;
    const where = `${element.tagName} .${element.className}: ${texts.currentNode.data.slice(0, 60)}`;
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${where}`);
  }
  return { count, faint };
}"""


@dataclass
class Node:
    """One node of the accessibility tree."""

    role: str
    name: str
    properties: dict[str, Any]
    children: list[Node] = field(default_factory=list["Node"])

    def walk(self) -> Iterator[Node]:
        yield self
        for each in self.children:
            yield from each.walk()

    def all(self, *roles: str) -> list[Node]:
        return [each for each in self.walk() if each.role in roles]


def read_tree(page: Any) -> Node:
    """Return the accessibility tree of a page, without ignored nodes."""
    client = page.context.new_cdp_session(page)
    client.send("Accessibility.enable")
    nodes = {each["nodeId"]: each for each in client.send("Accessibility.getFullAXTree")["nodes"]}
    client.detach()

    def make(raw: dict[str, Any]) -> list[Node]:
        below = [made for id in raw.get("childIds", ()) if id in nodes for made in make(nodes[id])]
        if raw.get("ignored"):
            return below
        properties = {each["name"]: each["value"].get("value") for each in raw.get("properties", ())}
        name = str(raw.get("name", {}).get("value", ""))
        return [Node(str(raw["role"]["value"]), name, properties, below)]

    (root,) = make(next(each for each in nodes.values() if "parentId" not in each))
    return root


def find_faults(page: Any) -> list[str]:
    """Return the problems for users of a screen reader or the keyboard."""
    tree = read_tree(page)
    faults = [f"{each.role} has no name" for each in tree.all(*NAMED) if not each.name.strip()]
    for each in tree.walk():
        is_told = each.name.strip() and each.role not in ("generic", "none", "Pre", "paragraph")
        if each.properties.get("focusable") and each.role not in ("RootWebArea", "main") and not is_told:
            faults.append(f"{each.role} {each.name!r} takes the focus, and nobody is told what it is")
    for each in tree.all(*TABLES):
        if not each.all("columnheader"):
            faults.append(f"a {each.role} has no headers: {[text.name for text in each.all('StaticText')][:6]}")
    levels = [int(each.properties["level"]) for each in tree.all("heading")]
    if levels[:1] != [1] or levels.count(1) != 1:
        faults.append(f"the headings do not begin with the one of the page: {levels}")
    faults += [f"a heading of level {b} follows one of {a}" for a, b in itertools.pairwise(levels) if b > a + 1]
    faults += [f"{len(tree.all(role))} of {role}" for role in ("main", "navigation") if len(tree.all(role)) != 1]
    return faults


def find_faint_text(page: Any) -> list[str]:
    """Return texts with a contrast below 4.5 to 1 against their background."""
    found = page.evaluate(CONTRAST)
    assert found["count"] > 10, "nothing was measured"
    return found["faint"]
