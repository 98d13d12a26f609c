"""`Bash`: run a shell command, understood before it runs, contained while it runs, gone when it ends."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from surehand.commands import input_prompts
from surehand.commands.session import SHELLS, Shells, sandbox_missing
from surehand.core.args import Args, Field, unsaid
from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath, RunCommand, Unreadable
from surehand.core.errors import ToolFailure
from surehand.core.tool import Preview, Tool
from surehand.files.protected_paths import inside
from surehand.git.reads import ONLY_READS
from surehand.sandbox import probe
from surehand.sandbox.client import LONG_ARGUMENT, Command, Launcher, bash
from surehand.sandbox.command_run import KILL_S, TERM_S
from surehand.tools.bash_result import Call, Outcome, Printed, result
from surehand.tools.output_schemas import output_schema
from surehand.tools.prompts import prompt
from surehand.tools.settling import Settling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.shell import ShellReport

DEFAULT_MS: Final = 120_000
MAX_MS: Final = 600_000
COMMAND_LIMIT: Final = 2 * 1024 * 1024

_RAISES: Final = frozenset({"sudo", "su", "doas", "pkexec", "newgrp", "mount", "umount", "fusermount", "ping", "at"})
"""Programs that need the privileges of their owner, which a process under a journal does not get."""


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
        if not _encodable(self.command):
            yield "command", "has half of a character (a lone surrogate), which no shell can read"
        if len(self.command) > COMMAND_LIMIT:
            yield "command", f"has {len(self.command):,} characters; the limit is {COMMAND_LIMIT:,}. Put it in a file"


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def understood(args: BashArgs, ctx: ToolContext) -> ShellReport:
    """Return what the command means; found out once a call."""
    from surehand.shell import understand

    return ctx.once("shell report", lambda: understand(args.command, ctx.cwd, home=os.path.expanduser("~")))


def _read_only(args: BashArgs, ctx: ToolContext) -> bool:
    report = understood(args, ctx)
    return report.ok and report.read_only and not args.run_in_background and not _altered(args, ctx)


def _read_variables(args: BashArgs, ctx: ToolContext) -> dict[str, str]:
    """Return the variables under which a command that only reads runs."""
    from surehand.shell.readonly_tools import quiet_variables

    return ONLY_READS | quiet_variables(each.words for each in understood(args, ctx).commands)


def _altered(args: BashArgs, ctx: ToolContext) -> str:
    """Say why the session's shell with memory may take the command for another one than its words say."""
    shells = ctx.session.kept(SHELLS) if ctx.options.get("persistent") and not args.run_in_background else None
    if shells is None:
        return ""
    return ctx.once("memory of the shell", lambda: shells.alters(_names(args, ctx), ctx.cwd, args.command))


def _names(args: BashArgs, ctx: ToolContext) -> dict[str, None]:
    """Return the names of all commands, wrappers included."""
    commands = understood(args, ctx).commands
    return dict.fromkeys(name for each in commands for name in (*each.wrappers, each.name, each.words[0]) if name)


def _may_remember(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether the shell that runs the command may not be the same after it."""
    from surehand.commands.shell_state import may_remember

    report = understood(args, ctx)
    if not report.ok or not all(each.literal for each in report.commands):
        return True
    return may_remember(args.command, _names(args, ctx))


def _effects(args: BashArgs, ctx: ToolContext) -> list[Effect]:
    effects = list(understood(args, ctx).effects)
    if why := _altered(args, ctx):
        effects.append(Unreadable(why))
    if why := sandbox_missing(ctx.session.settings.sandbox) or _prints_secrets(args, ctx) or _tells_secret(args, ctx):
        effects.append(Unreadable(why))
    return effects


_LISTS: Final = frozenset({"ls", "du", "tree", "find", "fd", "stat"})
_FINDS_MORE: Final = ("-exec", "-ok", "-files0", "-x", "-X", "--exec")


def _read_through(effects: Iterable[Effect]) -> Iterator[str]:
    """Yield the folders whose files are all read; to list them is not to read them."""
    for effect in effects:
        if isinstance(effect, ReadPath) and effect.recursive:
            yield effect.path
        elif isinstance(effect, RunCommand):
            lists = effect.words[:1] and os.path.basename(effect.words[0]) in _LISTS
            if not lists or any(word.startswith(_FINDS_MORE) for word in effect.words[1:]):
                yield from _read_through(effect.implies)


def _prints_secrets(args: BashArgs, ctx: ToolContext) -> str:
    """Say which secret the command could print, where the sandbox cannot cover it; a known read is taken at its word.

    A read of the very file is the policy's to deny.
    """
    secrets = ctx.session.keep(SHELLS).uncovered()
    if not secrets:
        return ""
    if _read_only(args, ctx):
        folders = [os.path.realpath(path) for path in _read_through(understood(args, ctx).effects)]
        secrets = tuple(each for each in secrets if inside(each, folders))
    return f"the sandbox cannot cover {secrets[0]} here, and the command could print it" if secrets else ""


def _tells_secret(args: BashArgs, ctx: ToolContext) -> str:
    """Say which secret a difference would print, where no sandbox leaves it out."""
    if ctx.session.settings.sandbox.mode != "off" and probe.abilities().namespaces:
        return ""
    from surehand.core.secrets import is_secret
    from surehand.git.committed import secret_reached
    from surehand.git.printed import taken_apart

    for each in understood(args, ctx).commands:
        call = taken_apart(each.words) if each.name == "git" else None
        if call is not None and call.name.startswith("diff"):
            folder = os.path.join(each.cwd or ctx.cwd, call.folder)
            if found := secret_reached(call, folder, is_secret, diffs=True):
                return f"it may print {found}, which holds secrets, and no sandbox here leaves that out"
    return ""


async def _check(args: BashArgs, ctx: ToolContext) -> None:
    if args.run_in_background and not ctx.session.interactive:
        raise ToolFailure(
            "a background command would end with this one-shot call",
            code="precondition_failed",
            hint="Leave run_in_background out, or use a session that stays: `surehand chat` or the library.",
        )


def _reads(effects: Iterable[Effect]) -> Iterator[str]:
    """Yield the paths that are read, by commands too."""
    for effect in effects:
        if isinstance(effect, ReadPath):
            yield effect.path
        elif isinstance(effect, RunCommand):
            yield from _reads(effect.implies)


async def _run(args: BashArgs, ctx: ToolContext) -> ToolResult:
    shells = ctx.session.keep(SHELLS)
    shells.show(_reads(understood(args, ctx).effects))  # the call was permitted, and with it what it names
    if args.run_in_background:
        from surehand.tools.background import start

        return await start(args, ctx)
    shells.stand_in(ctx.cwd)
    launcher = await (shells.launcher_for(lines) if (lines := _git_alone(args, ctx)) else shells.launcher())
    printed = Printed.of(ctx, shells, understood(args, ctx))
    absent = launcher.plan.still_absent()
    journal = journal_of(args, ctx, shells, launcher)
    remembers = bool(ctx.options.get("persistent")) and not _raises(args, ctx)
    outcome, recorded = Outcome(), None
    try:
        await (_in_memory if remembers else _once)(args, ctx, shells, launcher, printed, journal, outcome)
    finally:
        printed.close()
        recorded = await Settling("Bash", described(args), launcher.plan, absent, journal).settle(ctx, outcome.ended)
    call = Call(understood(args, ctx), launcher, time_s(args, ctx))
    return result(ctx, call, printed, outcome, recorded)


def _git_alone(args: BashArgs, ctx: ToolContext) -> list[tuple[str, ...]]:
    """Return the git commands of a line that has no other ones, but those that read what a pipe gives them."""
    report = understood(args, ctx)
    runs = [each for each in report.effects if isinstance(each, RunCommand)]
    git = [each.words for each in runs if each.words[:1] == ("git",)]
    others = (each for each in runs if each.words[:1] != ("git",))
    quiet = all(each.read_only and not each.implies for each in others)
    plain = report.ok and quiet and not any(each.wrappers or not each.literal for each in report.commands)
    remembers = ctx.options.get("persistent") and not args.run_in_background
    return git if plain and not remembers else []


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
    variables = _read_variables(args, ctx) if _read_only(args, ctx) else {}
    command = command_of(args.command, ctx, shells, variables)
    run = launcher.run(command, printed.stdout.feed, printed.stderr.feed, journal=journal)
    run.told_waiting = lambda name: ctx.progress(input_prompts.told(name))
    try:
        await run.finish(time_s(args, ctx))
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
    from shlex import quote as quoted

    session, text = ctx.session, args.command
    if _read_only(args, ctx):
        before = " ".join(f"{name}={quoted(value)}" for name, value in _read_variables(args, ctx).items())
        text = f"{before} builtin eval {quoted(args.command)}"
    async with shells.turn:
        shell, outcome.note = await shells.shell_with_memory()
        feeds = (printed.stdout.feed, printed.stderr.feed)
        step = await shell.run(
            text, session.cwd, *feeds, time_s(args, ctx), journal, remembers=_may_remember(args, ctx)
        )
    outcome.ended = step.ended
    if not step.cwd:
        outcome.note = "the shell ended with this command: its variables are gone, the next starts anew"
    elif step.cwd != session.cwd:
        if inside(step.cwd, session.roots):
            session.cwd = step.cwd
        else:
            outcome.note = f"{step.cwd} is outside the workspace: the next command starts in {session.cwd} again"


def time_s(args: BashArgs, ctx: ToolContext) -> float:
    """Return how long the command may run: a little less than the settings give the call, so that it can still tell."""
    own = args.timeout / 1000
    settings = ctx.session.settings.tools.get("Bash")
    if settings is None or settings.timeout is None:
        return own
    return min(own, max(settings.timeout * 0.9, settings.timeout - 0.5))


def described(args: BashArgs) -> str:
    """Return what the history says of a command."""
    return args.description or args.command[:200]


def journal_of(args: BashArgs, ctx: ToolContext, shells: Shells, launcher: Launcher) -> str | None:
    """Return the folder that a command's changes are written down in; None for one whose changes are not kept."""
    if not may_be_journalled(args, ctx, launcher):
        return None
    from surehand.history.words import Author

    return shells.journal(Author.of(ctx, "Bash", described(args)), launcher.plan)


def may_be_journalled(args: BashArgs, ctx: ToolContext, launcher: Launcher) -> bool:
    """Tell whether a command's changes are kept: not where it only reads, or needs privileges a journal takes away."""
    if _read_only(args, ctx) or not probe.abilities().seccomp:
        return False
    return launcher.plan.contained or not _raises(args, ctx)


def _raises(args: BashArgs, ctx: ToolContext) -> bool:
    return any(command.name in _RAISES for command in understood(args, ctx).commands)


def command_of(
    text: str, ctx: ToolContext, shells: Shells, variables: Mapping[str, str] = MappingProxyType({})
) -> Command:
    """Return the process that runs a command line; a very long one is read from a descriptor."""
    environment = {**shells.environment(ctx.call.id), **variables}
    if len(text) <= LONG_ARGUMENT and len(script := text.encode("utf-8", "surrogateescape")) <= LONG_ARGUMENT:
        return Command((bash(), "-c", os.fsdecode(script)), ctx.cwd, environment)
    return Command((bash(), "/dev/fd/10"), ctx.cwd, environment, text.encode("utf-8", "surrogateescape"))


async def _preview(args: BashArgs, ctx: ToolContext) -> Preview:
    """Run the command for real on a copy of the workspace, without network, and show what it would change."""
    from surehand.tools.bash_trial import tried

    return await tried(args, ctx)


def _try_first(args: BashArgs, ctx: ToolContext) -> bool:
    """Whether the settings want commands of this class tried on a copy before anyone is asked about them."""
    return understood(args, ctx).class_ in ctx.options.get("try_first", ()) or _must_try(args, ctx)


def _must_try(args: BashArgs, ctx: ToolContext) -> bool:
    """Whether the settings want commands of this class tried and asked about, also those a rule allows."""
    return understood(args, ctx).class_ in ctx.options.get("must_try", ())


async def _close() -> None:
    from surehand.shell.parser_process import PARSERS

    PARSERS.end()


BASH: Final = Tool(
    name="Bash",
    output_schema=output_schema("Bash"),
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
    facts_block=True,
    grace_s=TERM_S + KILL_S + 1,
    preview=_preview,
    preview_when_asked=_try_first,
    must_try=_must_try,
    check=_check,
    close=_close,
    examples=({"command": "git status --short"}, {"command": "pytest -q", "timeout": 300_000}),
)

TOOLS: Final[tuple[Tool, ...]] = (BASH,)
