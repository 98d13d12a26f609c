"""`Bash`: run a shell command, judged before it runs, sandboxed while it runs, with no processes left afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from surehand.commands.collect_changes import ChangeCollector
from surehand.commands.output import describe_wait
from surehand.commands.session import SHELLS, Shells, sandbox_missing
from surehand.commands.tracked_commits import Staging
from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath, RunCommand, Unreadable
from surehand.core.errors import ToolFailure
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.core.tool import Preview, ShowPreview, Tool
from surehand.files.protected_paths import inside
from surehand.git.calls import GitCall, parse_call
from surehand.git.config import only_reading
from surehand.git.repositories import repositories_around
from surehand.sandbox import protocol
from surehand.sandbox.command import KILL_S, TERM_S
from surehand.sandbox.protocol import Runner
from surehand.shell.programs import quiet_variables
from surehand.shell.syntax import PARSERS
from surehand.tools import object_schema, prompt
from surehand.tools.bash_call import (
    BashArgs,
    Call,
    Outcome,
    Printed,
    change_log_of,
    command_names,
    command_of,
    describe,
    find_alteration,
    is_read_only,
    needs_privileges,
    result,
    time_s,
    understand_call,
    why_unrecorded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect


def _read_variables(args: BashArgs, ctx: ToolContext) -> dict[str, str]:
    """Return the variables that keep a read-only command from writing or running more."""
    reading = only_reading(ctx.session.keep(SHELLS).git_settings)
    return reading | quiet_variables(each.words for each in understand_call(args, ctx).commands)


_TAKES_BUILTIN: Final = lazy_pattern(r"\bbuiltin\s*\(|\bfunction\s+builtin\b")


def _may_change_shell(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether the command may change the state of the persistent shell."""
    report = understand_call(args, ctx)
    if not report.ok or not all(each.literal for each in report.commands):
        return True
    from surehand.commands.persistent_shell import may_remember  # lazy: persistent_shell, 85 ms

    return may_remember(args.command, command_names(args, ctx))


def _effects(args: BashArgs, ctx: ToolContext) -> list[Effect]:
    if ctx.make_call is not None and ctx.session.peek(SHELLS) is None:  # it will run, and needs a launcher
        protocol.choose().start_ahead()
    effects = list(understand_call(args, ctx).effects)
    if why := find_alteration(args, ctx):
        effects.append(Unreadable(why))
    if why := ctx.once("judged for want of a sandbox", lambda: _why_unsafe(args, ctx)):
        effects.append(Unreadable(why))
    return effects


def _why_unsafe(args: BashArgs, ctx: ToolContext) -> str:
    """Say what the current sandbox does not prevent the command from doing; empty if it is enough."""
    return (
        sandbox_missing(ctx.session.settings.sandbox) or _prints_secrets(args, ctx) or _shows_secret_in_diff(args, ctx)
    )


def _refuse_unjudged(args: BashArgs, ctx: ToolContext) -> None:
    """Raise ToolFailure if the sandbox turned out weaker than the one the call was judged for."""
    before = ctx.once("judged for want of a sandbox", lambda: _why_unsafe(args, ctx))
    if protocol.abilities().failed and not before and (why := _why_unsafe(args, ctx)):
        raise ToolFailure(
            f"nothing ran: the sandbox is weaker than the one the command was judged for: {why}",
            code="precondition_failed",
            hint="Call it again in this session, to have it judged for this sandbox. `surehand doctor` says more.",
        )


_NO_MEMORY: Final = "there is no persistent shell on this system: the command ran in a new shell"
_LISTS: Final = frozenset({"ls", "du", "tree", "find", "fd", "stat"})
_FINDS_MORE: Final = ("-exec", "-ok", "-files0", "-x", "-X", "--exec")


def _read_through(effects: Iterable[Effect]) -> Iterator[str]:
    """Yield the folders all of whose files are read, not only listed."""
    for effect in effects:
        if isinstance(effect, ReadPath) and effect.recursive:
            yield effect.path
        elif isinstance(effect, RunCommand):
            lists = effect.words[:1] and os.path.basename(effect.words[0]) in _LISTS
            if not lists or any(word.startswith(_FINDS_MORE) for word in effect.words[1:]):
                yield from _read_through(effect.implies)


def _prints_secrets(args: BashArgs, ctx: ToolContext) -> str:
    """Say which secret the command could print because the sandbox cannot cover it; empty if none.

    Of a read-only command only recursive reads count: reading the file itself is judged by the policy.
    """
    secrets = ctx.session.keep(SHELLS).list_uncovered()
    if not secrets:
        return ""
    if is_read_only(args, ctx):
        folders = [os.path.realpath(path) for path in _read_through(understand_call(args, ctx).effects)]
        folders += [_top(folder) for call, folder in _git_calls(args, ctx) if call.name == "grep"]
        secrets = tuple(each for each in secrets if inside(each, folders))
    return f"the sandbox cannot cover {secrets[0]} here, and the command could print it" if secrets else ""


def _shows_secret_in_diff(args: BashArgs, ctx: ToolContext) -> str:
    """Say which secret a diff of git would print, if the sandbox cannot leave it out; empty if none."""
    if ctx.session.settings.sandbox.mode != "off" and protocol.abilities().private_view:
        return ""
    from surehand.git.secret_history import find_secret_reached  # lazy: secret_history, 7 ms

    for given, folder in _git_calls(args, ctx):
        shows = given.name == "status" and any(_SHOWS_CHANGES.fullmatch(word) for word in given.words)
        call = GitCall(given.folder, "diff", (), given.plain) if shows else given
        if call.name.startswith("diff") and (found := find_secret_reached(call, folder, is_secret, diffs=True)):
            return f"it may print {found}, which holds secrets, and no sandbox here leaves that out"
    return ""


_SHOWS_CHANGES: Final = lazy_pattern(r"-[a-zA-Z]*v[a-zA-Z]*|--verb.*")
"""Options with which `git status` also prints diffs."""


def _git_calls(args: BashArgs, ctx: ToolContext) -> Iterator[tuple[GitCall, str]]:
    """Yield the calls of git, each with the folder it runs in."""
    from surehand.shell.programs.git import spell_out  # lazy: git's options, 2 ms, for git alone

    for each in understand_call(args, ctx).commands:
        call = parse_call(spell_out(each.words)) if each.name == "git" else None
        if call is not None:
            yield call, os.path.join(each.cwd or ctx.cwd, call.folder)


def _top(folder: str) -> str:
    """Return the top of the repository around a folder."""
    return next((each.top for each in repositories_around(folder)), os.path.realpath(folder))


async def _check(args: BashArgs, ctx: ToolContext) -> None:
    if args.run_in_background and not ctx.session.interactive:
        raise ToolFailure(
            "a background command would end with this one-shot call",
            code="precondition_failed",
            hint="Leave out run_in_background, or use a lasting session: `surehand chat` or the library.",
        )


def _reads(effects: Iterable[Effect]) -> Iterator[str]:
    """Yield the paths that are read, also by commands."""
    for effect in effects:
        if isinstance(effect, ReadPath):
            yield effect.path
        elif isinstance(effect, RunCommand):
            yield from _reads(effect.implies)


async def _run(args: BashArgs, ctx: ToolContext) -> ToolResult:
    shells = ctx.session.keep(SHELLS)
    shells.show(_reads(understand_call(args, ctx).effects))  # the call was permitted to read these
    if args.run_in_background:
        from surehand.tools.background import start  # lazy: background, 7 ms

        await shells.launcher()
        _refuse_unjudged(args, ctx)
        return await start(args, ctx)
    shells.check_directory(ctx.cwd)
    lines = _find_git_only(args, ctx)
    staging = await Staging.make(shells, lines, ctx.cwd) if lines else None
    launcher = await (shells.launcher_for(lines) if lines else shells.launcher())
    _refuse_unjudged(args, ctx)
    printed = Printed.of(ctx, shells, understand_call(args, ctx))
    before = launcher.profile.already_there()
    change_log = change_log_of(args, ctx, shells, launcher)
    remembers = bool(ctx.options.get("persistent")) and not needs_privileges(args, ctx)
    outcome, recorded = Outcome(), None
    if remembers and not launcher.keeps_shell:
        remembers, outcome.note = False, _NO_MEMORY
    try:
        await (_run_in_persistent_shell if remembers else _run_in_new_shell)(
            args, ctx, shells, launcher, printed, change_log, outcome
        )
    finally:
        printed.close()
        if staging is not None:
            await staging.restore_index()
        collector = ChangeCollector("Bash", describe(args), launcher.profile, before, change_log)
        recorded = await collector.collect(ctx, outcome.ended)
    unrecorded, warning = why_unrecorded(args, ctx, launcher), shells.take_warning()
    call = Call(understand_call(args, ctx), launcher, time_s(args, ctx), unrecorded, warning)
    return result(ctx, call, printed, outcome, recorded)


def _find_git_only(args: BashArgs, ctx: ToolContext) -> list[tuple[str, ...]]:
    """Return the git commands of a line that otherwise only has commands that read a pipe; else an empty list."""
    report = understand_call(args, ctx)
    runs = [each for each in report.effects if isinstance(each, RunCommand)]
    git = [each.words for each in runs if each.words[:1] == ("git",)]
    others = (each for each in runs if each.words[:1] != ("git",))
    quiet = all(each.read_only and not each.implies for each in others)
    plain = report.ok and quiet and not any(each.wrappers or not each.literal for each in report.commands)
    remembers = ctx.options.get("persistent") and not args.run_in_background
    return git if plain and not remembers else []


async def _run_in_new_shell(
    args: BashArgs,
    ctx: ToolContext,
    shells: Shells,
    launcher: Runner,
    printed: Printed,
    change_log: str | None,
    outcome: Outcome,
) -> None:
    """Run the command in a new shell."""
    variables = _read_variables(args, ctx) if is_read_only(args, ctx) else {}
    command = command_of(args.command, ctx, shells, variables)
    run = launcher.run(command, printed.stdout.feed, printed.stderr.feed, change_log=change_log)
    run.told_waiting = lambda name: ctx.progress(describe_wait(name))
    try:
        await run.finish(time_s(args, ctx))
    finally:
        outcome.ended = run.ended


async def _run_in_persistent_shell(
    args: BashArgs,
    ctx: ToolContext,
    shells: Shells,
    launcher: Runner,
    printed: Printed,
    change_log: str | None,
    outcome: Outcome,
) -> None:
    """Run the command in the persistent shell; the session takes over its directory if that is in the workspace."""
    from shlex import quote as quoted

    session, text = ctx.session, args.command
    if is_read_only(args, ctx):
        before = " ".join(f"{name}={quoted(value)}" for name, value in _read_variables(args, ctx).items())
        text = f"{before} builtin eval {quoted(args.command)}"
    async with shells.turn:
        shell, outcome.note = await shells.persistent_shell()
        shell.may_lie |= _TAKES_BUILTIN.search(args.command) is not None
        feeds = (printed.stdout.feed, printed.stderr.feed)
        step = await shell.run(
            text, session.cwd, *feeds, time_s(args, ctx), change_log, remembers=_may_change_shell(args, ctx)
        )
    outcome.ended = step.ended
    if not step.cwd:
        shell.end_is_known = True
        outcome.note = "the shell ended with this command: its variables are gone, the next command starts a new one"
    elif step.cwd != session.cwd:
        if inside(step.cwd, session.roots):
            session.cwd = step.cwd
        else:
            outcome.note = f"{step.cwd} is outside the workspace: the next command starts in {session.cwd} again"


async def _preview(args: BashArgs, ctx: ToolContext) -> Preview:
    """Run the command on a copy of the workspace, without network, and show what it would change."""
    from surehand.tools.bash_dry_run import dry_run_command  # lazy: bash_dry_run, 55 ms

    return await dry_run_command(args, ctx)


def _show_preview(args: BashArgs, ctx: ToolContext) -> ShowPreview:
    """Return when the settings ask for a dry run of commands of this class."""
    class_ = understand_call(args, ctx).class_
    if class_ in ctx.options.get("must_try", ()):
        return "always"
    return "asked" if class_ in ctx.options.get("try_first", ()) else "offered"


async def _close() -> None:
    PARSERS.end()
    protocol.choose().end_ahead()


BASH: Final = Tool(
    name="Bash",
    kind="execute",
    output_schema=object_schema(
        {},
        exit_code="integer|null",
        stdout="string",
        stderr="string",
        usage="object",
        sandbox="object",
        task_id={"type": "string", "description": "Of a command in the background"},
        status="string",
        **{"class": "string"},
    ),
    description=prompt("bash"),
    args=BashArgs,
    run=_run,
    read_only=is_read_only,
    concurrency_safe=is_read_only,
    destructive=True,
    requires_permission=True,
    search_hint="shell command execute terminal",
    reversible=True,
    timeout_s=lambda args: args.timeout / 1000 + 10,
    effects=_effects,
    facts_block=True,
    grace_s=TERM_S + KILL_S + 1,
    preview=_preview,
    show_preview=_show_preview,
    check=_check,
    close=_close,
    examples=({"command": "git status --short"}, {"command": "pytest -q", "timeout": 300_000}),
)

TOOLS: Final[tuple[Tool, ...]] = (BASH,)
