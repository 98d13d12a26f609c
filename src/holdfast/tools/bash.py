"""`Bash`: run a shell command, understood before it runs, contained while it runs, gone when it ends."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.args import Args, Field, unsaid
from holdfast.core.call import ToolError, ToolResult, Undo
from holdfast.core.effects import Unreadable
from holdfast.core.errors import ToolFailure
from holdfast.core.tool import Preview, Tool
from holdfast.host.output import STDERR_LIMIT, STDOUT_LIMIT, Shown, Stream, marked
from holdfast.host.process import LONG_ARGUMENT, Command, Ended, Launcher, bash
from holdfast.host.progress import Watcher
from holdfast.host.sandbox import probe
from holdfast.host.sandbox.plan import inside, trespasses
from holdfast.host.shells import SHELLS, Shells, in_force, sandbox_missing
from holdfast.host.trees import remove_tree
from holdfast.tools.prompts import prompt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.context import ToolContext
    from holdfast.core.effects import Effect
    from holdfast.host.command_changes import Recorded
    from holdfast.host.shell import ShellReport

DEFAULT_MS: Final = 120_000
MAX_MS: Final = 600_000
SLOW_S: Final = 5.0
COMMAND_LIMIT: Final = 2 * 1024 * 1024

_ONE_MEANS_NO: Final = frozenset(
    [
        "grep",
        "egrep",
        "fgrep",
        "zgrep",
        "rg",
        "ag",
        "ack",
        "diff",
        "cmp",
        "test",
        "[",
        "[[",
        "which",
        "type",
        "command",
        "pgrep",
        "pidof",
        "expr",
        "comm",
    ]
)
_GIT_ONE_MEANS_NO: Final = frozenset(
    {"grep", "diff", "diff-index", "diff-files", "merge-base", "check-ignore", "show-ref"}
)


_RAISES: Final = frozenset({"sudo", "su", "doas", "pkexec", "newgrp", "mount", "umount", "fusermount", "ping", "at"})
"""Programs that need the privileges of their owner, which a process under a journal does not get."""


ONLY_READS: Final[dict[str, str]] = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
}
"""What keeps git, in a command that only reads, from writing its index and from running a repository's monitor."""


class BashArgs(Args):
    """A command and how to run it."""

    command: str = Field(description="The bash command to execute")
    timeout: int = Field(
        default=DEFAULT_MS,
        description="Timeout in milliseconds (default 120000, max 600000)",
        json_schema_extra=unsaid,
    )
    run_in_background: bool = Field(
        default=False,
        description="Run the command in the background and return a task_id immediately",
        json_schema_extra=unsaid,
    )
    description: str = Field(
        default="", description="A description of what this command does", json_schema_extra=unsaid
    )

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield what no schema can say."""
        if not 1 <= self.timeout <= MAX_MS:
            yield "timeout", f"is {self.timeout} ms; it must be from 1 to {MAX_MS}"
        if not self.command.strip():
            yield "command", "is empty"
        if "\0" in self.command:
            yield "command", "has a NUL character, which no shell can read"
        if "\r" in self.command:
            yield "command", "has carriage returns; end its lines with a line feed alone"
        if len(self.command) > COMMAND_LIMIT:
            yield "command", f"has {len(self.command):,} characters; the limit is {COMMAND_LIMIT:,}. Put it in a file"


def understood(args: BashArgs, ctx: ToolContext) -> ShellReport:
    """Return what the command means; found out once a call."""
    from holdfast.host.shell import understand

    return ctx.once("shell report", lambda: understand(args.command, ctx.cwd, home=os.path.expanduser("~")))


def _read_only(args: BashArgs, ctx: ToolContext) -> bool:
    report = understood(args, ctx)
    return report.ok and report.read_only and not args.run_in_background


def _effects(args: BashArgs, ctx: ToolContext) -> list[Effect]:
    effects = list(understood(args, ctx).effects)
    if why := sandbox_missing(ctx.session.settings.sandbox):
        effects.append(Unreadable(why))
    return effects


def _check(args: BashArgs, ctx: ToolContext) -> None:
    if args.run_in_background and not ctx.session.interactive:
        raise ToolFailure(
            "a background command would end with this one-shot call",
            code="precondition_failed",
            hint="Leave run_in_background out, or use a session that stays: `holdfast chat` or the library.",
        )


async def _run(args: BashArgs, ctx: ToolContext) -> ToolResult:
    if args.run_in_background:
        from holdfast.tools.background import start

        return await start(args, ctx)
    shells = ctx.session.keep(SHELLS)
    launcher = await shells.launcher()
    printed = Printed.of(ctx, shells)
    absent = launcher.plan.still_absent()
    journal = shells.journal(ctx.call.id) if may_be_journalled(args, ctx, launcher) else None
    remembers = bool(ctx.options.get("persistent")) and not _raises(args, ctx)
    outcome, recorded = Outcome(), None
    try:
        await (_in_memory if remembers else _once)(args, ctx, shells, launcher, printed, journal, outcome)
    finally:
        printed.close()
        made = trespasses(absent)
        if journal is not None:
            recorded = await asyncio.shield(asyncio.to_thread(bring_in, ctx, args, journal, outcome.ended))
    if made:
        outcome.stopped(f"the sandbox took away what it made where no command may: {', '.join(made)}")
    return _result(args, ctx, launcher, printed, outcome, recorded)


@dataclass(slots=True)
class Outcome:
    """How a command ended, known bit by bit: also a cancelled one has a journal to bring in."""

    ended: Ended | None = None
    note: str = ""

    def stopped(self, why: str) -> None:
        self.ended = replace(self.ended or Ended(-1), stopped=why)


async def _once(
    args: BashArgs,
    ctx: ToolContext,
    shells: Shells,
    launcher: Launcher,
    printed: Printed,
    journal: str | None,
    outcome: Outcome,
) -> None:
    """Run the command in a shell of its own."""
    command = command_of(args.command, ctx, shells, only_reads=_read_only(args, ctx))
    run = launcher.run(command, printed.stdout.feed, printed.stderr.feed, journal=journal)
    try:
        await run.finish(_time_s(args, ctx))
    finally:
        outcome.ended = run.ended


async def _in_memory(
    args: BashArgs,
    ctx: ToolContext,
    shells: Shells,
    launcher: Launcher,
    printed: Printed,
    journal: str | None,
    outcome: Outcome,
) -> None:
    """Run the command in the session's shell; its directory becomes the session's while it stays inside."""
    session = ctx.session
    async with shells.turn:
        shell = await shells.shell_with_memory()
        feeds = (printed.stdout.feed, printed.stderr.feed)
        step = await shell.run(args.command, session.cwd, *feeds, _time_s(args, ctx), journal)
    outcome.ended = step.ended
    if not step.cwd:
        outcome.note = "the shell ended with this command: its variables are gone, the next starts anew"
    elif step.cwd != session.cwd:
        if inside(step.cwd, session.roots):
            session.cwd = step.cwd
        else:
            outcome.note = f"{step.cwd} is outside the workspace: the next command starts in {session.cwd} again"


def _time_s(args: BashArgs, ctx: ToolContext) -> float:
    """Return how long the command may run: a little less than the settings give the call, so that it can still tell."""
    own = args.timeout / 1000
    settings = ctx.session.settings.tools.get("Bash")
    if settings is None or settings.timeout is None:
        return own
    return min(own, max(settings.timeout * 0.9, settings.timeout - 0.5))


def may_be_journalled(args: BashArgs, ctx: ToolContext, launcher: Launcher) -> bool:
    """Tell whether a command's changes are kept: not where it only reads, or needs privileges a journal takes away."""
    if _read_only(args, ctx) or not probe.abilities().seccomp:
        return False
    return launcher.plan.contained or not _raises(args, ctx)


def _raises(args: BashArgs, ctx: ToolContext) -> bool:
    return any(command.name in _RAISES for command in understood(args, ctx).commands)


def bring_in(ctx: ToolContext, args: BashArgs, journal: str, ended: Ended | None) -> Recorded | None:
    """Bring what the command changed into the history; what it printed must not be lost when that fails."""
    from holdfast.host.command_changes import Recorded, record
    from holdfast.host.history.history import HISTORY, Who

    try:
        if ended is None or ended.journal is None or not ended.journal["count"]:
            return None
        who = Who.of(ctx, "Bash", args.description or args.command[:200])
        return record(ctx.session.keep(HISTORY), journal, who, ended.journal["lost"])
    except (ToolFailure, OSError) as problem:
        return Recorded("", (), str(problem))
    finally:
        remove_tree(journal)


def command_of(text: str, ctx: ToolContext, shells: Shells, *, only_reads: bool = False) -> Command:
    """Return the process that runs a command line; a very long one is read from a descriptor."""
    environment = shells.environment(ctx.call.id)
    if only_reads:
        environment |= ONLY_READS
    if len(text) <= LONG_ARGUMENT and len(script := text.encode("utf-8", "surrogateescape")) <= LONG_ARGUMENT:
        return Command((bash(), "-c", os.fsdecode(script)), ctx.cwd, environment)
    return Command((bash(), "/dev/fd/10"), ctx.cwd, environment, text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command prints, on its way to the result and, line by line, to whoever watches."""

    stdout: Stream
    stderr: Stream

    @classmethod
    def of(cls, ctx: ToolContext, shells: Shells) -> Printed:
        def report(text: str, stream: str) -> None:
            ctx.progress(text, stream=stream)

        name = ctx.call.id
        return cls(
            Stream(STDOUT_LIMIT, lambda: shells.output_file(f"{name}.out"), Watcher(report, "stdout")),
            Stream(STDERR_LIMIT, lambda: shells.output_file(f"{name}.err"), Watcher(report, "stderr")),
        )

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()


def _result(
    args: BashArgs,
    ctx: ToolContext,
    launcher: Launcher,
    printed: Printed,
    outcome: Outcome,
    recorded: Recorded | None,
) -> ToolResult:
    ended = outcome.ended or Ended(-1, stopped="it was never started")
    stdout, stderr = printed.stdout.show(), printed.stderr.show()
    data = _data(args, ctx, launcher, stdout, stderr, ended)
    notes = _notes(ended)
    if outcome.note:
        notes.append(outcome.note)
    undo: Undo | None = None
    if recorded is not None:
        if recorded.change_id:
            data["changes"] = recorded.to_dict()
            undo = Undo(recorded.change_id, f"takes back {len(recorded.files)} changed paths")
        if recorded.lost:
            notes.append(f"its changes cannot all be undone: {recorded.lost}")
        for each in recorded.files[:100]:
            ctx.session.emit(
                "file_changed", tool="Bash", call_id=ctx.call.id, path=each.path, change_id=recorded.change_id
            )
    error = _error(args, ctx, launcher, stdout, stderr, ended)
    if error is not None and error.hint:
        notes.append(error.hint)
    body = "\n".join(part for part in (stdout.text.rstrip("\n"), marked(stderr.text)) if part)
    if ended.exit_code > 0 or ended.stopped:
        notes.insert(0, error.message if error else f"exit code {ended.exit_code}, which here means no")
    output = "\n".join([body or "(no output)", *(f"[{note}]" for note in notes)])
    meta: dict[str, Any] = {"resources": {"cpu_s": ended.cpu_s, "max_rss_bytes": ended.max_rss}}
    if stdout.cut or stderr.cut:
        meta["truncated"] = True
    return ToolResult(ok=error is None, data=data, output=output, error=error, undo=undo, meta=meta)


def _data(
    args: BashArgs, ctx: ToolContext, launcher: Launcher, stdout: Shown, stderr: Shown, ended: Ended
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "exit_code": ended.exit_code,
        "stdout": stdout.text,
        "stderr": stderr.text,
        "class": understood(args, ctx).class_,
        "usage": ended.usage(),
        "sandbox": in_force(launcher),
    }
    for name, shown in (("output_file", stdout), ("stderr_file", stderr)):
        if shown.file:
            data[name] = shown.file
    if stdout.cut or stderr.cut:
        data["truncated"] = {"stdout": stdout.cut, "stderr": stderr.cut}
    if ended.signal:
        data["signal"] = ended.signal
    if ended.left_behind:
        data["left_behind"] = ended.left_behind
    return data


def _notes(ended: Ended) -> list[str]:
    notes: list[str] = []
    if ended.wall_s > SLOW_S:
        notes.append(f"took {ended.wall_s:.1f} s")
    if ended.left_behind and not ended.stopped:
        count = "one process" if ended.left_behind == 1 else f"{ended.left_behind} processes"
        notes.append(f"{count} the command had left running ended with it; use run_in_background to keep one")
    return notes


def _error(
    args: BashArgs, ctx: ToolContext, launcher: Launcher, stdout: Shown, stderr: Shown, ended: Ended
) -> ToolError | None:
    details = {"exit_code": ended.exit_code}
    if ended.stopped == "timeout":
        limit = _time_s(args, ctx)
        message = f"the command ran longer than its {limit:g} s and was ended"
        hint = f"Give it more time (timeout, at most {MAX_MS} ms) or run it in the background."
        return ToolError("timeout", message, hint, details | {"timeout_s": limit})
    if ended.stopped:
        return ToolError("execution_error", f"the command did not run to its end: {ended.stopped}", "", details)
    if ended.exit_code == 0 or (ended.exit_code == 1 and _means_no(understood(args, ctx))):
        return None
    said = stderr.text + stdout.text[-4000:]
    hint = _explanation(said, launcher, ended)
    killed = f" (ended by signal {ended.signal})" if ended.signal else ""
    return ToolError("execution_error", f"the command failed with exit code {ended.exit_code}{killed}", hint, details)


def _explanation(said: str, launcher: Launcher, ended: Ended) -> str:
    from holdfast.host import waiting
    from holdfast.host.sandbox import denials

    if explained := denials.explain(said, launcher.plan, ended.exit_code):
        return explained
    return waiting.HINT if waiting.wanted_input(said) else ""


def _means_no(report: ShellReport) -> bool:
    """Tell whether the exit code 1 of a command line is an answer: that of its last command decides."""
    if not report.ok or not report.commands:
        return False
    last = next((each for each in reversed(report.commands) if not each.nested), report.commands[-1])
    return last.name in _ONE_MEANS_NO or (last.name == "git" and not _GIT_ONE_MEANS_NO.isdisjoint(last.words[1:]))


async def _preview(args: BashArgs, ctx: ToolContext) -> Preview:
    """Run the command for real on a layer over the workspace, without network, and show what it would change."""
    from holdfast.tools.bash_trial import tried

    return await tried(args.command, args.timeout / 1000, ctx)


BASH: Final = Tool(
    name="Bash",
    description=prompt("bash"),
    args=BashArgs,
    run=_run,
    read_only=_read_only,
    concurrency_safe=_read_only,
    destructive=True,
    requires_permission=True,
    search_hint="shell command execute terminal",
    reversible=True,
    timeout_s=lambda args: args.timeout / 1000 + 10,
    effects=_effects,
    preview=_preview,
    preview_when_asked=False,
    check=_check,
    examples=({"command": "git status --short"}, {"command": "pytest -q", "timeout": 300_000}),
)

TOOLS: Final[tuple[Tool, ...]] = (BASH,)
