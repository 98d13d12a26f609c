"""The main function of `surehand`: find the command, pass it its arguments, return its exit code.

Cold start matters: only the module of the requested command is imported.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from types import SimpleNamespace

from surehand import __version__

TYPE_CHECKING = False  # importing `typing` for this constant would cost a third of `--version`
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, what it does)
    "tools": ("surehand.cli.tools", "list, describe and call tools"),
    "ask": ("surehand.cli.ask", "ask a model, which may use the tools"),
    "chat": ("surehand.cli.chat", "talk with a model in the terminal"),
    "batch": ("surehand.cli.batch", "run many tasks, each in its own workspace"),
    "cluster": ("surehand.cli.batch", "run sessions on a Ray cluster"),
    "serve": ("surehand.cli.serve", "serve the tools to any MCP client"),
    "acp": ("surehand.cli.serve", "serve an editor as its agent (Agent Client Protocol)"),
    "console": ("surehand.cli.serve", "watch all sessions and answer questions in a browser"),
    "undo": ("surehand.cli.undo", "undo the last change, a turn, a session, or everything since a time"),
    "redo": ("surehand.cli.undo", "reapply what undo took back"),
    "rewind": ("surehand.cli.undo", "restore files and conversation to an earlier turn"),
    "log": ("surehand.cli.undo", "list the changes made in this workspace"),
    "diff": ("surehand.cli.undo", "show what a change did"),
    "policy": ("surehand.cli.policy", "explain what is allowed, and why"),
    "approvals": ("surehand.cli.approvals", "list and answer pending questions"),
    "trust": ("surehand.cli.config", "trust a folder's own settings, tools and servers"),
    "audit": ("surehand.cli.audit", "show and verify the audit log of every call"),
    "shell": ("surehand.cli.policy", "show how a shell command is parsed"),
    "ps": ("surehand.cli.ps", "show the board: to-dos, background commands, agents"),
    "events": ("surehand.cli.ps", "follow what happens in every session"),
    "reap": ("surehand.cli.ps", "end what dead sessions left running"),
    "stats": ("surehand.cli.stats", "show metrics"),
    "health": ("surehand.cli.stats", "check the health of tools"),
    "replay": ("surehand.cli.audit", "repeat a recorded session and compare"),
    "sessions": ("surehand.cli.sessions", "list, show, resume, fork and delete sessions"),
    "mcp": ("surehand.cli.mcp", "list, add, remove and test MCP servers"),
    "models": ("surehand.cli.config", "show which model is used, and why"),
    "auth": ("surehand.cli.config", "store a provider's API key"),
    "config": ("surehand.cli.config", "show settings and where they came from"),
    "doctor": ("surehand.cli.doctor", "check what works on this machine"),
    "completion": ("surehand.cli.completion", "print shell completion"),
    "tour": ("surehand.cli.tour", "see the product working, step by step"),
    "demo": ("surehand.cli.tour", "create a small folder to experiment in"),
    "help": ("surehand.cli.completion", "show a page of the documentation"),
}

_WITH_VALUE = {"--cwd": "cwd", "--session": "session", "--mode": "mode", "--allow": "allow"}
_ANYWHERE = ("completion", "tour", "events", "help")
"""Commands that run even if the current folder no longer exists."""
MODES = ("default", "accept-edits", "plan", "bypass")


class Usage(Exception):
    """The command line is invalid; the message says what is wrong with it."""

    def __init__(self, message: str, hint: str = "`surehand --help` lists the commands.") -> None:
        super().__init__(message)
        self.hint = hint


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; without `argv`, run that of the process and end the process."""
    if argv is not None:
        return _main(argv)
    # Collect garbage less often: imported objects stay, and scanning them takes a tenth of a short command.
    gc.set_threshold(50_000)
    code = _main(sys.argv[1:])
    _end_process(code)
    return code


def _main(words: list[str]) -> int:
    _open_missing_streams()
    try:
        shared, rest = _global_options(list(words))
        return _run(shared, rest)
    except BrokenPipeError:
        # The reader of our output has gone. Without this, the flush at exit would fail and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (Usage, OSError, ModuleNotFoundError) as problem:
        return _report(problem)
    except KeyboardInterrupt:
        return 130


def _end_process(code: int) -> None:
    """Flush, then `os._exit`, which skips Python's slow teardown.

    If a thread is still running or flushing fails, return and let Python exit normally: it waits for threads that are
    not daemons, and reports the failure.
    """
    gc.freeze()  # also skips the last garbage collection if Python exits normally
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return
    try:
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code & 0xFF)


def _report(problem: Usage | OSError | ModuleNotFoundError) -> int:
    """Print what went wrong and return the exit code; re-raise an import error that no extra explains."""
    from surehand.cli import render  # lazy: render, 17 ms
    from surehand.core.installation import explain_missing_module  # lazy: installation, 1 ms

    if isinstance(problem, Usage):
        render.error(str(problem), problem.hint, code="invalid_args")
        return 2
    if isinstance(problem, OSError):
        # Commands handle the errors they expect; this one is a full disk, or a state folder that is not writable.
        render.error(_os_problem(problem), _state_folder_hint(problem))
        return 1
    if (missing := explain_missing_module(problem)) is None:
        raise problem
    render.error(*missing, code="tool_unavailable")
    return 1


def _open_missing_streams() -> None:
    """Open /dev/null for missing standard streams, before another file gets their descriptors."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if (reconfigure := getattr(sys.stdin, "reconfigure", None)) is not None:
        reconfigure(encoding="utf-8", errors="surrogateescape")


def _os_problem(problem: OSError) -> str:
    where = f"{os.fsdecode(problem.filename)}: " if isinstance(problem.filename, str | bytes) else ""
    return where + (problem.strerror or str(problem))


def _state_folder_hint(problem: OSError) -> str:
    """Return a hint if the error is about the state folder or one of its parents."""
    from surehand.core.errors import SettingsError  # lazy: errors, 10 ms
    from surehand.state import locations  # lazy: locations, 9 ms

    where = problem.filename if isinstance(problem.filename, str) else ""
    try:
        own = {locations.home(), os.path.dirname(locations.user_settings())}
    except SettingsError:
        return ""
    near = where and any(os.path.commonpath((where, each)) in (where, each) for each in own if os.path.isabs(where))
    return "`surehand config path` says where settings and state live." if near else ""


def _run(shared: SimpleNamespace, rest: list[str]) -> int:
    if not rest or rest[0] in ("-h", "--help"):
        sys.stdout.write(help_text())
        return 0
    if rest[0] in ("--version", "-V"):
        sys.stdout.write(f"surehand {__version__}\n")
        return 0
    command = rest[0]
    if command.startswith("-"):
        raise Usage(f"there is no option {command} before a command{_nearest(command)}")
    if command not in COMMANDS:
        raise Usage(f"there is no command {command!r}{_nearest(command)}")
    return _command(command, rest[1:], shared)


def load_command(name: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Import a command; return the functions that add its options and run it.

    They are called `configure` and `run` if the module is named after the command, else `configure_redo`, `run_redo`.
    """
    import importlib

    module = COMMANDS[name][0]
    suffix = "" if module.endswith(f".{name}") else f"_{name}"
    found = importlib.import_module(module)
    return getattr(found, f"configure{suffix}"), getattr(found, f"run{suffix}")


def _command(name: str, words: list[str], shared: SimpleNamespace) -> int:
    parser = _parser(name, COMMANDS[name][1])
    configure, run = load_command(name)
    configure(parser)
    from surehand.cli import render  # lazy: render, 17 ms

    if shared.json:  # a wrong option is reported as JSON, too
        render.begin(shared)
    options = parser.parse_args(words)
    if not shared.cwd and name not in _ANYWHERE:
        raise Usage("the current folder no longer exists", "Go to another, or name one with --cwd DIR.")
    for key, value in vars(shared).items():
        setattr(options, key, value)
    from surehand.core.errors import SurehandError  # lazy: errors, 10 ms

    render.begin(options)
    try:
        return run(options)
    except SurehandError as problem:
        render.error(str(problem), getattr(problem, "hint", ""), code=getattr(problem, "code", "invalid_args"))
        return 2


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    from surehand.cli.parser import Parser  # lazy: parser, 11 ms

    return Parser(prog=f"surehand {name}", description=about[0].upper() + about[1:] + ".")


def _global_options(words: list[str]) -> tuple[SimpleNamespace, list[str]]:
    """Separate the global options, which may be anywhere before `--`, from the other arguments."""
    shared = SimpleNamespace(cwd=_here(), cwd_given=False, session=None, mode=None, allow=[], json=False, text=False)
    rest: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            rest += words[position - 1 :]
            break
        name, equals, value = word.partition("=")
        if word in ("--json", "--text"):
            shared.json, shared.text = word == "--json", word == "--text"
        elif name not in _WITH_VALUE:
            rest.append(word)
        else:
            if not equals:
                if position >= len(words):
                    raise Usage(f"{name} needs a value", "`surehand --help` says which.")
                value, position = words[position], position + 1
            _set(shared, _WITH_VALUE[name], value)
    return shared, rest


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # `--help` and `--cwd` still work


def _set(shared: SimpleNamespace, key: str, value: str) -> None:
    if key == "allow":
        shared.allow.append(value)
    elif key == "mode" and value not in MODES:
        raise Usage(f"there is no mode {value!r}", f"The modes are {', '.join(MODES)}.")
    elif key == "cwd":
        shared.cwd, shared.cwd_given = os.path.abspath(os.path.expanduser(value)), True
        if not os.path.isdir(shared.cwd):
            raise Usage(f"--cwd {value} is not a folder", "Name one that exists.")
    else:
        setattr(shared, key, value)


def _nearest(word: str) -> str:
    from surehand.core.names import nearest  # lazy: names, 11 ms

    near = nearest(word, (*COMMANDS, *_WITH_VALUE, "--json", "--text", "--version", "--help"))
    return f"; did you mean {near!r}?" if near else ""


def help_text() -> str:
    """Return the text of `surehand --help`."""
    from surehand.cli.parser import format_global_options, two_columns  # lazy: parser, 11 ms

    return (
        "Tools for AI agents: every call judged,\nsandboxed and undoable.\n\nUsage: surehand COMMAND [OPTIONS]\n\n"
        + two_columns([(name, about) for name, (_, about) in COMMANDS.items()], 15)
        + f"\n{format_global_options()}  --version, --help\n\n"
        + "`surehand COMMAND --help` says more;\n`surehand tour` shows it working.\n"
    )
