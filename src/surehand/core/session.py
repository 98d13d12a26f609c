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
"""File times have a granularity of up to ten milliseconds: a change this soon after another may not show."""


def digest_of(content: bytes) -> str:
    """Return the digest by which read state and history compare contents."""
    return hashlib.sha256(content).hexdigest()


@frozen
class Seen:
    """A file as the session last saw it. Size, times and inode only spare reading the bytes again."""

    digest: str
    size: int
    mtime_ns: int
    whole: bool = True
    """False if only a part was shown. The digest, if there is one, is of the whole file even so."""
    inode: int = 0
    ctime_ns: int = 0
    """0 if the file had changed too recently for its status to prove anything (see `untouched`)."""
    encoding: str = ""
    """The encoding the caller named; empty if it was detected from the bytes."""

    @classmethod
    def of(
        cls, digest: str, status: os.stat_result, *, whole: bool = True, exact: bool = False, encoding: str = ""
    ) -> Seen:
        """Build the entry of content that was read while the file had this status.

        `exact`: the file system gives every change after an `fstat` a new time.
        """
        settled = exact or time.time_ns() - status.st_ctime_ns > SETTLED_NS
        ctime_ns = status.st_ctime_ns if settled else 0
        return cls(digest, status.st_size, status.st_mtime_ns, whole, status.st_ino, ctime_ns, encoding)

    def without_proof(self) -> Seen:
        """Return a copy whose status proves nothing, for content that was not read from this disk."""
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
        """Whether the status alone proves that nothing was written since; if False, compare the bytes."""
        now = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
        return now == (self.size, self.mtime_ns, self.inode, self.ctime_ns)


class ReadState:
    """What a session has read: real path → the content last seen there, by digest.

    A file counts as changed if its content changed, not its times: a formatter, a commit or `touch` raises no alarm.
    In this order:

    1. `seen.untouched(status)`: same inode, size and times, which were old enough at the read that any later write
       must have moved them. The bytes are not read again. A program cannot set `ctime`, so a faked `mtime` hides
       nothing.
    2. Otherwise the digest of the current content is compared with `seen.digest`.
    3. A large file of which only a part was read has no digest (`""`), since 2,000 lines out of gigabytes must cost
       what those lines cost. It counts as changed once its status differs; the refusal counts as a read, so the next
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
    """Say why this is not a valid session name (it is also a file name); None if it is."""
    if SESSION_NAME.fullmatch(name):
        return None
    return f"a session's name is letters, digits, '.', '_' and '-', at most 64; not {name!r}"


@frozen
class Kept(Generic[T]):
    """The key of an object that a tool keeps in the session: created on first use, closed with the session.

    `KEY = Kept("shells", make=lambda session: Shells(session), close=Shells.close)`
    """

    name: str
    make: Callable[[Session], T]
    close: Callable[[T], Awaitable[None]] | None = None


@frozen
class Checkpoint:
    """A turn of a conversation, and the state just before its prompt, to which the session can be rewound."""

    turn: str
    number: int
    """Its position in the conversation, from 1. It changes when others are rewound; `turn` does not."""
    prompt: str
    at: float
    messages: int
    """Length of the transcript when the turn began."""
    tasks: tuple[str, ...] = ()
    """Tasks, background commands and agents that were started in it."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in names_of(self)} | {"tasks": list(self.tasks)}


class Rewinder(Protocol):
    """Rewinds a session to an earlier turn."""

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
        """Restore files, transcript or both to just before a turn (its number or id)."""
        ...

    async def undo_rewind(self, *, force: bool = False) -> ToolResult:
        """Undo the latest rewind."""
        ...


class Buffers(Protocol):
    """Files as an editor has them open, with unsaved text. Called in worker threads, so it may block."""

    def read(self, path: str, on_disk: bytes) -> bytes | None:
        """Return the bytes the editor would save; None if they equal those on disk."""
        ...

    def show(self, path: str, text: str) -> None:
        """Put a file's new text into its buffer. The editor saves it, possibly as other bytes."""
        ...


class Session:
    """The state that calls share: a directory, what was read, what was approved, what runs in the background.

    `state_dir` is where this workspace's state lives (None: nothing is stored on disk). `name` is set for sessions
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
        """False for a one-shot process, in which nothing can run on in the background."""
        self.read_state = ReadState()
        self.mode: Mode = settings.permissions.mode
        self.activated: set[str] = set()
        self.selection: Selection | None = None
        """The tools this session sees; set when the session is opened."""
        self.agents: AgentRunner | None = None
        """Runs sub-agents for this session; set when a conversation is opened."""
        self.rewinder: Rewinder | None = None
        """Rewinds this session; set by the application."""
        self.buffers: Buffers | None = None
        """The unsaved text of the editor this session works in, if it shares that; sub-agents use that of `main`."""
        self.notices: list[str] = []
        """Notices for the model, sent with the next message (a background agent ended)."""
        self.result_notes: list[str] = []
        """Notes to add to the next result (older changes that the history had to prune); those of `main` count."""
        self.tasks_before: dict[str, Mapping[str, Any]] = {}
        """Tasks of this session's earlier processes, in their last state."""
        self.grants: list[str] = []
        """Allow rules given for this session by an approver."""
        self.origins: set[str] = set()
        """Origins of text that has entered the session (`web`, `mcp:name`, `outside`)."""
        self.confined = False
        """Whether changes outside the roots are refused, whatever rules or an approver say."""
        self.environment: dict[str, str] = {}
        """Variables that commands get in addition to the filtered environment."""
        self.keeps_out: Callable[[str], bool] = is_secret
        """Whether searches and listings leave a path out (absolute; a directory ends with `/`): secrets, and what the
        policy adds, such as files under a deny rule."""
        self.keeps_as_is: Callable[[str], bool] | None = None
        """Whether no command may change a path; set by the policy, None if there are no such paths."""
        self.opens: Callable[[], tuple[str, ...]] = tuple
        """Directories outside the roots that commands may write to; set by the policy."""
        self.turn = ""
        """The current turn (`begin_turn`); empty outside a conversation, where each call is a turn of its own."""
        self.is_answering = False
        """True while a question is answered: another one would mix its messages into the same transcript."""
        self.requests: dict[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]] = {}
        """Requests that the user's other processes may make through this session's channel, by name."""
        self.caller = ""
        """The id of the call that started this sub-agent and waits for it; empty otherwise."""
        self.agent = ""
        """The sub-agent that works in this session, for questions; empty in the user's own session."""
        self.closed = False
        self._sealed = False
        self._emit: Listener = emit or _nobody
        self._hears = hears
        self._kept: dict[str, tuple[Kept[Any], Any]] = {}
        self._keeping = RLock()

    @property
    def main(self) -> Session:
        """The user's own session: this one, or for a sub-agent the one at the top."""
        return self if self.parent is None else self.parent.main

    def begin_turn(self) -> str:
        """Begin a turn, the unit of undo for all that follows until `end_turn`. A sub-agent joins its parent's turn."""
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
        """Send an event to all subscribers."""
        self._emit(Event(kind, self.id, call_id, tool, data))

    def forward(self, event: Event) -> None:
        """Pass on an event of a sub-agent's session."""
        self._emit(event)

    def keep(self, key: Kept[T]) -> T:
        """Return the object of `key`, created on first use."""
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
        """Return the object of `key`; None if it was not created yet."""
        found = self._kept.get(key.name)
        return None if found is None else cast("T", found[1])

    def saw(self, path: str, seen: Seen) -> None:
        """Record what was read at `path`, in memory and (through the journal) for later processes."""
        self.read_state.put(path, seen)
        if self._hears("file_read"):
            self.emit("file_read", path=path, **seen.to_dict())

    def checkpoints(self) -> list[Checkpoint]:
        """Return the turns of this session's conversation, oldest first; each can be rewound to."""
        return [] if self.rewinder is None else self.rewinder.checkpoints()

    async def rewind(self, to: int | str, **options: Any) -> ToolResult:
        """Restore files and transcript to just before a turn; see `Rewinder.rewind` for the options."""
        if self.rewinder is None:
            raise ToolFailure("this session has no conversation to rewind", hint="Open it with `app.conversation`.")
        return await self.rewinder.rewind(to, **options)

    def _take_last(self) -> tuple[Kept[Any], Any] | None:
        """Remove and return the newest kept object. Once none is left, `keep` refuses to create more."""
        with self._keeping:
            if self._kept:
                return self._kept.popitem()[1]
            self._sealed = True
            return None

    async def close(self) -> None:
        """End everything this session started. Idempotent."""
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
            except Exception as problem:  # one that fails to close must not keep the others open
                failures.append(problem)
        self.emit("session_closed")
        if failures:
            raise ExceptionGroup("closing the session", failures)


def _nobody(event: Event) -> None:
    del event


def facts(session: Session) -> Mapping[str, Any]:
    """Return the facts of a session that are shown, as plain data."""
    return {"id": session.id, "name": session.name, "workspace": session.workspace, "cwd": session.cwd}


# Sub-agents: the types that the Agent tool and the agent floor share.

AgentMode = Literal["sync", "background", "worktree"]


@frozen
class Profile:
    """A kind of sub-agent: its prompt, the tools it may use, its model."""

    name: str
    description: str
    prompt: str = ""
    tools: tuple[str, ...] = ()
    """Names, aliases or globs; empty means all its parent has."""
    model: str | None = None
    source: str = "built-in"


@frozen
class AgentOrder:
    """A request to run a sub-agent."""

    prompt: str
    description: str = ""
    mode: AgentMode = "sync"
    model: str = ""
    branch_name: str = ""
    profile: str = ""


class AgentRunner(Protocol):
    """Runs sub-agents for a session."""

    spent: Any
    """The cost so far of the current turn, sub-agents included."""

    def profiles(self) -> Sequence[Profile]:
        """Return the kinds of sub-agents there are."""
        ...

    async def run(self, order: AgentOrder, ctx: ToolContext) -> ToolResult:
        """Run a sub-agent and return its answer."""
        ...
