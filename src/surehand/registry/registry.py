"""`Registry`: which tools exist. Register, look up by name or alias, list, query, unregister.

A tool may be registered lazily, as its description (`ToolInfo`) and a function that loads it: listing the built-in
tools imports none of them. A requirement of a tool is the name or alias of another, if it matters with a version range
as in Python packages: `Grep`, `Grep>=1.2,<2`, `pkg.search ~=1.0`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, Final, Protocol, TypeAlias

from surehand.core.errors import RegistrationError, ToolFailure
from surehand.core.events import Event, EventKind, Listener
from surehand.core.frozen import names_of
from surehand.core.names import full_name, name_problems
from surehand.core.schema import schema_problems
from surehand.core.session import Session
from surehand.core.text import lazy_pattern
from surehand.core.tool import KINDS, Tool, ToolInfo
from surehand.registry.lifecycle import Lifecycle
from surehand.registry.loading import import_problem

_FUNCTIONS: Final = (
    "effects", "check", "preview", "undo", "check_permission", "resources", "depends_on", "initialize", "health_check",
    "close", "at_once", "check_at_once",
)  # fmt: skip
_FLAGS: Final = ("read_only", "concurrency_safe")


_LOADING: Final = RLock()
"""Held while a tool is loaded, so that two threads that need it at once get the same object."""


class _LazyTool:
    """A tool registered by its description; `tool` is None until it is loaded."""

    __slots__ = ("info", "load", "tool")

    def __init__(self, info: ToolInfo, load: Callable[[], Tool]) -> None:
        self.info = info
        self.load = load
        self.tool: Tool | None = None


_Entry: TypeAlias = Tool | _LazyTool
"""A tool that is not lazy is stored without a wrapper: with ten thousand tools the objects count."""


class Registry:
    """All tools of one application, by name and alias, in the order they were registered."""

    def __init__(self, emit: Listener | None = None, hears: Callable[[EventKind], bool] = lambda kind: True) -> None:
        self.lifecycle = Lifecycle()
        self.version = 0
        """Incremented by every change; caches compare it."""
        self.deferrable: set[str] = set()
        """Names of tools that may be left out of a model's first listing; those a person added are always listed."""
        self._entries: dict[str, _Entry] = {}
        self._aliases: dict[str, str] = {}
        self._emit = emit
        self._hears = hears

    # -- register ------------------------------------------------------------------------------------------------

    def register(self, tool: Tool, *, deferrable: bool = False) -> Tool:
        """Add a tool; raise RegistrationError with every fault. Returns the tool, so it can wrap a definition.

        A model's first listing has it in any case, unless it is `deferrable`: then a search may be needed to find it.
        """
        found = problems(tool)
        if not isinstance(tool, Tool):
            raise RegistrationError(getattr(tool, "name", getattr(tool, "__name__", repr(tool))), found)
        name, names = tool.name, _names_of(tool) if tool.module else tool.aliases
        if names or name in self._entries or name in self._aliases:
            found += self._clashes(name, names)
        if tool.requires:
            found += requirement_problems(tool, self.card)
        if found:
            raise RegistrationError(name, found)
        self._add(name, names, tool, deferrable)
        return tool

    def register_lazy(self, info: ToolInfo, load: Callable[[], Tool], *, deferrable: bool = True) -> None:
        """Add a tool that is loaded when it is first called.

        A `deferrable` one may be left out of a model's first listing, and is then found by search.
        """
        names = (*info.aliases, full_name(info.module, info.name)) if info.module else info.aliases
        if found := self._clashes(info.name, names):
            raise RegistrationError(info.name, found)
        self._add(info.name, names, _LazyTool(info, load), deferrable)

    def register_module(self, module: str, tools: Iterable[Tool], *, version: str | None = None) -> list[Tool]:
        """Add a group of tools under one module name, all or none."""
        members = [_in_module(tool, module, version) for tool in tools]
        faults: list[str] = []
        taken: set[str] = set()
        for tool in members:
            found = problems(tool) + self._clashes(tool.name, _names_of(tool))
            found += [f"{tool.name!r} is twice in the module"] if tool.name in taken else []
            taken.add(tool.name)
            faults += [f"{tool.name}: {fault}" for fault in found]
        wanting = order_by_requirements(members, self.card)[1]
        faults += [f"{name}: {fault}" for name, found in wanting.items() for fault in found]
        if faults:
            raise RegistrationError(f"module {module}", faults)
        for tool in members:
            self._add(tool.name, _names_of(tool), tool)
        return members

    def exchange(self, away: Iterable[str], tools: Iterable[Tool], *, deferrable: bool = False) -> list[Tool]:
        """Replace tools by others, all or none; running calls finish on the old ones.

        Refused if a tool that stays requires one of the old ones, and no new one meets that requirement.
        """
        members, gone = list(tools), [name for name in away if name in self._entries]
        if faults := self._exchange_faults(members, gone):
            doing = "registered" if members else "unregistered"
            names = ", ".join(str(getattr(tool, "name", tool)) for tool in members) or ", ".join(gone)
            raise RegistrationError(names, faults, doing=doing)
        for name in gone:
            self._remove(name)
        for tool in members:
            self._add(tool.name, _names_of(tool), tool, deferrable)
        return members

    def unregister(self, name: str, *, cascade: bool = False) -> list[str]:
        """Unregister a tool (running calls finish on it) and return all removed names.

        Refused while other tools require it, unless `cascade` unregisters those too.
        """
        real = self.resolve(name)
        if real is None:
            raise RegistrationError(name, [f"there is no tool {name!r}"], doing="unregistered")
        dependants = self.dependants(real)
        if dependants and not cascade:
            why = f"still required by {', '.join(dependants)}; unregister with cascade=True"
            raise RegistrationError(real, [why], doing="unregistered")
        removed: list[str] = []
        for dependant in dependants:
            if dependant in self._entries:
                removed += self.unregister(dependant, cascade=True)
        self._remove(real)
        return [*removed, real]

    def replace(self, tool: Tool, *, deferrable: bool = False) -> Tool:
        """Replace the tool of the same name, or add it; running calls finish on the old one."""
        if tool.name in self._entries:
            return self.exchange([tool.name], [tool], deferrable=deferrable)[0]
        return self.register(tool, deferrable=deferrable)

    # -- look up -------------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> str | None:
        """Return the registered name for a name or alias, or None."""
        return name if name in self._entries else self._aliases.get(name)

    def get(self, name: str) -> Tool | None:
        """Return the tool with this name or alias, loaded; None when there is none."""
        entry = self._entries.get(name)
        if entry is None:
            alias = self._aliases.get(name)
            if alias is None:
                return None
            entry = self._entries[alias]
        return _tool_of(entry)

    def card(self, name: str) -> Tool | ToolInfo | None:
        """Return the tool, or its description if it is not loaded; never loads it or builds its schema."""
        real = self.resolve(name)
        return None if real is None else _card(self._entries[real])

    def info(self, name: str, session: Session | None = None) -> ToolInfo | None:
        """Return the description of a tool, without loading it where possible."""
        real = self.resolve(name)
        return None if real is None else _info_of(self._entries[real], session)

    def cards(self) -> list[Tool | ToolInfo]:
        """Return every tool, or its description if it is not loaded."""
        return [*map(_card, self._entries.values())]

    def infos(self, session: Session | None = None, **wanted: Any) -> list[ToolInfo]:
        """Return the descriptions of all tools, in order of registration; keywords select by metadata.

        `infos(module="calculator", read_only=True)`; `state` selects by life cycle, `version` by exact version.
        """
        state = wanted.pop("state", None)
        unknown = wanted.keys() - set(names_of(ToolInfo))
        if unknown:
            raise ValueError(f"tools have no metadata named {', '.join(sorted(unknown))}")
        told = (_info_of(entry, session) for entry in self._entries.values())
        return [
            info
            for info in told
            if all(getattr(info, key) == value for key, value in wanted.items())
            and (state is None or self.lifecycle.state(info.name) == state)
        ]

    def all(self) -> list[Tool]:
        """Return every tool, loaded."""
        return [*map(_tool_of, self._entries.values())]

    def names(self) -> list[str]:
        """Return every tool's name in full form (`mcp__{module}__{tool}` for tools of a module)."""
        return [*map(_full_name, self.cards())]

    def module_names(self, module: str) -> list[str]:
        """Return the full names of one module's tools."""
        return [_full_name(card) for card in self.cards() if card.module == module]

    def modules(self) -> list[str]:
        """Return the names of all modules, in order."""
        return list(dict.fromkeys(card.module for card in self.cards() if card.module))

    def list(self) -> list[tuple[str, str]]:
        """Return name and description of every tool."""
        return [(info.name, info.description) for info in self.infos()]

    def filter(self, names: Iterable[str]) -> list[Tool]:
        """Return the tools with these names or aliases, each once; unknown names are ignored."""
        real = dict.fromkeys(found for name in names if (found := self.resolve(name)) is not None)
        return [tool for name in real if (tool := self.get(name)) is not None]

    def dependants(self, name: str) -> list[str]:
        """Return the names of tools that require this one."""
        found: list[str] = []
        for other, entry in self._entries.items():
            if any(self.resolve(requirement_name(each)) == name for each in _card(entry).requires):
                found.append(other)
        return found

    def __contains__(self, name: str) -> bool:
        return self.resolve(name) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    # -- inside --------------------------------------------------------------------------------------------------

    def _clashes(self, name: str, others: Iterable[str]) -> list[str]:
        found: list[str] = []
        for each in (name, *others):
            if each in self._entries or each in self._aliases:
                holder = self.resolve(each)
                what = f"the tool {holder!r}" if holder == each else f"an alias of the tool {holder!r}"
                found.append(
                    f"the name {each!r} (of {name!r}) is already {what}; choose another or unregister it first"
                )
        return found

    def _exchange_faults(self, members: Sequence[Tool], gone: Sequence[str]) -> list[str]:
        """Return why these tools cannot take the place of those names, or an empty list."""
        faults: list[str] = []
        taken: dict[str, str] = {}
        for tool in members:
            found = problems(tool)
            for each in dict.fromkeys((tool.name, *_names_of(tool))) if isinstance(tool, Tool) else ():
                found += [f"the name {each!r} is also that of {taken[each]!r}"] if each in taken else []
                found += self._clashes(each, ()) if self.resolve(each) not in (None, *gone) else []
                taken[each] = tool.name
            faults += [f"{getattr(tool, 'name', tool)}: {fault}" for fault in found]
        if faults:
            return faults
        new = {tool.name: tool for tool in members}

        def find(name: str) -> Tool | ToolInfo | None:
            return new.get(taken.get(name, name)) or (None if self.resolve(name) in gone else self.card(name))

        left = [card for name in self._dependants_of(gone) if (card := self.card(name)) is not None]
        wanting = order_by_requirements(members, find)[1] | {
            card.name: found for card in left if (found := requirement_problems(card, find))
        }
        return [f"{name}: {fault}" for name, found in wanting.items() for fault in found]

    def _dependants_of(self, names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(each for name in names for each in self.dependants(name) if each not in names))

    def _add(self, name: str, others: Iterable[str], entry: _Entry, deferrable: bool = False) -> None:
        self._entries[name] = entry
        if deferrable:
            self.deferrable.add(name)
        for other in others:
            if other != name:
                self._aliases[other] = name
        self.version += 1
        self.lifecycle.register(name)
        if self._emit is not None and self._hears("tool_registered"):
            self._emit(Event("tool_registered", tool=name))

    def _remove(self, name: str) -> None:
        self.lifecycle.unregister(name)  # first: a hook may refuse, and nothing must have changed then
        del self._entries[name]
        self.deferrable.discard(name)
        for alias in [alias for alias, real in self._aliases.items() if real == name]:
            del self._aliases[alias]
        self.version += 1
        if self._emit is not None:
            self._emit(Event("tool_unregistered", tool=name))


def _names_of(tool: Tool) -> tuple[str, ...]:
    return (*tool.aliases, tool.full_name) if tool.module and tool.full_name != tool.name else tool.aliases


def _in_module(tool: Tool, module: str, version: str | None) -> Tool:
    if not isinstance(tool, Tool):
        raise RegistrationError(f"module {module}", problems(tool))
    from dataclasses import replace

    return replace(tool, module=module, version=version or tool.version)


def _load_tool(entry: _LazyTool) -> Tool:
    try:
        with _LOADING:
            entry.tool = entry.tool or entry.load()
    except Exception as problem:  # importing a module can raise anything; the other tools must keep working
        said = str(problem) if isinstance(problem, ImportError) else f"{type(problem).__name__}: {problem}"
        raise ToolFailure(
            f"{entry.info.name} cannot be loaded: {said}",
            code="tool_unavailable",
            hint="Reinstall surehand with its dependencies.",
        ) from problem
    return entry.tool


def _tool_of(entry: _Entry) -> Tool:
    return entry if isinstance(entry, Tool) else entry.tool or _load_tool(entry)


def _card(entry: _Entry) -> Tool | ToolInfo:
    return entry if isinstance(entry, Tool) else entry.tool or entry.info


def _info_of(entry: _Entry, session: Session | None) -> ToolInfo:
    if isinstance(entry, _LazyTool) and (session is None or entry.tool is None):
        return entry.info
    return _tool_of(entry).info(session)


def _full_name(card: Tool | ToolInfo) -> str:
    if isinstance(card, Tool):
        return card.full_name
    return full_name(card.module, card.name) if card.module else card.name


def problems(tool: object) -> list[str]:
    """Return every fault of a tool's definition, or an empty list; registering checks the same."""
    if not isinstance(tool, Tool):
        below = " itself: put @tool above it" if callable(tool) else ""
        return [f"expected a Tool (or a function under @tool), got {type(tool).__name__}{below}"]
    found = name_problems(tool.name)
    if isinstance(tool.description, str):
        if not tool.description.strip():
            found.append("description is missing: a model must know what the tool is for (a docstring will do)")
    elif not callable(tool.description):
        found.append(f"description must be text or a function of the session, not {type(tool.description).__name__}")
    if not callable(tool.run):
        found.append(f"run must be callable, not {type(tool.run).__name__}")
    if not _has_no_options(tool):  # skips the check of each option for most tools
        found += _find_option_problems(tool)
    found += tool.arguments.problems()
    return found


def _has_no_options(tool: Tool) -> bool:
    """Return whether all optional fields have their defaults; spelled out because thousands of tools are checked."""
    return (
        tool.read_only is tool.concurrency_safe is tool.pure is False
        and tool.effects is tool.check is tool.preview is tool.undo is tool.check_permission is tool.resources is None
        and tool.depends_on is tool.initialize is tool.health_check is tool.close is tool.at_once is None
        and tool.check_at_once is tool.timeout_s is tool.where is tool.output_schema is None
        and tool.show_preview == "asked"
        and tool.kind == "other"
        and not tool.aliases
    )


def _find_option_problems(tool: Tool) -> list[str]:
    found = [f"alias: {problem}" for alias in tool.aliases for problem in name_problems(alias)]
    for name in _FUNCTIONS:
        if (value := getattr(tool, name)) is not None and not callable(value):
            found.append(f"{name} must be callable, not {type(value).__name__}")
    for name in _FLAGS:
        value = getattr(tool, name)
        if not isinstance(value, bool) and not callable(value):  # the text "no" would count as true
            found.append(f"{name} must be True, False or a function of the arguments, not {value!r}")
    timeout = tool.timeout_s
    if not (timeout is None or callable(timeout) or (isinstance(timeout, int | float) and 0 < timeout < 1e7)):
        found.append(f"timeout_s must be a positive number of seconds, not {timeout!r}")
    if tool.where not in (None, "loop", "thread", "process"):
        found.append(f"where must be 'loop', 'thread' or 'process', not {tool.where!r}")
    if tool.kind not in KINDS:
        found.append(f"kind must be one of {', '.join(KINDS)}, not {tool.kind!r}")
    if tool.show_preview not in ("offered", "asked", "always") and not callable(tool.show_preview):
        found.append(f"show_preview must be 'offered', 'asked', 'always' or a function, not {tool.show_preview!r}")
    if tool.pure and tool.read_only is not True:
        found.append("a pure tool only reads: say read_only=True as well")
    if tool.output_schema is not None:
        found += schema_problems(tool.output_schema, "output schema")
    if tool.where == "process":
        found += [problem] if (problem := import_problem(tool)) else []
    return found


# A tool's name may contain blanks, dots and slashes; the range starts at the first comparison sign.
_RANGE: Final = lazy_pattern(r"\s*(?P<range>(?:===|==|~=|!=|<=|>=|<|>).*)$", re.DOTALL)


class Described(Protocol):
    """The part of a tool that requirements need; `Tool` and `ToolInfo` both have it."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        ...

    @property
    def version(self) -> str:
        """The version of the tool."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """The tools it needs, with version ranges."""
        ...


def split_requirement(requirement: str) -> tuple[str, str]:
    """Return (name, range) of a requirement; the range is empty if any version will do."""
    found = _RANGE.search(requirement)
    if found is None:
        return requirement.strip(), ""
    return requirement[: found.start()].strip(), found["range"].strip()


def requirement_name(requirement: str) -> str:
    """Return the name of the tool a requirement asks for."""
    return split_requirement(requirement)[0]


def requirement_problems(tool: Described, find: Callable[[str], Described | None]) -> list[str]:
    """Return a text for each requirement of `tool` that the tools `find` returns do not meet, and for a cycle.

    `find` takes a name or an alias. The text on a cycle names all tools in it.
    """
    if not tool.requires:
        return []
    found = [fault for each in tool.requires if (fault := unmet_requirement(each, find)) is not None]
    cycle = _cycle(tool, find)
    return [*found, f"requires itself: {' -> '.join(cycle)}"] if cycle else found


def order_by_requirements(
    tools: Iterable[Described], find: Callable[[str], Described | None]
) -> tuple[list[str], dict[str, list[str]]]:
    """Sort a group of tools so that each comes after what it requires.

    Returns the names in that order, and by name the faults of those that cannot be registered. Tools of the group may
    require one another, in whatever order they are given.
    """
    group = {tool.name: tool for tool in tools}

    def find_any(name: str) -> Described | None:
        return group.get(name) or find(name)

    faults = {name: found for name, tool in group.items() if (found := requirement_problems(tool, find_any))}
    while lost := [
        name
        for name, tool in group.items()
        if name not in faults and any(requirement_name(each) in faults for each in tool.requires)
    ]:
        for name in lost:
            missing = [each for each in map(requirement_name, group[name].requires) if each in faults]
            faults[name] = [f"requires {each}, which cannot be registered" for each in missing]
    placed: dict[str, None] = {}
    for name in group:
        if name not in faults:
            _order_requirements(name, group, placed)
    return list(placed), faults


def _order_requirements(name: str, group: Mapping[str, Described], placed: dict[str, None]) -> None:
    pending = [name]
    while pending:
        current = pending[-1]
        wanted = [
            each for each in map(requirement_name, group[current].requires) if each in group and each not in placed
        ]
        if wanted:
            pending.extend(wanted)
        else:
            placed[pending.pop()] = None


def unmet_requirement(requirement: str, find: Callable[[str], Described | None]) -> str | None:
    """Return why no tool that `find` returns meets the requirement; None if one does."""
    name, wanted = split_requirement(requirement)
    if not name:
        return f"requirement {requirement!r} names no tool"
    there = find(name)
    if not wanted:
        return None if there is not None else f"requires {name}, which is not registered"

    # Comparing versions is rare; the import costs more than registering a thousand tools.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        range_ = SpecifierSet(wanted, prereleases=True)
    except InvalidSpecifier:
        return f"requirement {requirement!r} has no valid range of versions; write it like 'Name>=1.2,<2'"
    if there is None:
        return f"requires {name}{wanted}, which is not registered"
    try:
        version = Version(there.version)
    except InvalidVersion:
        return f"requires {name}{wanted}, but {there.name} has the version {there.version!r}, which cannot be compared"
    return None if version in range_ else f"requires {name}{wanted}, but {there.name} has version {there.version}"


def _cycle(tool: Described, find: Callable[[str], Described | None]) -> list[str]:
    """Return the path from `tool` back to itself, or an empty list."""

    def follow(name: str) -> Described | None:
        return tool if name == tool.name else find(name)

    paths = [[tool.name]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        here = follow(path[-1])
        for name in map(requirement_name, here.requires if here else ()):
            reached = follow(name)
            if reached is None:
                continue
            if reached.name == tool.name:
                return [*path, tool.name]
            if reached.name not in seen:
                seen.add(reached.name)
                paths.append([*path, reached.name])
    return []
