"""Parse docstrings: the description of a function and of each parameter (Google, NumPy and Sphinx styles)."""

from __future__ import annotations

import re
from typing import Final

_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns|Return|Raises|Yields|Examples?|Notes?)\s*:?\s*$", re.IGNORECASE
)
_GOOGLE: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX: Final = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_NUMPY: Final = re.compile(r"^(\w+)\s*:\s*\S.*$|^(\w+)$")


def docstring_text(doc: str) -> str:
    """Return the description of the function: everything before the first section."""
    kept: list[str] = []
    lines = doc.splitlines()
    for number, line in enumerate(lines):
        underlined = number + 1 < len(lines) and bool(re.fullmatch(r"\s*-{3,}\s*", lines[number + 1]))
        if (_SECTION.match(line) and (line.rstrip().endswith(":") or underlined)) or _SPHINX.match(line):
            break
        kept.append(line)
    return "\n".join(kept).strip()


def parameter_texts(doc: str) -> dict[str, str]:
    """Return the description of each parameter, by name."""
    texts: dict[str, str] = {}
    lines = doc.splitlines()
    current: str | None = None
    inside = numpy = False
    indent = 0
    for number, line in enumerate(lines):
        if sphinx := _SPHINX.match(line):
            current = str(sphinx[1])
            texts[current] = sphinx[2].strip()
            inside = True
            numpy = True
            continue
        if section := _SECTION.match(line):
            numpy = number + 1 < len(lines) and lines[number + 1].strip().startswith("---")
            inside = section[1].lower() in ("args", "arguments", "parameters", "params")
            current, indent = None, 0
            continue
        stripped = line.strip()
        if not inside or not stripped or set(stripped) == {"-"}:
            continue
        depth = len(line) - len(line.lstrip())
        if numpy:
            if depth == 0 and (found := _NUMPY.match(line)):
                current = str(found[1] or found[2])
                texts[current] = ""
            elif current:
                texts[current] = f"{texts[current]} {stripped}".strip()
            continue
        indent = indent or depth
        if depth <= indent and (found := _GOOGLE.match(line)):
            current = str(found[1])
            texts[current] = found[2].strip()
        elif current:
            texts[current] = f"{texts[current]} {stripped}".strip()
    return {name: text for name, text in texts.items() if text}
