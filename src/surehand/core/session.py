"""`Session`: what outlives a call. When it closes, nothing it started is left running."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, cast

from surehand.core.call import ToolResult, new_id
from surehand.core.errors import ToolFailure
from surehand.core.events import Event, EventKind, Listener
from surehand.core.frozen import frozen, names_of, replace_values
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.settings import Mode, Settings
    from surehand.core.view import Selection

SETTLED_NS: Final = 50_000_000
"""File times tick in steps of up to ten milliseconds: a status younger than this proves nothing."""


def digest_of(content: bytes) -> str:
    """Return the name of a content: what read state and history compare."""
    return hashlib.sha256(content).hexdigest()


@frozen
class Seen:
    """One file as the session last saw it; size, times and inode only save reading the bytes again."""

    digest: str
    size: int
    mtime_ns: int
    whole: bool = True
    """False when only a part was shown; the digest, where there is one, is of the whole file all the same."""
    inode: int = 0
    ctime_ns: int = 0
    """0 when the status was too young to prove anything (see `untouched`)."""
    encoding: str = ""
    """The encoding a caller named for it; empty where it is detected from the bytes."""

    @classmethod
    def of(
        cls, digest: str, status: os.stat_result, *, whole: bool = True, exact: bool = False, encoding: str = ""
    ) -> Seen:
        """Return what is known of content read while the file had this status.

        `exact` says that the file system gives a new time to every change after a look at the status.
        """
        settled = exact or time.time_ns() - status.st_ctime_ns > SETTLED_NS
        ctime_ns = status.st_ctime_ns if settled else 0
        return cls(digest, status.st_size, status.st_mtime_ns, whole, status.st_ino, ctime_ns, encoding)

    def without_proof(self) -> Seen:
        """Return it as seen elsewhere than on disk: no status of the file proves that it is still so."""
        return replace_values(self, ctime_ns=0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; `Seen(**data)` is the way back."""
        return {
            "digest": self.digest,
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "whole": self.whole,
            "inode": self.inode,
            "ctime_ns": self.ctime_ns,
        } | ({"encoding": self.encoding} if self.encoding else {})

    def untouched(self, status: os.stat_result) -> bool:
        """Say whether the status alone proves that nothing was written since; False means: look at the bytes."""
        now = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
        return now == (self.size, self.mtime_ns, self.inode, self.ctime_ns)


class ReadState:
    """What a session has read: real path → the content as it was last seen there, by hash.

    A file counts as changed when its content changed, not its time: formatters, commits and `touch` raise no alarm.
    The rule, in this order:

    1. `seen.untouched(status)`: same file, same size, same times, and those times were old enough when it was read that
       a later write must have moved them. Nothing was written; the bytes need no second look. `ctime` cannot be set by
       a program, so content changed under a faked `mtime` is found.
    2. Otherwise the digest of the content now, against `seen.digest`.
    3. A large file of which only a part was read has no digest (`""`): reading 2,000 lines out of gigabytes must cost
       what those lines cost. Once its status has moved it counts as changed; the refusal counts as a read, so the next
       try works.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def get(self, path: str) -> Seen | None:
        """Return what was read at a path; None for a path that was not read."""
        return self._seen.get(path)

    def put(self, path: str, seen: Seen) -> None:
        """Remember what was read at a path."""
        self._seen[path] = seen

    def forget(self, path: str) -> None:
        """Forget what was read at a path."""
        self._seen.pop(path, None)

    def items(self) -> list[tuple[str, Seen]]:
        """Return every path that was read, with what was seen."""
        return list(self._seen.items())


T = TypeVar("T")

SESSION_NAME: Final = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def name_problem(name: str) -> str | None:
    """Say why a session cannot have this name, which is also the name of its file; None where it can."""
    if SESSION_NAME.fullmatch(name):
        return None
    return f"a session's name is letters, digits, '.', '_' and '-', at most 64; not {name!r}"


@frozen
class Kept(Generic[T]):
    """The key of something a tool keeps in the session: made on first use, closed with the session.

    `KEY = Kept("shells", make=lambda session: Shells(session), close=Shells.close)`
    """

    name: str
    make: Callable[[Session], T]
    close: Callable[[T], Awaitable[None]] | None = None


@frozen
class Checkpoint:
    """A turn of a conversation, and the point to which a rewind can bring it: just before its prompt."""

    turn: str
    number: int
    """Its place in the conversation as it is now, from 1; `turn` stays the same when others are rewound."""
    prompt: str
    at: float
    messages: int
    """How long the transcript was when the turn began."""
    tasks: tuple[str, ...] = ()
    """Tasks, background commands and agents that were started in it."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in names_of(self)} | {"tasks": list(self.tasks)}


class Rewinder(Protocol):
    """Brings a session back to an earlier turn; set when the session is opened."""

    def checkpoints(self) -> list[Checkpoint]:
        """Return the turns so far, oldest first."""
        ...

    async def rewind(
        self,
        to: int | str,
        *,
        files: bool = True,
        transcript: bool = True,
        force: bool = False,
        branch: str | None = None,
        dry_run: bool = False,
    ) -> ToolResult:
        """Bring files, transcript or both back to just before a turn (its number or id)."""
        ...

    async def undo_rewind(self, *, force: bool = False) -> ToolResult:
        """Take the latest rewind back."""
        ...


class Buffers(Protocol):
    """Files as an editor has them open, text that is not saved included. Called in worker threads: it may block."""

    def read(self, path: str, on_disk: bytes) -> bytes | None:
        """Return what the editor would save of a file; None where that is what is on disk."""
        ...

    def show(self, path: str, text: str) -> None:
        """Put a file's new text into its buffer. Saving it is the editor's, and may write other bytes."""
        ...


class Session:
    """One line of work: a directory, what was read, what was approved, what runs in the background.

    `state_dir` is where this workspace's state lives (None: nothing is kept on disk). `name` is set for sessions
    that continue in later processes.
    """

    def __init__(
        self,
        workspace: str,
        *,
        settings: Settings,
        id: str | None = None,
        name: str | None = None,
        roots: Sequence[str] = (),
        state_dir: str | None = None,
        emit: Listener | None = None,
        hears: Callable[[EventKind], bool] = lambda kind: True,
        parent: Session | None = None,
        interactive: bool = True,
    ) -> None:
        self.id = id or new_id("session")
        self.name = name
        self.workspace = workspace
        self.cwd = workspace
        self.roots: tuple[str, ...] = (workspace, *roots)
        self.settings = settings
        self.state_dir = state_dir
        self.parent = parent
        self.interactive = interactive
        """False for a one-shot process: nothing may be left for a later call."""
        self.read_state = ReadState()
        self.mode: Mode = settings.permissions.mode
        self.activated: set[str] = set()
        self.selection: Selection | None = None
        """The tools this session sees; set when the session is opened."""
        self.agents: AgentRunner | None = None
        """Runs sub-agents for this session; set when a conversation is opened."""
        self.rewinder: Rewinder | None = None
        """Who brings this session back to an earlier turn; set by the application."""
        self.buffers: Buffers | None = None
        """The editor this session works in, where it shares what is not saved; sub-agents use that of `main`."""
        self.notices: list[str] = []
        """Events beside the conversation (a background agent ended), sent to the model with the next message."""
        self.result_notes: list[str] = []
        """What the next result must state beside its own (older changes that the history had to drop); of `main`."""
        self.tasks_before: dict[str, Mapping[str, Any]] = {}
        """Tasks of the earlier processes of this session, in their last state."""
        self.grants: list[str] = []
        """Allow rules given for this session by an approver."""
        self.origins: set[str] = set()
        """Origins of text that has entered the session (`web`, `mcp:name`, `outside`)."""
        self.confined = False
        """Whether nothing outside the roots may be changed, whatever rules allow or an approver says."""
        self.environment: dict[str, str] = {}
        """Variables the session's commands see beside the cleaned environment."""
        self.keeps_out: Callable[[str], bool] = is_secret
        """What searches and listings leave out (absolute path, `/` at the end of a folder): secrets, and whatever the
        policy sets beside them, such as files under a deny rule."""
        self.keeps_as_is: Callable[[str], bool] | None = None
        """What no command may change, whichever program it starts; set by the policy. None: nothing of that kind."""
        self.opens: Callable[[], tuple[str, ...]] = tuple
        """Folders outside the roots that commands may write in; set by the policy."""
        self.turn = ""
        """What is being done for one prompt (`begin_turn`); empty outside a conversation, where a call is its own."""
        self.is_answering = False
        """True while a question is answered: another one would mix its messages into the same transcript."""
        self.requests: dict[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]] = {}
        """What other processes of the user may ask of this session, by name; they reach it by its channel."""
        self.caller = ""
        """The call that a sub-agent's session serves, where somebody waits for it."""
        self.agent = ""
        """Which sub-agent works in this session, for those who are asked; empty in a session of the user's own."""
        self.closed = False
        self._sealed = False
        self._emit: Listener = emit or _nobody
        self._hears = hears
        self._kept: dict[str, tuple[Kept[Any], Any]] = {}
        self._keeping = RLock()

    @property
    def main(self) -> Session:
        """The session a person has: this one, or the one its sub-agents work for."""
        return self if self.parent is None else self.parent.main

    def begin_turn(self) -> str:
        """Begin a turn: everything done until `end_turn` is taken back together. A sub-agent works for its parent's."""
        self.turn = (self.parent.turn if self.parent is not None else "") or new_id("turn")
        return self.turn

    def refuse_if_closed(self) -> None:
        """Raise ToolFailure once the session is closed."""
        if self.closed:
            hint = "Open a new one; a named session continues where this one ended."
            raise ToolFailure("the session is closed", code="tool_unavailable", hint=hint)

    def refuse_while_answering(self) -> None:
        """Raise ToolFailure while a question is being answered."""
        if self.is_answering:
            hint = "Wait for the answer or cancel it; a session of its own can be asked meanwhile."
            raise ToolFailure("the session is answering another question", code="precondition_failed", hint=hint)

    def end_turn(self) -> None:
        """End the turn; calls that began in it still belong to it."""
        self.turn = ""

    def emit(self, kind: EventKind, *, tool: str = "", call_id: str = "", **data: Any) -> None:
        """Send an event to everyone who listens."""
        self._emit(Event(kind, self.id, call_id, tool, data))

    def forward(self, event: Event) -> None:
        """Pass on an event of a session below this one."""
        self._emit(event)

    def keep(self, key: Kept[T]) -> T:
        """Return what is kept under `key`, made on first use."""
        found = self._kept.get(key.name)
        if found is None:
            with self._keeping:  # handlers in threads may ask for the same thing at once
                found = self._kept.get(key.name)
                if found is None and self._sealed:
                    raise ToolFailure("the session is closed", code="cancelled", hint="Open another session.")
                if found is None:
                    found = self._kept[key.name] = (key, key.make(self))
        return cast("T", found[1])

    def peek(self, key: Kept[T]) -> T | None:
        """Return what is kept under `key`, or None when it was not made yet."""
        found = self._kept.get(key.name)
        return None if found is None else cast("T", found[1])

    def saw(self, path: str, seen: Seen) -> None:
        """Remember what was read at `path`, in memory and (through the journal) for later processes."""
        self.read_state.put(path, seen)
        if self._hears("file_read"):
            self.emit("file_read", path=path, **seen.to_dict())

    def checkpoints(self) -> list[Checkpoint]:
        """Return the turns of this session's conversation, oldest first; each can be rewound to."""
        return [] if self.rewinder is None else self.rewinder.checkpoints()

    async def rewind(self, to: int | str, **options: Any) -> ToolResult:
        """Bring files and transcript back to just before a turn; see `Rewinder.rewind` for the options."""
        if self.rewinder is None:
            raise ToolFailure("this session has no conversation to rewind", hint="Open it with `app.conversation`.")
        return await self.rewinder.rewind(to, **options)

    def _take_last(self) -> tuple[Kept[Any], Any] | None:
        """Hand out what is kept, the newest first; once nothing is left, nothing more can be."""
        with self._keeping:
            if self._kept:
                return self._kept.popitem()[1]
            self._sealed = True
            return None

    async def close(self) -> None:
        """End everything this session started; safe to call twice."""
        if self._sealed:
            return
        self.closed = True
        failures: list[Exception] = []
        while (last := self._take_last()) is not None:
            key, value = last
            if key.close is None:
                continue
            try:
                await key.close(value)
            except Exception as problem:  # one thing that will not close must not keep the others open
                failures.append(problem)
        self.emit("session_closed")
        if failures:
            raise ExceptionGroup("closing the session", failures)


def _nobody(event: Event) -> None:
    del event


def facts(session: Session) -> Mapping[str, Any]:
    """Return what is worth telling of a session, as plain data."""
    return {"id": session.id, "name": session.name, "workspace": session.workspace, "cwd": session.cwd}


# What starting a sub-agent means, in words that tools and the agent floor share.

AgentMode = Literal["sync", "background", "worktree"]


@frozen
class Profile:
    """A kind of sub-agent: who it is, which tools it may use, which model it speaks with."""

    name: str
    description: str
    prompt: str = ""
    tools: tuple[str, ...] = ()
    """Names, aliases or globs; empty means all its parent has."""
    model: str | None = None
    source: str = "built-in"


@frozen
class AgentOrder:
    """One wish for a sub-agent."""

    prompt: str
    description: str = ""
    mode: AgentMode = "sync"
    model: str = ""
    branch_name: str = ""
    profile: str = ""


class AgentRunner(Protocol):
    """Who runs sub-agents for a session."""

    spent: Any
    """What the question that is being answered has cost, sub-agents included."""

    def profiles(self) -> Sequence[Profile]:
        """Return the kinds of sub-agents there are."""
        ...

    async def run(self, order: AgentOrder, ctx: ToolContext) -> ToolResult:
        """Run a sub-agent and return what it answered."""
        ...
