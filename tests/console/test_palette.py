"""The colours of the console: every pair that is used together is told apart, in both themes (WCAG 2.2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import surehand.console

pytestmark = pytest.mark.spec("CON-1")
CSS = (Path(surehand.console.__file__).parent / "static" / "app.css").read_text(encoding="utf-8")
COLOURS = dict(re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\)", CSS))
TEXT = 4.5
EDGE = 3.0
GROUNDS = ("bg", "surface", "sunk")
PAIRS = [
    *((ink, ground, TEXT) for ink in ("text", "muted", "accent", "bad") for ground in GROUNDS),
    *((ink, f"{ink}-soft", TEXT) for ink in ("ok", "bad", "warn", "run", "accent")),
    ("accent-text", "accent", TEXT),
    ("add-text", "add", TEXT),
    ("del-text", "del", TEXT),
    *(("surface", ink, TEXT) for ink in ("warn", "bad")),  # the badge, and what went wrong
    ("bg", "text", TEXT),  # a passing message
    *(("control", ground, EDGE) for ground in GROUNDS),
    *(("accent", ground, EDGE) for ground in GROUNDS),
    *((dot, "surface", EDGE) for dot in ("ok", "bad", "warn", "run")),
]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_is_told_from_what_is_behind_it(theme: int) -> None:
    faint: list[str] = []
    for ink, ground, least in PAIRS:
        one, other = (luminance(COLOURS[name].split(", ")[theme]) for name in (ink, ground))
        ratio = (max(one, other) + 0.05) / (min(one, other) + 0.05)
        if ratio < least:
            faint.append(f"{ink} on {ground}: {ratio:.2f}, needs {least}")
    assert faint == []
