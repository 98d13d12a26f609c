"""The tests and actions of `find` that read, with the number of words each takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from surehand.shell.options import names
from surehand.shell.programs import find_roots
from surehand.shell.word import Word

_ALONE = names(
    """-and -a -or -o -not ! ( ) , -true -false -depth -d -mount -xdev -noleaf -daystart -follow -empty -executable
    -readable -writable -nogroup -nouser -print -print0 -ls -prune -quit -nowarn -warn -ignore_readdir_race
    -noignore_readdir_race -help --help -version --version"""
)
_ONE = names(
    """-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -mtime -atime
    -ctime -mmin -amin -cmin -newer -anewer -cnewer -newermt -newerat -newerct -newermm -newerma -newermc -newerBt
    -newerBm -user -group -uid -gid -perm -links -inum -samefile -maxdepth -mindepth -regextype -printf -fstype -used
    -context"""
)

_COMPARES = names("-newer -anewer -cnewer -newermm -newerma -newermc -newerBm -samefile")


def named(words: Sequence[Word]) -> list[Word]:
    """Return the files that `-name` and its kin pick right below the starting points, as patterns."""
    roots = [root.text.rstrip("/") for root in find_roots(words) if root.literal]
    found: list[Word] = []
    for before, test, value in zip(["", *(word.text for word in words)], words, words[1:], strict=False):
        if not value.literal or before in ("!", "-not"):
            continue
        if test.text in ("-name", "-iname"):
            found += [_pattern(f"{root}/{value.text}") for root in roots]
        elif test.text in ("-path", "-ipath", "-wholename", "-iwholename"):
            found.append(_pattern(value.text))
    return found


def compared(words: Sequence[Word]) -> list[Word]:
    """Return the files whose times or identity tests compare with: the answer tells something of them."""
    return [value for test, value in pairwise(words) if test.text in _COMPARES and value.text[:1] != "-"]


def _pattern(text: str) -> Word:
    magic = any(character in text for character in "*?[")
    return Word(text, "glob", text.partition("*")[0]) if magic else Word(text)


def problem(words: Sequence[Word]) -> str:
    """Say what in the words after `find` is no read; a command run by `-exec` is judged on its own."""
    rest = list(words)
    while rest and rest[0].text in ("-H", "-L", "-P"):
        rest = rest[1:]
    start = 0 if rest and rest[0].text[:1] in ("-", "(", "!") else len(find_roots(rest))
    if any(root.may_be_flag for root in rest[:start]):
        return "a starting point of `find` could be an option"
    index = start
    while index < len(rest):
        taken = _taken(rest, index)
        if not taken:
            return f"`find {rest[index].text}` is not known to only read"
        index += taken
    return ""


def _taken(words: Sequence[Word], index: int) -> int:
    word = words[index]
    if not word.literal:
        return 0
    if word.text in _ALONE:
        return 1
    if word.text in _ONE:
        value = words[index + 1] if index + 1 < len(words) else None
        # A pattern without quotes may find several names, and one of them may be an action.
        certain = value is not None and (value.literal or (value.kind == "glob" and not value.may_be_flag))
        return 2 if certain else 0
    if word.text != "-exec":
        return 0
    end = index + 1
    while end < len(words) and words[end].text not in (";", "+"):
        end += 1
    return end - index + 1 if end < len(words) else 0
