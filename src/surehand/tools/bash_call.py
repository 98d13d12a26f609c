"""A `Bash` call: its arguments, what they mean, the process that runs them, and the result.

The result has the output, the exit code, what was left out, why the command failed, and what to do about it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from surehand.commands.collect_changes import KEPT_HINT, put_back_message
from surehand.commands.output import (
    NO_INPUT_HINT,
    Shown,
    Stream,
    Watcher,
    asked_last,
    mark_stderr,
    truncate_bytes,
    wanted_input,
)
from surehand.commands.session import SHELLS, Shells, in_force
from surehand.core.call import ToolError, ToolResult, Undo
from surehand.core.frozen import frozen
from surehand.core.record import Args, Field, hide_default
from surehand.core.text import STDERR_LIMIT, STDOUT_LIMIT, format_count
from surehand.sandbox import denials
from surehand.sandbox.command import LONG_ARGUMENT, SCRIPT, Command, Ended, bash
from surehand.sandbox.protocol import Runner
from surehand.shell import understand
from surehand.shell.programs import exit_1_means_no, program_of
from surehand.shell.report import head_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from surehand.core.context import ToolContext
    from surehand.history.command_changes import Recorded
    from surehand.shell import ShellReport
    from surehand.shell.report import SimpleCommand

DEFAULT_MS: Final = 120_000
MAX_MS: Final = 600_000
COMMAND_LIMIT: Final = 2 * 1024 * 1024
_PRIVILEGED: Final = frozenset(
    {"sudo", "su", "doas", "pkexec", "newgrp", "mount", "umount", "fusermount", "ping", "at"}
)
"""Set-user-ID programs: a recorded command cannot gain their privileges."""


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
        """Yield faults that a schema cannot express."""
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
    """Parse the command and return what it does; cached for the call."""
    home, new_shell = os.path.expanduser("~"), not ctx.options.get("persistent")
    return ctx.once("shell report", lambda: understand(args.command, ctx.cwd, home=home, new_shell=new_shell))


def is_read_only(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether the command only reads."""
    report = understand_call(args, ctx)
    return report.ok and report.read_only and not args.run_in_background and not find_alteration(args, ctx)


def find_alteration(args: BashArgs, ctx: ToolContext) -> str:
    """Say why the persistent shell may run something else than the command says; empty if it does not."""
    shells = ctx.session.peek(SHELLS) if ctx.options.get("persistent") and not args.run_in_background else None
    if shells is None:
        return ""
    return ctx.once("memory of the shell", lambda: shells.alters(command_names(args, ctx), ctx.cwd, args.command))


def command_names(args: BashArgs, ctx: ToolContext) -> dict[str, None]:
    """Return the names of all commands, wrappers included."""
    commands = understand_call(args, ctx).commands
    return dict.fromkeys(name for each in commands for name in (*each.wrappers, each.name, each.words[0]) if name)


def time_s(args: BashArgs, ctx: ToolContext) -> float:
    """Return how long the command may run: a little less than the call, which still has to report."""
    own = args.timeout / 1000
    settings = ctx.session.settings.tools.get("Bash")
    if settings is None or settings.timeout is None:
        return own
    return min(own, max(settings.timeout * 0.9, settings.timeout - 0.5))


def describe(args: BashArgs) -> str:
    """Return the description of a command in the history."""
    return args.description or args.command[:200]


def change_log_of(args: BashArgs, ctx: ToolContext, shells: Shells, launcher: Runner) -> str | None:
    """Make the change log of a command; None if its changes are not recorded."""
    if is_read_only(args, ctx) or why_unrecorded(args, ctx, launcher):
        return None
    from surehand.history.words import Author  # lazy: words, 2 ms

    return shells.change_log(Author.of(ctx, "Bash", describe(args)), launcher.profile)


def why_unrecorded(args: BashArgs, ctx: ToolContext, launcher: Runner) -> str:
    """Say why a command's changes are not recorded; empty if they are, or if it only reads."""
    if is_read_only(args, ctx):
        return ""
    if not launcher.records:
        return "nothing on this system writes down what a command changes"
    if not launcher.profile.contained and needs_privileges(args, ctx):
        return "a program that takes other privileges runs without that"
    return ""


def needs_privileges(args: BashArgs, ctx: ToolContext) -> bool:
    """Tell whether one of its programs is a set-user-ID program."""
    return any(command.name in _PRIVILEGED for command in understand_call(args, ctx).commands)


def command_of(
    text: str, ctx: ToolContext, shells: Shells, variables: Mapping[str, str] = MappingProxyType({})
) -> Command:
    """Return the process that runs a command line; a very long one is passed as a file."""
    environment = {**shells.environment(ctx.call.id), **variables}
    if len(text) <= LONG_ARGUMENT and len(script := text.encode("utf-8", "surrogateescape")) <= LONG_ARGUMENT:
        return Command((bash(), "-c", os.fsdecode(script)), ctx.cwd, environment)
    return Command((bash(), SCRIPT), ctx.cwd, environment, text.encode("utf-8", "surrogateescape"))


SLOW_S: Final = 5.0
_MORE_TIME: Final = "Give it more time (timeout, at most 600000 ms) or run it in the background."
_HERE: Final = ("://localhost", "://127.", "://[::1]", "://0.0.0.0", "file://")
"""Parts of addresses that need no network."""


class Outcome:
    """How a command ended, filled in as it is known: changes of a cancelled one are recorded too."""

    __slots__ = ("ended", "note")

    def __init__(self, ended: Ended | None = None, note: str = "") -> None:
        self.ended = ended
        self.note = note


@frozen
class Call:
    """What is known of a command before it runs."""

    report: ShellReport
    launcher: Runner
    limit_s: float
    unrecorded: str = ""
    """Why its changes are not recorded; empty if they are."""
    warning: str = ""
    """A warning about the sandbox, given once in a session."""


@frozen
class Printed:
    """The output of a command, for the result and, as progress, for subscribers."""

    stdout: Stream
    stderr: Stream

    @classmethod
    def of(cls, ctx: ToolContext, shells: Shells, report_of: ShellReport) -> Printed:
        """Make the streams of a call; each line is reported as progress.

        The class of the command decides how much head and tail is kept.
        """

        def report(text: str, stream: str) -> None:
            ctx.progress(text, stream=stream)

        name = ctx.call.id
        share = head_share(report_of.class_, (each.name for each in report_of.commands))
        return cls(
            Stream(STDOUT_LIMIT, lambda: shells.output_file(f"{name}.out"), Watcher(report, "stdout"), share),
            Stream(STDERR_LIMIT, lambda: shells.output_file(f"{name}.err"), Watcher(report, "stderr"), share),
        )

    def close(self) -> None:
        """Close the files of long output."""
        self.stdout.close()
        self.stderr.close()


def result(ctx: ToolContext, call: Call, printed: Printed, outcome: Outcome, recorded: Recorded | None) -> ToolResult:
    """Build the result of a command: text for a model, data for programs."""
    ended = outcome.ended or Ended(-1, stopped="it was never started")
    stdout, stderr = printed.stdout.show(), printed.stderr.show()
    data = _data(call, stdout, stderr, ended)
    notes = _notes(ended, counted=call.launcher.kind != "none")
    if outcome.note:
        notes.append(outcome.note)
    if call.warning:
        notes.append(call.warning)
    if call.unrecorded:
        notes.append(f"what this command changed is not recorded and cannot be undone: {call.unrecorded}")
    undo: Undo | None = None
    if recorded is not None:
        if recorded.change_id:
            data["changes"] = recorded.to_dict()
            undo = Undo(recorded.change_id, f"takes back {format_count(len(recorded.files), 'changed path')}")
        if recorded.lost:
            notes.append(f"its changes cannot all be undone: {recorded.lost}")
    error = _error(call, stdout, stderr, ended)
    if recorded is not None and recorded.put_back:
        data["put_back"] = list(recorded.put_back)
        error = _put_back(recorded.put_back, ended)
    hint = error.hint if error is not None else NO_INPUT_HINT if asked_last(stderr.text) else ""
    if error is None and not call.report.read_only:
        notes += _met_the_sandbox(call, stdout, stderr, ended)
    if hint:
        notes.append(hint)
        if NO_INPUT_HINT in hint:
            data["waiting_for_input"] = True
    body = "\n".join(
        part for part in (stdout.text.rstrip("\n"), truncate_bytes(mark_stderr(stderr.text), STDERR_LIMIT)) if part
    )
    if error or ended.exit_code > 0:
        notes.insert(0, error.message if error else f"exit code {ended.exit_code}, which here means no")
    said = "".join(f"\n[{note}]" for note in notes)
    nothing = "(done)" if call.report.class_ == "silent" and error is None else "(no output)"
    output = truncate_bytes(body, STDOUT_LIMIT + STDERR_LIMIT - len(said.encode(errors="surrogatepass"))) or nothing
    output += said
    meta: dict[str, Any] = {"resources": {"cpu_s": ended.cpu_s, "max_rss_bytes": ended.max_rss}}
    if stdout.cut or stderr.cut:
        meta["truncated"] = True
    return ToolResult(ok=error is None, data=data, output=output, error=error, undo=undo, meta=meta)


def _data(call: Call, stdout: Shown, stderr: Shown, ended: Ended) -> dict[str, Any]:
    data: dict[str, Any] = {
        "exit_code": ended.exit_code,
        "stdout": stdout.text,
        "stderr": stderr.text,
        "class": call.report.class_,
        "usage": ended.usage(),
        "sandbox": in_force(call.launcher),
    }
    for name, shown in (("output_file", stdout), ("stderr_file", stderr)):
        if shown.file:
            data[name] = shown.file
    if stdout.cut or stderr.cut:
        data["truncated"] = {"stdout": stdout.cut, "stderr": stderr.cut}
    if stdout.stray or stderr.stray:
        data["binary_bytes"] = {"stdout": stdout.stray, "stderr": stderr.stray}
    if ended.signal:
        data["signal"] = ended.signal
    if ended.left_behind:
        data["left_behind"] = ended.left_behind
    return data


def _notes(ended: Ended, *, counted: bool) -> list[str]:
    notes: list[str] = []
    if ended.wall_s > SLOW_S:
        notes.append(f"took {ended.wall_s:.1f} s")
    if ended.left_behind and not ended.stopped:
        count = "one process" if ended.left_behind == 1 else f"{ended.left_behind} processes"
        left = f"{count} the command had left running" if counted else "what the command had left running in its group"
        notes.append(f"{left} ended with it; use run_in_background to keep one")
    return notes


def _error(call: Call, stdout: Shown, stderr: Shown, ended: Ended) -> ToolError | None:
    details = {"exit_code": ended.exit_code}
    if ended.stopped == "timeout":
        message = f"the command ran longer than its {call.limit_s:g} s and was ended"
        if ended.waiting:
            message += f"; {ended.waiting} waited for input"
        seems = not ended.waiting and wanted_input(stdout.text, stderr.text)
        hint = NO_INPUT_HINT if ended.waiting else f"{_MORE_TIME} {NO_INPUT_HINT}" if seems else _MORE_TIME
        # A program that kept retrying without network has printed that, or is known to need network.
        met = _explanation(call, stdout.text, stderr.text, ended) or _wants_network(call)
        if met and met != NO_INPUT_HINT:
            hint = met
        return ToolError("timeout", message, hint, details | {"timeout_s": call.limit_s})
    if ended.stopped:
        return ToolError("execution_error", f"the command did not run to its end: {ended.stopped}", "", details)
    if ended.exit_code == 0 or (ended.exit_code == 1 and _means_no(call.report)):
        return None
    hint = _explanation(call, stdout.text, stderr.text, ended)
    killed = f" (ended by signal {ended.signal}{_signal_name(ended.signal)})" if ended.signal else ""
    return ToolError("execution_error", f"the command failed with exit code {ended.exit_code}{killed}", hint, details)


def _wants_network(call: Call) -> str:
    """Explain that there is no network, if the command needs it."""
    profile = call.launcher.profile
    needing = [each.words for each in call.report.commands if program_of(each.name).needs_network]
    if profile.network or not needing:
        return ""
    return denials.explain("Network is unreachable", profile, 1)


def _asked_in_vain(call: Call) -> str:
    """Explain that there is no network, if a command without output names a remote address: `curl -s URL`."""
    words = [word for each in call.report.commands if program_of(each.name).needs_network for word in each.words]
    asked = any("://" in word and not any(here in word for here in _HERE) for word in words)
    return _wants_network(call) if asked else ""


def _signal_name(number: int) -> str:
    import signal

    try:
        return f", {signal.Signals(number).name}"
    except ValueError:
        return ""  # a real-time signal has no name


def _put_back(paths: Sequence[str], ended: Ended) -> ToolError:
    message = put_back_message("the command", paths)
    return ToolError("execution_error", message, KEPT_HINT, {"exit_code": ended.exit_code})


def _explanation(call: Call, stdout: str, stderr: str, ended: Ended) -> str:
    explained = denials.explain(stderr + stdout[-4000:], call.launcher.profile, ended.exit_code)
    explained = explained or _asked_in_vain(call)
    last = _last(call.report)
    asked = NO_INPUT_HINT if wanted_input(stdout, stderr, last.name if last else "") else ""
    return " ".join(each for each in (asked, explained) if each)


def _last(report: ShellReport) -> SimpleCommand | None:
    """Return the command whose exit code is that of the line."""
    if not report.ok or not report.commands:
        return None
    return next((each for each in reversed(report.commands) if not each.nested), report.commands[-1])


def _met_the_sandbox(call: Call, stdout: Shown, stderr: Shown, ended: Ended) -> list[str]:
    """Return notes on denials of the sandbox for a line that succeeded: `make | tail` hides failures."""
    explained = denials.explain(stderr.text[-4000:] + stdout.text[-4000:], call.launcher.profile, ended.exit_code)
    explained = explained or ("" if stdout.text or stderr.text else _asked_in_vain(call))
    return [explained] if explained else []


def _means_no(report: ShellReport) -> bool:
    """Tell whether the exit code 1 means "no" for the last command of a line."""
    last = _last(report)
    return last is not None and exit_1_means_no(last.words)
