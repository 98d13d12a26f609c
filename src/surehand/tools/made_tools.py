"""Tools made at run time: stored with their versions, and run as Python in a sandboxed process of their own."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult, Undo
from surehand.core.effects import ReadPath, Unreadable
from surehand.core.errors import RegistrationError, ToolFailure
from surehand.core.frozen import field, frozen, replace_values
from surehand.core.session import Kept
from surehand.core.text import format_count
from surehand.core.tool import Tool
from surehand.history.words import Author
from surehand.sandbox import protocol
from surehand.sandbox.command import SCRIPT, Command, SandboxFailure
from surehand.state.files import write_private_json

if TYPE_CHECKING:
    from surehand.commands.session import Shells
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.core.session import Session
    from surehand.history.command_changes import Recorded
    from surehand.registry.registry import Registry
    from surehand.sandbox.command import Ended
    from surehand.sandbox.profile import SandboxProfile
    from surehand.sandbox.protocol import Runner

FOLDER: Final = "made_tools"
MODULE: Final = "made"
VERSIONS_KEPT: Final = 50
TIMEOUT_S: Final = 60.0
RESULT_LIMIT: Final = 2 * 1024 * 1024
PRINTED_LIMIT: Final = 20_000

# Runs in the child. The result has a descriptor of its own, so that output of the tool cannot be mistaken for it.
_RUNNER: Final = """\
import asyncio, inspect, json, os, sys, traceback
answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
try:
    names = {"__name__": "made_tool"}
    exec(compile(SOURCE, FILE, "exec"), names)
    value = names["run"](**json.loads(ARGS))
    if inspect.isawaitable(value):
        async def wait():
            return await value
        value = asyncio.run(wait())
    json.dump({"value": value}, answer, ensure_ascii=False)
except BaseException as problem:
    lines = traceback.format_exception(problem)
    json.dump({"problem": f"{type(problem).__name__}: {problem}", "trace": "".join(lines)[-4000:]}, answer)
answer.close()
"""


@frozen
class Version:
    """One version of a made tool: its complete definition."""

    number: int
    description: str
    input_schema: Mapping[str, Any]
    source: str
    changes_files: bool = False
    at: float = field(default_factory=time.time)
    session_id: str = ""

    @property
    def digest(self) -> str:
        """The hash of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]


@frozen
class Made:
    """A made tool with its versions; `current` is the number of the one in use, 0 if the tool was removed."""

    name: str
    current: int
    versions: tuple[Version, ...]

    def version(self, number: int | None = None) -> Version | None:
        """Return a version, by default the current one; None if there is none."""
        wanted = self.current if number is None else number
        return next((each for each in self.versions if each.number == wanted), None)

    def grown(self, version: Version) -> Made:
        """Return the tool with one more version as the current one; the oldest versions are dropped."""
        return replace_values(self, current=version.number, versions=(*self.versions, version)[-VERSIONS_KEPT:])

    @property
    def next_number(self) -> int:
        """The number of the next version."""
        return max((each.number for each in self.versions), default=0) + 1


class Workshop:
    """The made tools of a workspace (saved if the session keeps state), and the sandbox they run in."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._folder = os.path.join(session.state_dir, FOLDER) if session.state_dir else None
        self._made: dict[str, Made] = {}
        self._launchers: list[Runner] = []
        if self._folder:
            self._made = {made.name: made for made in kept_in(self._folder)}

    def get(self, name: str) -> Made | None:
        """Return a made tool by name."""
        return self._made.get(name)

    def all(self) -> list[Made]:
        """Return every made tool."""
        return list(self._made.values())

    def keep(self, made: Made) -> None:
        """Store a tool, on disk atomically."""
        from dataclasses import asdict  # lazy: tools are listed far more often than made

        self._made[made.name] = made
        if self._folder is None:
            return
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, hashlib.sha256(made.name.encode()).hexdigest()[:32] + ".json")
        write_private_json(path, asdict(made))

    async def run(self, version: Version, name: str, args: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        """Run a version of a tool in a process of its own."""
        from surehand.commands.collect_changes import ChangeCollector  # lazy: collect_changes, 40 ms
        from surehand.commands.output import Stream  # lazy: output, 4 ms
        from surehand.commands.session import SHELLS  # lazy: session, 40 ms

        shells = self._session.keep(SHELLS)
        launcher = await (shells.launcher() if version.changes_files else self._reading())
        told = {"SOURCE": version.source, "FILE": f"{name} (version {version.number})", "ARGS": json.dumps(dict(args))}
        script = "".join(f"{key} = {value!r}\n" for key, value in told.items()) + _RUNNER
        environment = {**shells.environment(ctx.call.id), "PYTHONDONTWRITEBYTECODE": "1"}
        answer, printed = bytearray(), Stream(PRINTED_LIMIT)

        def take(data: bytes) -> None:
            if len(answer) <= RESULT_LIMIT:
                answer.extend(data)

        command = Command((sys.executable, "-I", SCRIPT), ctx.cwd, environment, script.encode())
        change_log = None
        if version.changes_files and launcher.records:
            change_log = shells.change_log(Author.of(ctx, name, name), launcher.profile)
        collector = ChangeCollector(name, name, launcher.profile, launcher.profile.already_there(), change_log)
        run = launcher.run(command, take, printed.feed, change_log=change_log)
        try:
            ended = await run.finish(TIMEOUT_S)
        finally:
            recorded = await collector.collect(ctx, run.ended)
        result = _with_changes(name, _result(name, bytes(answer), printed.show().text, ended), recorded)
        return result if change_log or not version.changes_files else _mark_unrecorded(result)

    async def close(self) -> None:
        """Close the launchers."""
        for launcher in self._launchers:
            await launcher.close()

    async def _reading(self) -> Runner:
        """Return the launcher for tools that change nothing: only a private temp directory is writable."""
        from surehand.commands.session import SHELLS  # lazy: session, 40 ms

        for launcher in self._launchers[-1:]:
            if not launcher.closed and launcher.profile.holds():
                return launcher
        settings, shells = self._session.settings.sandbox, self._session.keep(SHELLS)
        if settings.mode == "off" or not protocol.available():
            return (
                await shells.launcher()
            )  # `effects_of` made the policy ask about it; the shells refuse if a sandbox is required
        for private_view in (True, False):
            try:
                self._launchers.append(await protocol.choose().start(self._profile(private_view, shells)))
            except SandboxFailure as failure:
                why = str(failure)
            else:
                return self._launchers[-1]
        raise ToolFailure(f"the sandbox for made tools cannot be set up: {why}", code="tool_unavailable")

    def _profile(self, private_view: bool, shells: Shells) -> SandboxProfile:
        profile = shells.closed_profile(private_view=private_view)
        return replace_values(
            profile,
            writable=(profile.private_dir,),
            shown=(*profile.shown, *profile.roots),
            forbidden=(),
            network=False,
        )


WORKSHOP: Final[Kept[Workshop]] = Kept("made_tools", make=Workshop, close=Workshop.close)


def kept_in(folder: str) -> list[Made]:
    """Load the tools saved in a folder; unreadable records are skipped."""
    found: list[Made] = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    for name in names:
        if not name.endswith(".json"):
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                raw = json.load(file)
            found.append(Made(raw["name"], raw["current"], tuple(Version(**each) for each in raw["versions"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def register_kept(registry: Registry, state_dir: str) -> list[str]:
    """Register the saved tools of a workspace, each of which the user approved. Returns the problems."""
    problems: list[str] = []
    for made in kept_in(os.path.join(state_dir, FOLDER)):
        if made.version() is None or made.name in registry:
            continue
        try:
            registry.register(tool_of(made))
        except RegistrationError as problem:
            problems.append(str(problem))
    return problems


def tool_of(made: Made) -> Tool:
    """Create a Tool from the current version."""
    version = made.version()
    assert version is not None

    async def run(args: Any, ctx: ToolContext) -> ToolResult:
        return await ctx.session.keep(WORKSHOP).run(version, made.name, args, ctx)

    def effects(args: Any, ctx: ToolContext) -> list[Effect] | None:
        del args
        return effects_of(version, ctx.session)

    return Tool(
        name=made.name,
        description=version.description,
        run=run,
        args=dict(version.input_schema),
        read_only=not version.changes_files,
        concurrency_safe=not version.changes_files,
        requires_permission=version.changes_files,
        module=MODULE,
        version=f"{version.number}.0.0",
        timeout_s=TIMEOUT_S + 10,
        effects=effects,
        origin="workspace",
    )


def effects_of(version: Version, session: Session) -> list[Effect] | None:
    """Return the effects of a version; None if it may change files, since nobody knows which."""
    if version.changes_files:
        return None
    effects: list[Effect] = [ReadPath(root, recursive=True) for root in session.roots]
    if session.settings.sandbox.mode == "off" or not protocol.available():
        effects.append(Unreadable("made by a model, and no sandbox holds it here"))
    return effects


def _with_changes(name: str, result: ToolResult, recorded: Recorded | None) -> ToolResult:
    """Add the undo id of recorded changes; raise ToolFailure if the tool changed protected paths (restored by now)."""
    if recorded is None:
        return result
    if recorded.put_back:
        from surehand.commands.collect_changes import KEPT_HINT, put_back_message  # lazy: collect_changes, 40 ms

        raise ToolFailure(put_back_message(name, recorded.put_back), hint=KEPT_HINT)
    undo = (
        Undo(recorded.change_id, f"takes back {format_count(len(recorded.files), 'changed path')}")
        if recorded.change_id
        else None
    )
    return replace_values(result, undo=undo)


def _mark_unrecorded(result: ToolResult) -> ToolResult:
    """Add a note that the changes cannot be undone."""
    note = "[what this tool changed is not recorded and cannot be undone: nothing on this system writes it down]"
    return replace_values(result, output=f"{result.output}\n{note}".lstrip())


def _result(name: str, answer: bytes, printed: str, ended: Ended) -> ToolResult:
    meta = {"resources": {"cpu_s": ended.cpu_s, "max_rss_bytes": ended.max_rss}}
    if ended.stopped == "timeout":
        raise ToolFailure(f"{name} ran longer than {TIMEOUT_S:g} s and was ended", code="timeout", output=printed)
    if len(answer) > RESULT_LIMIT:
        raise ToolFailure(f"{name} returned more than {RESULT_LIMIT:,} bytes", hint="Return less, or write a file.")
    try:
        reply: dict[str, Any] = json.loads(answer)
    except ValueError:
        why = f": {ended.stopped}" if ended.stopped else ""
        message = f"{name} ended with exit code {ended.exit_code} and no result{why}"
        raise ToolFailure(message, details={"printed": printed}) from None
    if "problem" in reply:
        raise ToolFailure(
            f"{name} raised {reply['problem']}",
            hint="Its source can be changed with ToolUpdate.",
            details={"trace": reply["trace"], "printed": printed},
        )
    return replace_values(ToolResult.of(reply["value"]), meta=meta)
