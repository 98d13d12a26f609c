"""Resolve requirements between tools: `Grep`, `Grep>=1.2,<2`, `pkg.search ~=1.0`.

A requirement names a tool (or an alias) and, where it matters, a range of versions as Python packages write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from surehand.core.text import lazy_pattern

# A tool's name may contain blanks, dots and slashes; the range starts at the first comparison sign.
_RANGE: Final = lazy_pattern(r"\s*(?P<range>(?:===|==|~=|!=|<=|>=|<|>).*)$", re.DOTALL)


class Described(Protocol):
    """What is asked of a tool here: `Tool` and `ToolInfo` both answer."""

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
    """Return (name, range) of a requirement; the range is empty when any version will do."""
    found = _RANGE.search(requirement)
    if found is None:
        return requirement.strip(), ""
    return requirement[: found.start()].strip(), found["range"].strip()


def requirement_name(requirement: str) -> str:
    """Return the name of the tool a requirement asks for."""
    return split_requirement(requirement)[0]


def problems(tool: Described, find: Callable[[str], Described | None]) -> list[str]:
    """Return why the requirements of `tool` cannot be met by what `find` gives, each named; an empty list if they can.

    `find` knows names and aliases. A cycle through tools already there is named from end to end.
    """
    if not tool.requires:
        return []
    found = [fault for each in tool.requires if (fault := unmet_requirement(each, find)) is not None]
    cycle = _cycle(tool, find)
    return [*found, f"requires itself: {' -> '.join(cycle)}"] if cycle else found


def order(
    tools: Iterable[Described], find: Callable[[str], Described | None]
) -> tuple[list[str], dict[str, list[str]]]:
    """Sort a group of tools so that each comes after what it requires.

    Returns the names in that order, and the faults of those that cannot be had (by name): a group that arrives
    together may require one another, in any order of its members.
    """
    group = {tool.name: tool for tool in tools}

    def find_any(name: str) -> Described | None:
        return group.get(name) or find(name)

    faults = {name: found for name, tool in group.items() if (found := problems(tool, find_any))}
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
    """Return why one requirement cannot be met by what `find` gives, or None."""
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
