"""The parser of one command's words: nothing is abbreviated, and texts keep the lines they were written in."""

from __future__ import annotations

import argparse
import os
from typing import Any


class Parser(argparse.ArgumentParser):
    """An argument parser; the parsers of its sub-commands are such parsers too."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(formatter_class=_Help, **options)


def approvals_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says who answers questions."""
    about = "who answers questions: the terminal (default), or `holdfast approvals` in another one as well"
    parser.add_argument("--approvals", choices=("terminal", "mailbox"), metavar="terminal|mailbox", help=about)


class _Help(argparse.RawDescriptionHelpFormatter):
    # argparse makes a formatter for every argument it is told of, and each would ask shutil for the width: the
    # import of what shutil needs takes longer than all the parsing.
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS", "")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        return 80
