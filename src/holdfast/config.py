"""Settings from everywhere, laid over each other: defaults < user file < project file < environment < flags.

Every value knows where it came from (`holdfast config show`). A wrong key or value names its source, its line and
the nearest right one. A project's own file counts once the folder is trusted, and then narrows only: it cannot
allow, open hosts, loosen the sandbox or send a key somewhere else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from holdfast.core.errors import SettingsError
from holdfast.core.frozen import frozen
from holdfast.core.record import Record
from holdfast.core.settings import MODES, Settings, ToolSettings
from holdfast.host import locations

PROJECT_FILE: Final = "holdfast.toml"
_NOT_SETTINGS: Final = frozenset({"HOLDFAST_HOME"})

Path = tuple[str, ...]

# What a project's own file may never say, and why. A prefix covers everything below it.
_NOT_FOR_PROJECTS: Final[Mapping[Path, str]] = {
    ("permissions", "allow"): "a project cannot allow itself anything",
    ("permissions", "mode"): "the mode is the user's choice",
    ("permissions", "confirm_bypass"): "confirming bypass is the user's choice",
    ("permissions", "approval_timeout"): "how long to wait for an answer is the user's choice",
    ("sandbox",): "a project cannot change its own sandbox",
    ("web",): "a project cannot open hosts or set a proxy",
    ("model", "base_url"): "a project cannot redirect the model's traffic",
    ("model", "provider"): "which model is used is the user's choice",
    ("model", "path"): "which model is used is the user's choice",
    ("history",): "the history is the user's",
}


@frozen
class Origin:
    """Where a value came from: `default`, a file with its line, a variable or a flag."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Loaded:
    """The settings, where each set value came from, and what was left out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.origins: dict[Path, Origin] = {}
        self.tables: dict[Path, Origin] = {}
        """Where each table of a file begins."""
        self.warnings: list[str] = []


def load(workspace: str, *, flags: Mapping[Path, Any] | None = None, trusted: bool = False) -> Loaded:
    """Return the settings that hold in a workspace."""
    tree: dict[str, Any] = {}
    loaded = Loaded(Settings())
    for path, value, origin in _values(workspace, trusted, loaded):
        _put(tree, path, value, origin)
        loaded.origins[path] = origin
    if tree:
        loaded.settings = _checked(tree, loaded.tables | loaded.origins)
    loaded.settings = with_flags(loaded.settings, flags or {})
    loaded.origins |= {path: Origin(f"--{path[-1].replace('_', '-')}") for path in flags or ()}
    return loaded


def with_flags(settings: Settings, flags: Mapping[Path, Any]) -> Settings:
    """Lay what the command line (or a caller) sets over settings."""
    for path, value in flags.items():
        settings = _with(settings, path, value)
    return settings


def _with(record: Record, path: Path, value: Any) -> Any:
    """Return a record with one value replaced. What flags set was checked where it was read."""
    if len(path) == 1:
        return record.changed(**{path[0]: value})
    below = getattr(record, path[0])
    if isinstance(below, dict):
        tools = cast("dict[str, ToolSettings]", below)
        one = _with(tools.get(path[1]) or ToolSettings(), path[2:], value)
        return record.changed(**{path[0]: {**tools, path[1]: one}})
    return record.changed(**{path[0]: _with(below, path[1:], value)})


def flags(*, mode: str | None = None, timeout: tuple[str, float] | None = None) -> dict[Path, Any]:
    """Return what the command line sets, as paths into the tree."""
    chosen: dict[Path, Any] = {}
    if mode is not None:
        if mode not in MODES:
            raise SettingsError(f"there is no mode {mode!r}; the modes are {', '.join(MODES)}")
        chosen["permissions", "mode"] = mode
    if timeout is not None:
        chosen["tools", timeout[0], "timeout"] = timeout[1]
    return chosen


def _values(workspace: str, trusted: bool, loaded: Loaded) -> Iterator[tuple[Path, Any, Origin]]:
    yield from _file(locations.user_settings(), loaded.tables)
    project = os.path.join(workspace, PROJECT_FILE)
    for path, value, origin in _file(project, loaded.tables):
        refused = next((why for prefix, why in _NOT_FOR_PROJECTS.items() if path[: len(prefix)] == prefix), None)
        narrows = path[:2] in (("permissions", "deny"), ("permissions", "ask"), ("permissions", "rules"))
        if refused:
            loaded.warnings.append(f"{origin}: {'.'.join(path)} was ignored: {refused}")
        elif trusted or narrows:
            yield path, value, origin
        else:
            loaded.warnings.append(
                f"{origin}: {'.'.join(path)} was ignored: this folder is not trusted (see `holdfast trust`)"
            )
    yield from _environment(os.environ)


def _file(path: str, tables: dict[Path, Origin]) -> Iterator[tuple[Path, Any, Origin]]:
    """Yield the values of a file; `tables` is told where its tables begin."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as problem:
        raise SettingsError(f"{path} cannot be read: {problem.strerror}") from None
    import tomllib

    try:
        text = raw.decode("utf-8")
        tree = tomllib.loads(text)
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{path} is not UTF-8 text (byte {problem.start})") from None
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}") from None
    lines, begins = _lines(text)
    tables.update({table: Origin(path, line) for table, line in begins.items()})
    for keys, value in _leaves(tree):
        yield keys, value, Origin(path, _line_of(keys, lines))


# Subtrees whose inner keys are the user's own: they stay whole.
_OPEN: Final = ("custom", "env", "headers")


def _leaves(tree: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, dict) and key not in _OPEN and value:
            yield from _leaves(cast("dict[str, Any]", value), path)
        else:
            yield path, value


# Read as patterns only where there is a file: making them takes a millisecond of every start.
_PART: Final = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?"
_KEY: Final = rf"\s*({_DOTTED})\s*="


def _lines(text: str) -> tuple[dict[Path, int], dict[Path, int]]:
    """Return the lines of keys and of tables; enough of TOML to point at a place, never to read a value."""
    keys: dict[Path, int] = {}
    tables: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.fullmatch(_HEADER, line):
            table = _path(header[1])
            tables.setdefault(table, number)
        elif key := re.match(_KEY, line):
            keys.setdefault((*table, *_path(key[1])), number)
    return tables | keys, tables


def _path(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


def _line_of(path: Path, lines: dict[Path, int]) -> int | None:
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def _environment(variables: Mapping[str, str]) -> Iterator[tuple[Path, Any, Origin]]:
    for name in sorted(variables):
        if not name.startswith("HOLDFAST_") or name in _NOT_SETTINGS or name.startswith("HOLDFAST_INTERNAL_"):
            continue
        path = tuple(part.lower() for part in name[len("HOLDFAST_") :].split("__"))
        if len(path) > 1 and path[0] == "tools":  # a tool's name keeps its case
            path = (path[0], name[len("HOLDFAST_") :].split("__")[1], *path[2:])
        yield path, _parsed(variables[name]), Origin(name)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(tree: dict[str, Any], path: Path, value: Any, origin: Origin) -> None:
    for key in path[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            raise SettingsError(f"{origin}: {'.'.join(path)} goes below {key!r}, which already has a plain value")
        tree = cast("dict[str, Any]", below)
    key = path[-1]
    if isinstance(value, list) and isinstance(tree.get(key), list) and path[0] == "permissions":
        value = [*tree[key], *cast("list[Any]", value)]  # rules add up; everything else replaces
    tree[key] = value


def _checked(tree: dict[str, Any], origins: dict[Path, Origin]) -> Settings:
    try:
        return Settings.parse(tree)
    except ValueError as error:
        from pydantic import ValidationError  # loaded by now; without a mistake it is not needed at all

        if not isinstance(error, ValidationError):
            raise
        complaints = [_complaint(each, origins) for each in error.errors(include_url=False)]
        raise SettingsError("\n".join(complaints)) from None


def _complaint(each: Any, origins: dict[Path, Origin]) -> str:
    path = tuple(str(part) for part in each["loc"])
    origin, name = _where(path, origins), ".".join(path)
    if each["type"] == "extra_forbidden":
        return f"{origin}: there is no setting {name}{_nearest(path)}"
    got = json.dumps(each["input"], ensure_ascii=False, default=str)
    wanted = str(each["msg"]).replace("a valid tuple", 'a list, such as ["..."]')
    return f"{origin}: {name} = {got} is wrong: {wanted}"


def _where(path: Path, origins: dict[Path, Origin]) -> Origin:
    """Return where a value, the table around it, or else the first value below it stands."""
    key = path
    while key and key not in origins:
        key = key[:-1]
    below = (where for known, where in origins.items() if known[: len(path)] == path)
    return origins[key] if key else min(below, key=lambda where: where.line or 0, default=Origin("settings"))


def _nearest(path: Path) -> str:
    from holdfast.core.schema import did_you_mean

    return did_you_mean(".".join(path), known_keys())


def known_keys(model: Any = Settings, above: str = "") -> list[str]:
    """Return every key of the tree, dotted."""
    found: list[str] = []
    for name, info in model.pydantic_model().model_fields.items():
        key = f"{above}{name}"
        found.append(key)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Record):
            found += known_keys(info.annotation, f"{key}.")
    return found


def shown(loaded: Loaded) -> list[dict[str, Any]]:
    """Return every value with where it came from, for `holdfast config show`."""
    rows: list[dict[str, Any]] = []
    for path, value in _leaves(loaded.settings.to_dict()):
        origin = loaded.origins.get(path)
        if origin is None:
            origin = next((where for known, where in loaded.origins.items() if path[: len(known)] == known), None)
        rows.append({"key": ".".join(path), "value": value, "from": str(origin or "default")})
    return rows
