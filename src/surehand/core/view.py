"""`Selection`, a session's view of the registry: filters, allow-list, deferral, sub-agents. Nothing else hides a tool.

Hidden is not deferred. A tool that the selection does not contain cannot be called. A deferred tool can; it is only
left out of what a model is shown until `ToolSearch` (or anything else) activates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from surehand.core.frozen import frozen
from surehand.core.names import full_name, meant_by, plain_names, provider_safe, split_full_name

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.tool import Tool, ToolInfo

CORE_TOOLS: Final = ("Bash", "Read", "Edit", "Write", "Glob", "Grep", "Agent", "ToolSearch")
"""Always shown, whatever the number of tools."""
DEFERRED_THRESHOLD: Final = 15
_GLOB: Final = frozenset("*?[")


class Source(Protocol):
    """A source of tools, such as the registry."""

    version: int
    """Incremented by every change."""
    deferrable: set[str]
    """The names of tools that may be deferred."""

    def __iter__(self) -> Iterator[str]: ...
    def resolve(self, name: str) -> str | None:
        """Return the tool name that a name or alias refers to."""
        ...

    def get(self, name: str) -> Tool | None:
        """Return a tool by its name; None where there is none."""
        ...

    def card(self, name: str) -> Tool | ToolInfo | None:
        """Return a tool's metadata without loading it or building its schema."""
        ...

    def info(self, name: str, session: Session | None = None) -> ToolInfo | None:
        """Return a tool's description without loading it."""
        ...


Search = Callable[[str, int, Callable[[str], bool]], Sequence[str]]
"""`search(query, limit, keep)` returns the names of the best matches among those for which `keep` is true."""


@frozen
class PlainNames:
    """Tool names in letters, digits, `_` and `-` alone, for clients and models that accept no others; both ways."""

    shown: Mapping[str, str]
    real: Mapping[str, str]

    @classmethod
    def of(cls, names: Iterable[str]) -> PlainNames:
        """Build the mapping for a list of tool names."""
        shown = plain_names(names)
        return cls(shown, {plain: name for name, plain in shown.items()})


class Selection:
    """The tools one session sees, in the order they were registered.

    `allow` holds names, aliases and globs; empty allows all. `parent` bounds a sub-agent, which never sees more. `hide`
    tells which tools are disabled at the moment; they are neither shown nor found.
    """

    def __init__(
        self,
        source: Source,
        session: Session | None = None,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        search: Search | None = None,
        threshold: int = DEFERRED_THRESHOLD,
        core: Sequence[str] = CORE_TOOLS,
        hide: Callable[[str], bool] | None = None,
        parent: Selection | None = None,
        shown_as: Selection | None = None,
    ) -> None:
        self.source = source
        self.session = session
        self.allow = tuple(allow)
        self.deny = tuple(deny)
        self.threshold = threshold
        self.core = tuple(core)
        self.parent = parent
        self.shown_as = shown_as
        """The selection whose tools a model is shown instead, so that both share the provider's prompt cache. A call of
        a tool that this selection does not contain is refused."""
        self._search = search
        self._hide = hide
        self._own_activations: set[str] = set()
        self._version = -1
        self._names: dict[str, None] = {}
        self._tools: dict[str, Tool] = {}
        self._plain: PlainNames | None = None

    # What may be called ----------------------------------------------------------------------------------------------

    def get(self, name: str) -> Tool | None:
        """Return the tool of a name or alias, loading it if needed; None if this selection does not contain it."""
        if self._version != self.source.version:
            self._refresh()
        return self._tools.get(name) or self._look_up(name)

    def at_hand(self, name: str) -> Tool | None:
        """Like `get`, but None for a tool that is not loaded yet: its import may take a tenth of a second."""
        if self._version != self.source.version:
            self._refresh()
        tool = self._tools.get(name)
        if tool is None and (real := self._find(name)) is not None and hasattr(self.source.card(real), "run"):
            return self._look_up(name)
        return tool

    def names(self) -> list[str]:
        """Return the names of all tools that may be called."""
        return list(self._current())

    def infos(self) -> list[ToolInfo]:
        """Return the descriptions of all tools that may be called and are not disabled."""
        return self._list_infos(self._visible_names())

    def hides(self, name: str) -> bool:
        """Whether the tool exists but is not in this selection."""
        real = self.source.resolve(name)
        return real is not None and real not in self

    def __contains__(self, name: str) -> bool:
        real = self.source.resolve(name)
        return real is not None and real in self._current()

    def __len__(self) -> int:
        return len(self._current())

    def narrow(self, allow: Iterable[str] = (), *, session: Session | None = None, **options: Any) -> Selection:
        """Return a selection for a sub-agent, which contains no tool that this one does not."""
        inherited: dict[str, Any] = {
            "search": self._search,
            "threshold": self.threshold,
            "core": self.core,
            "hide": self._hide,
        }
        return Selection(self.source, session, allow=allow, parent=self, **(inherited | options))

    # What a model is shown -------------------------------------------------------------------------------------------

    @property
    def deferring(self) -> bool:
        """Whether there are too many tools to show them all at first.

        Tools a person brought in do not count: they are always shown, and must not cause others to be hidden.
        """
        hide, current, deferrable = self._hide, self._current(), self.source.deferrable
        fewer, more = sorted((deferrable, current), key=len)
        core = (name for name in self.core if name in current and name not in deferrable)
        counted = chain((name for name in fewer if name in more), core)
        if hide is not None:
            counted = filterfalse(hide, counted)
        return len(list(islice(counted, self.threshold + 1))) > self.threshold

    def is_deferred(self, name: str) -> bool:
        """Whether a tool is in this selection but not shown until it is activated."""
        real = self.source.resolve(name)
        if real is None or self._is_fixed(real) or real in self._activated or real not in self:
            return False
        return self.deferring

    def shows(self, name: str) -> bool:
        """Whether a model is shown the tool: in this selection, enabled, and not deferred."""
        real = self.source.resolve(name)
        if real is None or real not in self or (self._hide is not None and self._hide(real)):
            return False
        return not self.is_deferred(real)

    def active_tools(self) -> list[ToolInfo]:
        """Return the tools a model is shown: all, or the core, those a person brought in, and the activated ones.

        Activated tools come last, so that a provider's prompt cache keeps the part before them.
        """
        if self.shown_as is not None:
            return self.shown_as.active_tools()
        present = self._visible_names()
        if not self.deferring:
            return self._list_infos(present)
        core = set(self.core)
        shown = [name for name in present if name in core]
        shown += [name for name in present if name not in core and self._is_brought_in(name)]
        activated = self._activated
        shown += [name for name in present if name in activated and not self._is_fixed(name)]
        return self._list_infos(shown)

    def search_tools(self, query: str, limit: int = 10) -> list[ToolInfo]:
        """Return the best matches for a query. The core is left out while tools are deferred: it is shown anyway."""
        if self._search is None:
            return []
        names, hide = self._current(), self._hide

        def is_here(name: str) -> bool:
            return name in names and (hide is None or not hide(name))

        if not self.deferring:
            return self._list_infos(self._search(query, limit, is_here))
        found = self._search(query, limit, lambda name: name not in self.core and is_here(name))
        return self._list_infos(found or self._search(query, limit, is_here))

    def deferred_tools(self) -> list[str]:
        """Return the names of the deferred tools."""
        if not self.deferring:
            return []
        return [name for name in self._visible_names() if not self._is_fixed(name) and name not in self._activated]

    def activate_tool(self, name: str) -> bool:
        """Show a tool from now on; False if this selection does not contain it."""
        real = self.source.resolve(name)
        if real is None or real not in self:
            return False
        if real not in self._activated:
            self._activated.add(real)
            if self.session is not None:
                self.session.emit("tool_activated", tool=real)
        return True

    def reset_activations(self) -> None:
        """Show only the core again, as a new session does."""
        self._activated.clear()

    # The forms providers take ----------------------------------------------------------------------------------------

    def for_anthropic(self) -> list[dict[str, Any]]:
        """Return the active tools in the form of Anthropic's `tools`."""
        return [
            {"name": provider_safe(info.name), "description": info.description, "input_schema": info.input_schema}
            for info in self.active_tools()
        ]

    def for_openai(self) -> list[dict[str, Any]]:
        """Return the active tools in the form of `tools` of OpenAI's chat completions."""
        return [
            {
                "type": "function",
                "function": {
                    "name": provider_safe(info.name),
                    "description": info.description,
                    "parameters": info.input_schema,
                },
            }
            for info in self.active_tools()
        ]

    def for_mcp(self) -> list[dict[str, Any]]:
        """Return all tools in the form of MCP's `tools/list`, where nothing is deferred and names may contain dots."""
        return [mcp_tool(info) for info in self.infos()]

    def plain_names(self) -> PlainNames:
        """Return the plain names of all tools that may be called."""
        names = self._current()
        if self._plain is None:
            self._plain = PlainNames.of(names)
        return self._plain

    def real_name(self, shown: str) -> str:
        """Return the real name of a tool for the name that a provider or client was given."""
        if self.source.resolve(shown) is not None:
            return shown
        if (name := self.plain_names().real.get(shown)) is not None:
            return name
        return next((name for name in self.names() if shown in (provider_safe(name), mcp_safe(name))), shown)

    # Inside ----------------------------------------------------------------------------------------------------------

    @property
    def _activated(self) -> set[str]:
        return self._own_activations if self.session is None else self.session.activated

    def _is_brought_in(self, name: str) -> bool:
        """Whether a person brought this tool in (passed by the program, from a module or a trusted folder)."""
        return name not in self.core and name not in self.source.deferrable

    def _is_fixed(self, name: str) -> bool:
        """Whether a tool is shown however many there are."""
        return name in self.core or name not in self.source.deferrable

    def _current(self) -> dict[str, None]:
        if self._version != self.source.version:
            self._refresh()
        return self._names

    def _visible_names(self) -> list[str]:
        names = self.names()
        return names if self._hide is None else [name for name in names if not self._hide(name)]

    def _list_infos(self, names: Iterable[str]) -> list[ToolInfo]:
        return [info for name in names if (info := self.source.info(name, self.session)) is not None]

    def _look_up(self, name: str) -> Tool | None:
        tools = self._tools  # `_refresh` replaces the dictionary if a tool takes the name while this one is imported
        real = self._find(name)
        tool = None if real is None else self.source.get(real)
        if tool is not None:
            tools[name] = tool
        return tool

    def _find(self, name: str) -> str | None:
        """Return the name of the tool in this selection that a name refers to."""
        # A model cannot write a dot: where `time.now` is called `time_now_0fa1a43b` for it, many write `time_now`.
        real = self.source.resolve(name) or meant_by(name, self._current())
        return real if real in self._current() else None

    def _refresh(self) -> None:
        version = self.source.version  # read first: tools may change meanwhile, in another thread
        names = dict.fromkeys(self.source)
        if self.parent is not None:
            bound = set(self.parent.names())
            names = {name: None for name in names if name in bound}
        if self.allow:
            allowed = matching(self.source, self.allow)
            names = {name: None for name in names if name in allowed}
        if self.deny:
            denied = matching(self.source, self.deny)
            names = {name: None for name in names if name not in denied}
        self._names, self._tools, self._plain, self._version = names, {}, None, version


def matching(source: Source, patterns: Iterable[str]) -> set[str]:
    """Return the names that match patterns: names, aliases and globs; `mcp__server` means all tools of a server.

    Unknown names match nothing.
    """
    found: set[str] = set()
    globs: list[str] = []
    for pattern in patterns:
        if (real := source.resolve(pattern)) is not None:
            found.add(real)
        elif _GLOB.intersection(pattern):
            globs.append(pattern)
        elif pattern.startswith("mcp__") and split_full_name(pattern) is None:
            globs.append(pattern.rstrip("_") + "__*")
    if globs:
        found.update(
            name
            for name in source
            if any(fnmatchcase(each, glob) for each in _spellings(source, name) for glob in globs)
        )
    return found


def _spellings(source: Source, name: str) -> list[str]:
    card = source.card(name)
    if card is None:
        return [name]
    whole = [full_name(card.module, name)] if card.module and not name.startswith("mcp__") else []
    return [name, *card.aliases, *whole]


def mcp_safe(name: str) -> str:
    """Return a name MCP allows (1 to 128 letters, digits, `_`, `-`, `.`); `name` itself if it is one."""
    plain = (
        0 < len(name) <= 128 and name.isascii() and name.replace("_", "").replace("-", "").replace(".", "").isalnum()
    )
    return name if plain else provider_safe(name)


def mcp_tool(info: ToolInfo) -> dict[str, Any]:
    """Return a tool in MCP's form, with the annotations clients show."""
    shown: dict[str, Any] = {
        "name": mcp_safe(info.name),
        "description": info.description,
        "inputSchema": info.input_schema,
        "annotations": {
            "readOnlyHint": info.read_only,
            "destructiveHint": info.destructive,
            "idempotentHint": info.idempotent or info.read_only,
        },
    }
    return shown | ({"outputSchema": info.output_schema} if info.output_schema else {})
