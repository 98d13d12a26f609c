"""The command of a `Bash` call: its arguments, what they mean, and the process that runs them."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from surehand.commands.session import SHELLS, Shells
from surehand.core.record import Args, Field, hide_default
from surehand.sandbox.command import LONG_ARGUMENT, SCRIPT, Command, bash
from surehand.sandbox.protocol import Runner
from surehand.shell import understand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from surehand.core.context import ToolContext
    from surehand.shell import ShellReport

DEFAULT_MS: Final = 120_000
MAX_MS: Final = 600_000
COMMAND_LIMIT: Final = 2 * 1024 * 1024
_PRIVILEGED: Final = frozenset(
    {"sudo", "su", "doas", "pkexec", "newgrp", "mount", "umount", "fusermount", "ping", "at"}
)
"""Programs that need the privileges of their owner, which a process under a change log does not get."""


class BashArgs(Args):
    """A command and how to run it."""

    command: str = Field(description="The bash command to execute")
    timeout: int = Field(
        default=DEFAULT_MS,
        description="Timeout in milliseconds (default 120000, max 600000)",
        json_schema_extra=hide_default,
    )
    run_in_background: bool = Field(
        default=False,
        description="Run the command in the background and return a task_id immediately",
        json_schema_extra=hide_default,
    )
    description: str = Field(
        default="", description="A description of what this command does", json_schema_extra=hide_default
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


def understand_call(args: BashArgs, ctx: ToolContext) -> ShellReport:
    """Return what the command means; found out once a call."""
    home, new_shell = os.path.expanduser("~"), not ctx.options.get("persistent")
    return ctx.once("shell report", lambda: understand(args.command, ctx.cwd, home=home, new_shell=new_shell))


def is_read_only(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether the command only reads."""
    report = understand_call(args, ctx)
    return report.ok and report.read_only and not args.run_in_background and not find_alteration(args, ctx)


def find_alteration(args: BashArgs, ctx: ToolContext) -> str:
    """Say why the session's shell with memory may take the command for another one than its words say."""
    shells = ctx.session.peek(SHELLS) if ctx.options.get("persistent") and not args.run_in_background else None
    if shells is None:
        return ""
    return ctx.once("memory of the shell", lambda: shells.alters(command_names(args, ctx), ctx.cwd, args.command))


def command_names(args: BashArgs, ctx: ToolContext) -> dict[str, None]:
    """Return the names of all commands, wrappers included."""
    commands = understand_call(args, ctx).commands
    return dict.fromkeys(name for each in commands for name in (*each.wrappers, each.name, each.words[0]) if name)


def time_s(args: BashArgs, ctx: ToolContext) -> float:
    """Return how long the command may run: a little less than the settings give the call, so that it can still tell."""
    own = args.timeout / 1000
    settings = ctx.session.settings.tools.get("Bash")
    if settings is None or settings.timeout is None:
        return own
    return min(own, max(settings.timeout * 0.9, settings.timeout - 0.5))


def describe(args: BashArgs) -> str:
    """Return the description of a command in the history."""
    return args.description or args.command[:200]


def change_log_of(args: BashArgs, ctx: ToolContext, shells: Shells, launcher: Runner) -> str | None:
    """Return the folder that a command's changes are written down in; None for one whose changes are not kept."""
    if is_read_only(args, ctx) or why_unrecorded(args, ctx, launcher):
        return None
    from surehand.history.words import Author  # lazy: words, 2 ms

    return shells.change_log(Author.of(ctx, "Bash", describe(args)), launcher.profile)


def why_unrecorded(args: BashArgs, ctx: ToolContext, launcher: Runner) -> str:
    """Say why what a command changes is not kept for undo; an empty text where it is, or where it only reads."""
    if is_read_only(args, ctx):
        return ""
    if not launcher.records:
        return "nothing on this system writes down what a command changes"
    if not launcher.profile.contained and needs_privileges(args, ctx):
        return "a program that takes other privileges runs without that"
    return ""


def needs_privileges(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether one of its programs needs the privileges of their owner."""
    return any(command.name in _PRIVILEGED for command in understand_call(args, ctx).commands)


def command_of(
    text: str, ctx: ToolContext, shells: Shells, variables: Mapping[str, str] = MappingProxyType({})
) -> Command:
    """Return the process that runs a command line; a very long one is read from a descriptor."""
    environment = {**shells.environment(ctx.call.id), **variables}
    if len(text) <= LONG_ARGUMENT and len(script := text.encode("utf-8", "surrogateescape")) <= LONG_ARGUMENT:
        return Command((bash(), "-c", os.fsdecode(script)), ctx.cwd, environment)
    return Command((bash(), SCRIPT), ctx.cwd, environment, text.encode("utf-8", "surrogateescape"))
