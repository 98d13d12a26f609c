"""Configuration: settings merged from defaults < user file < project file < environment < flags.

The source of every value is recorded (`surehand config show`). The error for a wrong key or value names its source,
its line and the nearest valid one. A project's own file takes effect once the folder is trusted (its deny and ask
rules at once), but it cannot allow anything, open hosts, loosen the sandbox or send a key somewhere else. The user's
file is edited one value at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.record import Record
from surehand.core.settings import MODES, Settings, ToolSettings, WrongSettings, is_text
from surehand.core.text import lazy_pattern
from surehand.files.sanitize import visible
from surehand.state import locations
from surehand.state.files import mode_of, write_private

PROJECT_FILE: Final = "surehand.toml"
_NOT_SETTINGS: Final = frozenset({"SUREHAND_HOME"})
_NAMED: Final = ("TOOLS", "MCP_SERVERS", "EXTENSIONS")
"""Tables whose keys are names of tools, servers and extensions: their case is kept."""

Path = tuple[str, ...]

# Settings that a project's own file can never set, and why. A prefix covers everything below it.
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
    ("serve",): "who may use a server of the user's is the user's choice",
}


@frozen
class Origin:
    """Where a value came from: `default`, a file with its line, a variable or a flag."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Loaded:
    """The settings, where each set value came from, and warnings of what was ignored."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.origins: dict[Path, Origin] = {}
        self.warnings: list[str] = []


class _Source:
    """The values that one file, or the environment, sets, by path; `where` returns the origin of a path."""

    def __init__(self, values: Mapping[Path, Any], where: Callable[[Path], Origin]) -> None:
        self.values = values
        self.where = where


def load(workspace: str, *, flags: Mapping[Path, Any] | None = None, trusted: bool = False) -> Loaded:
    """Load the settings of a workspace."""
    loaded = Loaded(Settings())
    sources = [
        _file(locations.user_settings()),
        _narrow_project(_file(os.path.join(workspace, PROJECT_FILE)), trusted, loaded.warnings),
        _environment(os.environ),
    ]
    for source in sources:
        loaded.origins |= {path: source.where(path) for path in source.values}
    loaded.settings = _merge_sources(sources)
    loaded.settings = with_flags(loaded.settings, flags or {})
    loaded.origins |= {path: Origin(f"--{path[-1].replace('_', '-')}") for path in flags or ()}
    return loaded


def _merge_sources(sources: Sequence[_Source]) -> Settings:
    """Merge the settings of sources; later sources override earlier ones."""
    try:
        return _parse_settings(sources)
    except SettingsError as problem:
        # The merged settings are wrong: check each source to find which.
        complaints = [complaint for source in sources for complaint in _complaints(source)]
        raise SettingsError("\n".join(complaints) or str(problem)) from None


def _parse_settings(sources: Sequence[_Source]) -> Settings:
    tree: dict[str, Any] = {}
    for source in sources:
        for path, value in source.values.items():
            _put(tree, path, value, source)
    return Settings.parse(tree) if tree else Settings()


def _complaints(source: _Source) -> Iterator[str]:
    try:
        _parse_settings([source])
    except WrongSettings as wrong:
        for fault in wrong.faults:
            where = str(source.where(tuple(map(str, fault.path))))
            yield f"{where}: {fault.message}" if where else fault.message
    except SettingsError as problem:
        yield str(problem)


def check_values(values: Mapping[Path, Any], where: Callable[[Path], str]) -> None:
    """Raise SettingsError if any of these values, by path, is invalid; `where` returns the source of a path."""
    _merge_sources([_Source(values, lambda path: Origin(where(path)))])


def with_flags(settings: Settings, flags: Mapping[Path, Any]) -> Settings:
    """Return settings with the values of the command line (or a caller) applied."""
    for path, value in flags.items():
        settings = _with(settings, path, value)
    return settings


def _with(record: Record, path: Path, value: Any) -> Any:
    """Return a record with one value replaced. Not validated: flags are checked when they are parsed."""
    if len(path) == 1:
        return record.replace_values(**{path[0]: value})
    below = getattr(record, path[0])
    if isinstance(below, dict):
        tools = cast("dict[str, ToolSettings]", below)
        one = _with(tools.get(path[1]) or ToolSettings(), path[2:], value)
        return record.replace_values(**{path[0]: {**tools, path[1]: one}})
    return record.replace_values(**{path[0]: _with(below, path[1:], value)})


def flags(*, mode: str | None = None, timeout: tuple[str, float] | None = None) -> dict[Path, Any]:
    """Return the values that the command line sets, by path."""
    chosen: dict[Path, Any] = {}
    if mode is not None:
        if mode not in MODES:
            raise SettingsError(f"there is no mode {mode!r}; the modes are {', '.join(MODES)}")
        chosen["permissions", "mode"] = mode
    if timeout is not None:
        chosen["tools", timeout[0], "timeout"] = timeout[1]
    return chosen


def _narrow_project(project: _Source, trusted: bool, warnings: list[str]) -> _Source:
    """Return the project settings that take effect: if untrusted, only those that restrict; never those that widen."""
    kept: dict[Path, Any] = {}
    for path, value in project.values.items():
        refused = next((why for prefix, why in _NOT_FOR_PROJECTS.items() if path[: len(prefix)] == prefix), None)
        narrows = path[:2] in (("permissions", "deny"), ("permissions", "ask"), ("permissions", "rules"))
        if refused is None and (trusted or narrows):
            kept |= _mark_as_of_project(path, value)
            continue
        why = refused or "this folder is not trusted (see `surehand trust`)"
        name = visible(".".join(path), lines=False)  # sanitized: a stranger's file must not control the terminal
        warnings.append(f"{project.where(path)}: {name} was ignored: {why}")
    return _Source(kept, project.where)


def _mark_as_of_project(path: Path, value: Any) -> dict[Path, Any]:
    """Return a value of a project's file; hooks and MCP servers are marked as the project's, whatever the file says."""
    if (
        path == ("hooks",)
        and isinstance(value, list)
        and all(isinstance(each, dict) for each in cast("list[Any]", value))
    ):
        hooks = cast("list[dict[str, Any]]", value)
        return {path: [{**each, "project": True} for each in hooks]}
    if path[0] == "mcp_servers" and len(path) > 2:
        return {path: value, (*path[:2], "project"): True}
    return {path: value}


def _file(path: str) -> _Source:
    """Read the values of a settings file; none if it does not exist."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return _Source({}, lambda _: Origin(path))
    except OSError as problem:
        raise SettingsError(f"{path} cannot be read: {problem.strerror}") from None
    import tomllib

    try:
        text = raw.decode("utf-8-sig")
        tree = tomllib.loads(text)
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{path} is not UTF-8 text (byte {problem.start})") from None
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(f"{path} is not valid TOML: {problem}") from None
    except RecursionError:
        raise SettingsError(f"{path} is nested too deeply") from None
    places = KeyLines(text)
    return _Source(dict(leaves(tree)), lambda key: Origin(path, places.line(key)))


# Tables whose keys are the user's own: each is one value, not a subtree of settings.
_OPEN: Final = ("custom", "env", "headers")


def leaves(tree: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value of a tree of settings with its path."""
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, dict) and key not in _OPEN and value:
            yield from leaves(cast("dict[str, Any]", value), path)
        else:
            yield path, value


def _environment(variables: Mapping[str, str]) -> _Source:
    """Return the values that environment variables set: `SUREHAND_ENGINE__TIMEOUT` is `engine.timeout`."""
    named: dict[Path, str] = {}
    for name in sorted(variables):
        if not name.startswith("SUREHAND_") or name in _NOT_SETTINGS or name.startswith("SUREHAND_INTERNAL_"):
            continue
        words = name[len("SUREHAND_") :].split("__")
        # A tool's or a server's name keeps its case.
        named[tuple(word if at == 1 and words[0] in _NAMED else word.lower() for at, word in enumerate(words))] = name

    def where(path: Path) -> Origin:
        return Origin(
            next((name for known, name in named.items() if known[: len(path)] == path[: len(known)]), "settings")
        )

    return _Source({path: parse_value(path, variables[name]) for path, name in named.items()}, where)


def parse_value(path: Path, text: str) -> Any:
    """Parse the value of a variable or argument: as JSON if it is valid and the setting is not text, else as text."""
    if is_text(Settings, path):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _put(tree: dict[str, Any], path: Path, value: Any, source: _Source) -> None:
    for key in path[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            where = source.where(path)
            raise SettingsError(f"{where}: {'.'.join(path)} goes below {key!r}, which already has a plain value")
        tree = cast("dict[str, Any]", below)
    key = path[-1]
    if isinstance(value, list) and isinstance(tree.get(key), list) and path[0] == "permissions":
        value = [*tree[key], *cast("list[Any]", value)]  # rules of all sources apply; other values are replaced
    tree[key] = value


def list_values(loaded: Loaded) -> list[dict[str, Any]]:
    """Return every value with its origin, for `surehand config show`."""
    rows: list[dict[str, Any]] = []
    for path, value in leaves(loaded.settings.to_dict()):
        origin = loaded.origins.get(path)
        if origin is None:
            origin = next((where for known, where in loaded.origins.items() if path[: len(known)] == known), None)
        rows.append({"key": ".".join(path), "value": value, "from": str(origin or "default")})
    return rows


# The line numbers of keys in a TOML file. This parses only enough to find keys; tomllib reads the values.


# Strings, compiled only if there is a file: compiling them would add a millisecond to every start.
_PART: Final = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = rf"\s*\[(\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?"
_KEY: Final = rf"\s*({_DOTTED})\s*="


class KeyLines:
    """The line numbers of one file's keys and tables. Tables of an array are numbered: `hooks`, `0`, `command`."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        table: Path = ()
        for number, line in enumerate(text.splitlines(), 1):
            if header := re.fullmatch(_HEADER, line):
                table = self._table(_path(header[2]), listed=bool(header[1]), line=number)
            elif key := re.match(_KEY, line):
                self._lines.setdefault((*table, *_path(key[1])), number)

    def _table(self, name: Path, *, listed: bool, line: int) -> Path:
        """Record where a table begins, and return its path."""
        if listed:
            self._counts[name] = self._counts.get(name, -1) + 1
        table: Path = ()
        for end, part in enumerate(name, 1):
            table = (*table, part)
            if name[:end] in self._counts:
                self._lines.setdefault(table, line)
                table = (*table, str(self._counts[name[:end]]))
        self._lines.setdefault(table, line)
        return table

    def exact(self, path: Path) -> int | None:
        """Return the line of exactly this key or table."""
        return self._lines.get(path)

    def line(self, path: Path) -> int | None:
        """Return the line of a key, else of the first key below it, else of the table around it."""
        below = (line for known, line in self._lines.items() if known[: len(path)] == path)
        found = self._lines.get(path) or min(below, default=None)
        return found or (self.line(path[:-1]) if len(path) > 1 else None)


def _path(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


# Edit one value of the user's file: only its line changes, and a file that would not load is not written.

_BARE = lazy_pattern(r"[A-Za-z0-9_-]+")


def set_value(key: str, text: str) -> tuple[str, Any]:
    """Set a value (`model.effort`, `low`) in the user's settings; return the file and the parsed value.

    Raises SettingsError, and changes nothing, for an invalid key or value.
    """
    parts = tuple(key.split("."))
    if len(parts) < 2 or not all(parts):
        raise SettingsError(f"{key!r} is not a setting; it has a table and a name, as in engine.timeout")
    value = parse_value(parts, text)
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


def _with_value(text: str, path: Path, value: str) -> str:
    """Return the text with one value set: on its present line, in its table, or in a new table at the end."""
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


def _check(file: str, before: str, after: str, path: Path, value: Any) -> None:
    """Raise SettingsError unless the new text loads and differs only in that one value."""
    import tomllib

    try:
        old, new = (dict(leaves(tomllib.loads(text))) for text in (before, after))
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(f"{file} cannot be changed by this command; edit it by hand: {problem}") from None
    if {**old, path: value} != new:
        raise SettingsError(f"{file} sets {'.'.join(path)} in a way this command cannot change; edit it by hand")
    check_values(new, lambda at: "" if at == path[: len(at)] else file)  # the new value is in no file yet


def _name(part: str) -> str:
    return part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)


def _to_toml(key: str, value: Any) -> str:
    """Format a plain value as TOML."""
    match value:
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(_to_toml(key, each) for each in cast('list[Any]', value))}]"
        case _:
            raise SettingsError(f"{key} cannot be set to {value!r} here; edit the file by hand")
