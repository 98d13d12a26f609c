"""Folders whose own git settings run programs, also in commands that only look."""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from surehand.core.effects import ReadPath, RunCommand

if TYPE_CHECKING:
    from surehand.policy.policy import Request


def repository_problem(effect: RunCommand, request: Request) -> str:
    """Return why a command that looks must be asked about here, or nothing."""
    if not effect.words:
        return ""
    if posixpath.basename(effect.words[0]) != "git":
        return ""
    from surehand.git.model import what_asks

    if any("{}" in word for option, word in itertools.pairwise(effect.words) if option == "-C"):
        return "git is run in folders that cannot be known before"
    named = [os.path.join(request.cwd, folder) for folder in _folders(effect, request)]
    folders = dict.fromkeys(os.path.realpath(each) for folder in named for each in (folder, os.path.normpath(folder)))
    found = dict.fromkeys(name for folder in folders for name in what_asks(folder, request.roots))
    if found:
        return f"this repository's own files say what git runs or reads ({', '.join(found)})"
    return _committed_secret(effect, folders, request)


def _committed_secret(effect: RunCommand, folders: Iterable[str], request: Request) -> str:
    """Say which secret in the history a command may print."""
    from surehand.git.printed import prints, taken_apart

    call = taken_apart(effect.words)
    if call is None or prints(call) is None:
        return ""
    from surehand.core.secrets import is_secret
    from surehand.git.committed import secret_reached

    for folder in folders:
        found = secret_reached(call, folder, is_secret)
        if found == "?":
            return "whether it prints a secret out of the history could not be found out"
        if found:
            return f"it may print {found} as it was committed, which holds secrets"
    return ""


def _folders(effect: RunCommand, request: Request) -> Iterator[str]:
    """Yield the folders git may be in: those it reads, wherever the line moved to, and those named by `-C` and `cd`."""
    yield request.cwd
    yield from (each.path for each in effect.implies if isinstance(each, ReadPath))
    named = [word for option, word in itertools.pairwise(effect.words) if option == "-C"]
    for folder in (*named, *_moves(request)):
        yield os.path.join(request.cwd, folder)


def _moves(request: Request) -> list[str]:
    """Return where each `cd` of the line leads: from the folder of the call, and from where the one before it led."""
    words = [each.words for each in request.effects or () if isinstance(each, RunCommand)]
    named = [each[-1] for each in words if len(each) > 1 and each[0] in ("cd", "pushd")]
    return [*named, *itertools.accumulate(named, os.path.join)]
