"""Front matter: the lines between `---` at the top of a Markdown file that describes an agent or a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from surehand.core.errors import SettingsError

_FRONT: Final = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*\r?\n?(.*)\Z", re.DOTALL)


def read_front_matter(
    text: str, known: Sequence[str], *, lists: Sequence[str] = ()
) -> tuple[dict[str, list[str]], str] | None:
    """Return the values of the front matter by key, and the text below; None where a file has none.

    Keys in `lists` hold several values, after commas or on lines that begin with `- `. Raises SettingsError that
    names a line which is none of the `known` keys.
    """
    front = _FRONT.match(text.lstrip("\ufeff"))
    if front is None:
        return None
    values: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(front[1].splitlines(), 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("- ") and key:
            values[key].append(_bare(line.lstrip()[2:]))
            continue
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in known:
            raise SettingsError(f"line {number}: {line.strip()!r} is not one of {', '.join(known)}")
        values[key] = [_bare(part) for part in value.strip().strip("[]").split(",")] if key in lists else [_bare(value)]
    return values, front[2].strip()


def _bare(text: str) -> str:
    return text.strip().strip("\"'").strip()
