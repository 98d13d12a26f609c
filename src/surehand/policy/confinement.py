"""Sessions that stay in their folder: what would change anything outside it is refused, whatever rules allow.

An agent in a worktree of its own is such a session. Its own folder is a repository's second one, so that git's way into
the first is closed as well.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

from surehand.core.effects import DeletePath, Effect, RunCommand, WritePath
from surehand.policy.paths import Roots

_NEUTRAL: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_ELSEWHERE: Final = ("-C", "--git-dir", "--work-tree")


def leaves(effects: Iterable[Effect], cwd: str, roots: Roots) -> str:
    """Return what would change something outside the roots, in words; nothing where all stays inside."""
    every = list(_with_implied(effects))
    for effect in every:
        if isinstance(effect, WritePath | DeletePath) and _outside(effect.path, roots):
            return f"{effect.path} is outside the folder this agent is confined to"
    runs = [effect for effect in every if isinstance(effect, RunCommand) and effect.words]
    if all(run.read_only for run in runs):
        return ""
    for place in (place for run in runs for place in _places(run)):
        path = posixpath.join(cwd, os.path.expanduser(place))
        if _outside(path, roots):
            return f"{path} is outside the folder this agent is confined to, and the command is not known to only read"
    return ""


def _with_implied(effects: Iterable[Effect]) -> Iterator[Effect]:
    for effect in effects:
        yield effect
        if isinstance(effect, RunCommand):
            yield from _with_implied(effect.implies)


def _outside(path: str, roots: Roots) -> bool:
    return path not in _NEUTRAL and not roots.place(path).inside


def _places(run: RunCommand) -> Iterator[str]:
    """Yield the folders a command goes to: `cd X`, `git -C X`, `git --git-dir=X`."""
    program, words = posixpath.basename(run.words[0]), run.words[1:]
    if program in ("cd", "pushd"):
        yield from (word for word in words if not word.startswith("-"))
    elif program == "git":
        for word, following in zip(words, (*words[1:], ""), strict=True):
            name, equals, value = word.partition("=")
            if name in _ELSEWHERE:
                yield value if equals else following
