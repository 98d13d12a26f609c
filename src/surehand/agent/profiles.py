"""Profiles of sub-agents, Markdown with front matter: `.surehand/agents/*.md` in a trusted workspace, and the user's.

---
name: reviewer
description: Reads a change and says what is wrong with it.
tools: Read, Grep, Glob, Bash
model: claude-haiku-4-5
---
You review changes. ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from surehand.core.errors import SettingsError
from surehand.core.session import Profile
from surehand.state import locations

T = TypeVar("T")
_KNOWN: Final = ("name", "description", "tools", "model")
BUILT_IN: Final = (
    Profile("general", "Works on anything with all the tools you have."),
    Profile(
        "explorer",
        "Looks around and reports; changes nothing.",
        "You explore and report. You change nothing. Answer with facts and where you found them.",
        ("Read", "Grep", "Glob", "fs.*", "WebFetch", "WebSearch", "ToolSearch"),
    ),
)


def load(workspace: str, *, trusted: bool) -> tuple[list[Profile], list[str]]:
    """Return the profiles that count here, later ones over earlier ones, and what is wrong with files that do not."""
    found, problems = load_definitions(workspace, "agents", _read_profile, trusted=trusted)
    return list({profile.name: profile for profile in (*BUILT_IN, *found)}.values()), problems


def load_definitions(
    workspace: str, kind: str, read: Callable[[str], T], *, trusted: bool
) -> tuple[list[T], list[str]]:
    """Read the Markdown files of a kind: the user's, then a trusted workspace's; return them, and what is wrong."""
    found: list[T] = []
    problems: list[str] = []
    folders = [os.path.join(locations.home(), kind)]
    own = os.path.join(workspace, ".surehand", kind)
    if trusted:
        folders.append(own)
    else:
        problems += [f"{path}: this folder is not trusted; `surehand trust` changes that" for path in _files(own)]
    for path in (path for folder in folders for path in _files(folder)):
        try:
            found.append(read(path))
        except (OSError, UnicodeDecodeError, SettingsError) as problem:
            problems.append(f"{path}: {problem}")
    return found, problems


def _read_profile(path: str) -> Profile:
    with open(path, encoding="utf-8") as file:
        return parse_profile(file.read(), path)


def _files(folder: str) -> Iterator[str]:
    if os.path.isdir(folder):
        yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".md"))


def parse_profile(text: str, source: str) -> Profile:
    """Return the profile a file describes; raise SettingsError that says what is missing or unknown."""
    front = read_front_matter(text, _KNOWN, lists=("tools",))
    if front is None:
        raise SettingsError("no front matter; begin the file with --- and name, description")
    values, body = front
    name, description = " ".join(values.get("name", [])), " ".join(values.get("description", []))
    if not name or not description:
        raise SettingsError("name and description must both be there")
    tools = tuple(filter(None, values.get("tools", [])))
    return Profile(name, description, body, tools, " ".join(values.get("model", [])) or None, source)


# Front matter: the lines between `---` at the top of a Markdown file that describes an agent or a command.

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
