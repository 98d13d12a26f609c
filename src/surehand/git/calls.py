"""Parses calls of git: which of them print file contents, and from which revisions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern

Reach: TypeAlias = Literal["history", "commits", "trees", "blobs", "named"]
"""What a command prints: `history` the changes of the revisions and all their ancestors, `commits` the changes of the
named commits, `trees` whole trees, `blobs` any object. `named` prints only those named objects that are blobs.
"""

_BEFORE: Final = lazy_pattern(
    r"-P|--(?:no-pager|no-optional-locks|(?:literal|glob|noglob|icase)-pathspecs|no-replace-objects|no-lazy-fetch|no-advice)"
)
_PATCH: Final = lazy_pattern(
    r"-[puUcL].*|-W|--(?:patch|unified|cc|remerge-diff|diff-merges|word-diff|color-words|binary|function-context|check|"
    r"patch-with-raw|patch-with-stat)(?:=.*|-.*)?"
)
_NO_PATCH: Final = lazy_pattern(
    r"-s|--(?:no-patch|name-only|name-status|stat|numstat|shortstat|raw|dirstat|summary|compact-summary|cumulative)(?:=.*)?"
)
_NAMES_ONLY: Final = lazy_pattern(r"-[lLcq]|--(?:files-with-matches|files-without-match|name-only|count|quiet)")
_RAW: Final = lazy_pattern(r"%\(\*?raw")
"""Format placeholders that print a whole object, which may be a file's content."""
_IN_FULL: Final = lazy_pattern(r"-a|--text|--binary|--textconv|--ext-diff")
"""Options that print a change even if an attribute (`-diff`) says that the file's changes are not to be printed."""
_MANY: Final = lazy_pattern(
    r"-g|--(?:all|branches|tags|remotes|glob|reflog|walk-reflogs|bisect|alternate-refs|indexed-objects|stdin|merge)(?:=.*)?"
)
"""Options that select revisions by kind, or read them from elsewhere: any revision may be meant."""
_COUNTS: Final = lazy_pattern(r"(?:-n?|--max-count=)(-?\d+)")
_SHOWS_ALIKE: Final = lazy_pattern(
    r"-\d+|-n\d+|--max-count=\d+|-[puw]|-U\d+|--(?:patch|stat|oneline|decorate|no-color|color|abbrev-commit|"
    r"date|format|pretty|unified|word-diff|numstat|name-only|name-status|no-ext-diff|no-textconv)(?:=.*)?"
)
"""Options of `log` that do not change which commits are shown."""


@frozen
class GitCall:
    """A parsed git command: the directory of `-C`, the subcommand and its arguments."""

    folder: str
    name: str
    words: tuple[str, ...]
    plain: bool
    """Whether all options before the subcommand are known."""


@frozen
class PrintedRevisions:
    """The revisions, as written, whose contents a command prints, and how far from them it reaches."""

    reach: Reach
    revisions: tuple[str, ...]
    most: int | None = None
    """Limit on the number of commits."""
    staged: bool = False
    """Whether it also prints contents from the index."""
    assumed: bool = False
    """Whether it prints the indexed content of files marked `assume-unchanged`, whatever the files hold."""
    contained: bool = False
    """Whether the sandbox's attributes keep git from printing secrets that they match by name."""
    submodules: bool = False
    """Whether it also prints changes inside submodules."""


def parse_call(words: Sequence[str]) -> GitCall | None:
    """Parse a git command; None if it has no subcommand."""
    folder, plain, at = "", True, 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-C" and at + 1 < len(words):
            folder = os.path.join(folder, words[at + 1])  # each `-C` is relative to the one before
            at += 1
        elif words[at] == "-c":  # skip its value, which is not the subcommand
            plain = False
            at += 1
        elif not _BEFORE.fullmatch(words[at]):
            plain = False
        at += 1
    return GitCall(folder, words[at], tuple(words[at + 1 :]), plain) if at < len(words) else None


def prints(call: GitCall, *, diffs: bool = False) -> PrintedRevisions | None:
    """Return the revisions whose committed contents the command prints; None if it prints none.

    Options must be separate words with their value attached (see `spell_out`): which of them take a value is not known
    here. In the sandbox `diff` prints no secret, except with options that override attributes; `diffs` says that there
    is no such sandbox.
    """
    name, words = call.name, call.words
    if name == "stash" and words[:1] == ("show",):
        return PrintedRevisions("commits", _operands(words[1:]) or ("refs/stash",))
    if name == "stash" and words[:1] == ("list",):
        name, words = "log", ("-g", *words[1:])
    if name == "reflog":
        name, words = "log", ("-g", *(words[1:] if words[:1] == ("show",) else words))
    if name == "show":
        hidden = any(_NO_PATCH.fullmatch(word) for word in words) and not any(_PATCH.fullmatch(word) for word in words)
        if hidden:
            return PrintedRevisions("named", _operands(words)) if _operands(words) else None
        # With a limit on commits it walks the ancestors, as `log` does.
        reach: Reach = "history" if any(_COUNTS.fullmatch(word) for word in words) else "commits"
        inner = "--submodule=diff" in words
        return PrintedRevisions(reach, _operands(words) or ("HEAD",), _most(words), submodules=inner)
    if name in ("log", "whatchanged", "rev-list"):
        if not any(_PATCH.fullmatch(word) for word in words):
            return None
        whole = ("HEAD",) if "--full-diff" in words else ()
        revisions = (*_operands(words), *whole) or ("HEAD",)
        return PrintedRevisions("history", revisions, _most(words), submodules="--submodule=diff" in words)
    if name == "range-diff":
        return PrintedRevisions("history", _operands(words))
    if name == "diff-tree" and any(_PATCH.fullmatch(word) for word in words):
        return PrintedRevisions("commits", _operands(words))
    if name in ("diff", "diff-index", "diff-files"):
        in_full = diffs or any(_IN_FULL.fullmatch(word) for word in words)
        if in_full:
            revisions = _operands(words) or ("HEAD",)
            return PrintedRevisions("trees", revisions, staged=True, submodules="--submodule=diff" in words)
        return PrintedRevisions("trees", _operands(words), contained=True) if _operands(words) else None
    if name == "grep":
        return _judge_grep(words)
    if name == "cat-file":
        shows = any(word in ("-p", "blob") or (word.startswith("--batch") and "check" not in word) for word in words)
        names = _operands(words)
        named = names[1:] if "-p" not in words and names[:1] == ("blob",) else names  # `cat-file blob NAME`
        return PrintedRevisions("blobs", named) if shows else None
    raw = name in ("for-each-ref", "tag", "branch") and any(_RAW.search(word) for word in words)
    if raw or name == "diff-pairs":  # prints the objects it is given the names of
        return PrintedRevisions("blobs", ())
    return None


def prints_notes(call: GitCall) -> bool:
    """Tell whether the command prints the notes attached to commits."""
    if call.name == "notes":
        return call.words[:1] == ("show",)
    return call.name in ("log", "show", "whatchanged", "rev-list", "reflog", "stash", "diff-tree", "range-diff")


def _judge_grep(words: Sequence[str]) -> PrintedRevisions | None:
    if any(_NAMES_ONLY.fullmatch(word) for word in _before_paths(words)):
        return None
    revisions = _operands(words)
    if not any(word.startswith(("-e", "-f")) for word in words):
        # The first operand is the pattern, even after a leading `--`.
        revisions = (revisions or tuple(_before_paths(words[len(_before_paths(words)) + 1 :])))[1:]
    return PrintedRevisions("trees", revisions, staged="--cached" in words, assumed=not revisions)


def _before_paths(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _operands(words: Sequence[str]) -> tuple[str, ...]:
    """Return the operands before `--`, with options that select revisions by kind as `--all --reflog`."""
    found: list[str] = []
    for word in _before_paths(words):
        if _MANY.fullmatch(word):
            found += ["--all", "--reflog", *(["--stdin"] if word == "--stdin" else [])]
        elif not word.startswith("-"):
            found.append(word)
    if "--not" in words:  # inverts which revisions are included: any may be
        ends = (end for each in found for end in re.split(r"\.{2,3}", each.lstrip("^")))
        found = [re.sub(r"\^(?:[!@]|-\d*)$", "", end) for end in ends if end]
    return tuple(found)


def _most(words: Sequence[str]) -> int | None:
    """Return the limit on commits, if these are the newest ones; None if other options select them."""
    if "--" in words or not all(_SHOWS_ALIKE.fullmatch(word) for word in words if word.startswith("-")):
        return None
    found = filter(None, map(_COUNTS.fullmatch, words))
    return max((int(number[1]) for number in found), default=None)
