"""Repositories whose own settings make git run programs, also in commands that only look."""

from __future__ import annotations

import itertools
import os
import posixpath
from typing import TYPE_CHECKING

from holdfast.core.effects import RunCommand

if TYPE_CHECKING:
    from holdfast.policy.policy import Request


def repository_problem(words: tuple[str, ...], request: Request) -> str:
    """Return why a git command that looks must be asked about here, or nothing."""
    if not words or posixpath.basename(words[0]) != "git":
        return ""
    from holdfast.host.git_programs import configured_programs

    folders = [request.cwd, *(os.path.join(request.cwd, folder) for folder in _visited(words, request))]
    found = dict.fromkeys(name for folder in folders for name in configured_programs(os.path.normpath(folder)))
    return f"this repository's own git settings run programs ({', '.join(found)})" if found else ""


def _visited(words: tuple[str, ...], request: Request) -> list[str]:
    """Return the folders git may be in: by `-C`, and by every `cd` of the line."""
    named = [word for option, word in itertools.pairwise(words) if option == "-C"]
    moves = [each.words for each in request.effects or () if isinstance(each, RunCommand)]
    return [*named, *(each[-1] for each in moves if len(each) > 1 and each[0] in ("cd", "pushd"))]
