"""The argument parser of commands, and the layout of help pages.

Options cannot be abbreviated, and the line breaks of help texts are kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

EVERYWHERE = (
    ("--cwd DIR", "the workspace (default: the current folder)"),
    ("--session NAME", "continue a session: what was read, approved, activated"),
    ("--mode MODE", "default, accept-edits, plan or bypass"),
    ("--allow RULE", "an allow rule, such as 'Bash(git commit:*)'; repeatable"),
    ("--json", "print JSON, even on a terminal"),
    ("--text", "print human-readable text, even in a pipe"),
)
"""The options that work before and after every command."""


def format_global_options() -> str:
    """Return the section of a help page that lists the global options."""
    return "Everywhere:\n" + two_columns(EVERYWHERE, 22)


class Parser(argparse.ArgumentParser):
    """The `ArgumentParser` of a command and of its sub-commands."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(formatter_class=_Help, **options)
        self.register("action", "parsers", _Commands)

    def add_subparsers(self, **options: Any) -> Any:
        """Add sub-commands under a title of their own."""
        options.setdefault("title", "commands")
        return super().add_subparsers(**options)

    def format_help(self) -> str:
        """Return the help page, which ends with the global options."""
        return f"{super().format_help()}\n{format_global_options()}"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore
        """Parse arguments; report unknown ones here, so that the error comes from the sub-command's own parser."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._explain_unknown(unknown))
        return options, unknown

    def _explain_unknown(self, words: list[str]) -> str:
        """Describe unknown arguments. If one is an option, name only that: the word after it may be its value."""
        if (option := next((word for word in words if word.startswith("-")), None)) is None:
            meant = " (arguments of a tool go after --args)" if "--args" in self._option_string_actions else ""
            return f"too many words: {' '.join(words)}{meant}"
        known = [*self._option_string_actions, *(words.split()[0] for words, _ in EVERYWHERE)]
        return f"there is no option {option}{_suggest(option, known)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known: list[str] = [str(each) for each in action.choices or ()]
        if isinstance(action, _Commands) and value not in known:
            self.error(f"{self.prog} has no command {value!r}{_suggest(value, known)} (it has {', '.join(known)})")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Print the usage error and exit with code 2."""
        from surehand.cli import render  # lazy: render, 7 ms

        self.print_usage(sys.stderr)
        message = message.replace("the following arguments are required:", "missing:")
        render.error(message, f"`{self.prog} --help` says more.", code="invalid_args")
        self.exit(2)


def _suggest(word: str, known: Iterable[str]) -> str:
    from surehand.core.names import nearest  # lazy: names, 2 ms

    return f"; did you mean {near}?" if (near := nearest(word, known)) else ""


class _Commands(argparse._SubParsersAction):  # pyright: ignore
    """Sub-commands whose help pages begin with the line that the parent's page shows for them."""

    def add_parser(self, name: str, **options: Any) -> Any:
        about = str(options.get("help") or "")
        options.setdefault("description", about and f"{about[0].upper()}{about[1:]}.")
        return super().add_parser(name, **options)  # pyright: ignore


def effort_option(parser: argparse.ArgumentParser) -> None:
    """Add `--effort`: how much a model thinks."""
    levels = ("none", "minimal", "low", "medium", "high", "xhigh")
    parser.add_argument("--effort", choices=levels, help="how much the model thinks before it answers")


def approvals_option(parser: argparse.ArgumentParser) -> None:
    """Add `--approvals`: who answers questions."""
    about = "who answers questions: the terminal (default), or `surehand approvals` in another one as well"
    parser.add_argument("--approvals", choices=("terminal", "mailbox"), metavar="terminal|mailbox", help=about)


class _Help(argparse.RawDescriptionHelpFormatter):
    # argparse creates a formatter for every argument added, and each would get the width from shutil, whose imports
    # take longer than all the parsing.
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from textwrap import fill

        return "\n".join(
            fill(line, width, initial_indent=indent, subsequent_indent=indent) for line in text.split("\n")
        )


def port_number(text: str) -> int:
    """Parse a port number given on the command line."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def whole_number(text: str) -> int:
    """Parse a whole number of 0 or more given on the command line."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def count_above_zero(text: str) -> int:
    """Parse a whole number of 1 or more given on the command line."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number over 0")
    return int(text)


def amount_above_zero(text: str) -> float:
    """Return an amount given on the command line, seconds or cores."""
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number over 0")
    return amount


# Layout of help pages: names and what they mean in two columns, folded to the width of the terminal.

TYPE_CHECKING = False  # for `--help`, which needs nothing else of `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence


def columns() -> int:
    """Return the width of the terminal, without what `shutil` imports for it."""
    chosen = os.environ.get("COLUMNS", "")
    try:
        return (int(chosen) if chosen.isdecimal() else os.get_terminal_size(1).columns) or 80
    except (ValueError, OSError):
        return 80


def two_columns(rows: Sequence[tuple[str, str]], left: int) -> str:
    """Lay out rows, the second column indented by `left`; a narrow terminal gets it below the first."""
    room = columns() - left - 1
    if room >= max(len(about) for _, about in rows):
        return "".join(f"  {name:<{left - 2}}{about}\n" for name, about in rows)
    from textwrap import wrap

    if room < 24:
        left, room = 6, max(columns() - 7, 20)
        return "".join(
            f"  {name}\n" + "".join(f"{'':{left}}{each}\n" for each in wrap(about, room)) for name, about in rows
        )
    folded = [(name, wrap(about, room)) for name, about in rows]
    return "".join(
        f"  {name if not at else '':<{left - 2}}{each}\n" for name, lines in folded for at, each in enumerate(lines)
    )
