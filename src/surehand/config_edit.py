"""Edit one value of the user's configuration: that line alone changes, and what would not load is not written."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from typing import Any, cast

from surehand import config
from surehand.core.errors import SettingsError
from surehand.state import locations
from surehand.state.json_file import mode_of, write_private
from surehand.state.toml_lines import KeyLines

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def set_value(key: str, text: str) -> tuple[str, Any]:
    """Set a value (`model.effort`, `low`) in the user's settings; return the file and the value as it was understood.

    Raises SettingsError, and changes nothing, for a key or a value that makes no sense.
    """
    parts = tuple(key.split("."))
    if len(parts) < 2 or not all(parts):
        raise SettingsError(f"{key!r} is not a setting; it has a table and a name, as in engine.timeout")
    value = config.value_of(parts, text)
    file = os.path.realpath(locations.user_settings())
    locations.private_dir(os.path.dirname(file))
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _read(file)
        after = _with_value(before, parts, _to_toml(key, value))
        _check(file, before, after, parts, value)
        write_private(file, after, mode=mode_of(file))
    return file, value


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8", newline="") as opened:
            return opened.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise SettingsError(f"{file} cannot be read, so nothing was set: {problem}") from None


def _with_value(text: str, path: config.Path, value: str) -> str:
    """Return the file with one value: on the line it has, below its table, or in a new table at the end."""
    lines = text.splitlines(keepends=True)
    places = KeyLines(text)
    row = f"{_name(path[-1])} = {value}"
    if (at := places.exact(path)) is not None:
        end = "\n" if lines[at - 1].endswith("\n") else ""
        kept = re.match(r"\s*", lines[at - 1])
        dotted = lines[at - 1].split("=", 1)[0].strip()
        lines[at - 1] = f"{kept[0] if kept else ''}{dotted} = {value}{end}"
        return "".join(lines)
    if (at := places.exact(path[:-1])) is not None and lines[at - 1].lstrip().startswith("["):
        lines[at - 1] = lines[at - 1].rstrip("\r\n") + "\n"
        lines.insert(at, f"{row}\n")
        return "".join(lines)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}[{'.'.join(map(_name, path[:-1]))}]\n{row}\n"


def _check(file: str, before: str, after: str, path: config.Path, value: Any) -> None:
    """Raise unless the file loads as before but for that one value."""
    try:
        old, new = (dict(config.leaves(tomllib.loads(text))) for text in (before, after))
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(f"{file} cannot be changed by this command; edit it by hand: {problem}") from None
    if {**old, path: value} != new:
        raise SettingsError(f"{file} sets {'.'.join(path)} in a way this command cannot change; edit it by hand")
    config.check_values(new, lambda at: "" if at == path[: len(at)] else file)  # what is set now stands in no file yet


def _name(part: str) -> str:
    return part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)


def _to_toml(key: str, value: Any) -> str:
    """Return a plain value as TOML writes it."""
    match value:
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(_to_toml(key, each) for each in cast('list[Any]', value))}]"
        case _:
            raise SettingsError(f"{key} cannot be set to {value!r} here; edit the file by hand")
