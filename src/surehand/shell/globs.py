"""Globs: the existing files a pattern stands for, listed as the shell would when the command runs."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence

from surehand.core.frozen import replace_values
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.shell.word import Word

MAX_MATCHES = 64
_MOST_MATCHES = 100_000
MOST_NAMES = 50_000
"""Names that are looked at below a folder."""
# Programs and libraries of the system, and interpreters, which every virtual environment links to.
_OF_THE_SYSTEM = lazy_pattern(r"/(?:usr/)?(?:local/)?(?:s?bin|lib\d*|share)/.*|/.*/python[\d.]*", re.DOTALL)
_MEANT_OTHERWISE = "-+@!("  # what begins no name of a file to some program: an option, a command, a file of options
_BRACKET = lazy_pattern(r"\[[!^]?[^\[\]/]+\]")
_ODD_BRACKETS = lazy_pattern(r"\[[^/]*\]")


def matches(directory: str, pattern: str, *, everything: bool) -> Iterator[tuple[str, bool]]:
    """Yield each path the pattern matches in `directory`, and whether all below it is meant.

    Brackets match any character, so that no file is missed for a matter of locale. Many matches stand for the whole
    directory, with those that are more than plain files beside it: links, hidden names and secrets. A bare `*` stands
    for it where `everything` asks for that (`rm -rf dir/*` empties `dir`). Without any match the shell passes the
    pattern on as it is written.
    """
    whole = os.path.join(directory, pattern).rstrip("/")
    head, _, last = whole.rpartition("/")
    if everything and last == "*" and not _magic(head):
        yield head or "/", True
        return
    found = _expand(whole)
    if found and pattern.endswith("/"):  # a pattern of folders
        found = [path for path in found if os.path.isdir(path)]
    if found is None:
        yield _fixed_directory(whole), True
    elif not found:
        yield whole, False
    elif len(found) > MAX_MATCHES:
        yield _fixed_directory(whole), True
        found = [path for path in found if _is_remarkable(path)]
    for path in found or ():
        yield path, False


def _is_remarkable(path: str) -> bool:
    """Whether a match has to be judged by itself, however many others there are."""
    name = path.rpartition("/")[2]
    return name[:1] == "." or is_secret(name) or name == "surehand.toml" or os.path.islink(path)


def folder_of(word: Word) -> Word:
    """Return the folder whose names the shell itself lists to expand a pattern: `echo ~/.ssh/*` shows what is there."""
    folder = _fixed_directory(word.text)
    return Word(folder if folder != "/" or word.text.startswith("/") else ".")


def finds_option(word: Word, directories: Sequence[str | None]) -> bool:
    """Return whether a pattern finds a name that the command takes for an option: `git log *` beside `--output=x`."""
    if word.kind != "glob" or word.path or not word.may_be_flag:
        return False
    folders = [directory for directory in directories if directory is not None]
    return any(name[0] == "-" and _fits(name, _without_brackets(word.text)) for at in folders for name in _names(at))


def looked_at(word: Word, directories: Sequence[str | None]) -> Word:
    """Return a pattern marked as one that finds no option, where no name in the folder it is matched in could be one.

    A bare `*` is left as it is: whoever writes that takes what comes.
    """
    if word.kind != "glob" or word.path or not word.may_be_flag or word.text[:1] == "-" or word.text == "*":
        return word
    if any(
        directory is None or any(name[0] in _MEANT_OTHERWISE or ":" in name for name in _names(directory))
        for directory in directories
    ):
        return word
    return replace_values(word, no_flag=True)


def _expand(pattern: str) -> list[str] | None:
    paths = ["/"]
    for part in [_without_brackets(part) for part in pattern.split("/") if part]:
        if not _magic(part):
            paths = [os.path.join(path, part) for path in paths]
            continue
        paths = [os.path.join(path, name) for path in paths for name in _names(path) if _fits(name, part)]
        if len(paths) > _MOST_MATCHES:
            return None
    return [path for path in paths if os.path.lexists(path)]


def _without_brackets(part: str) -> str:
    """Return a pattern that finds at least as much; with a class or a quoted bracket inside, where one ends is open."""
    plain = _BRACKET.sub("?", part)
    return _ODD_BRACKETS.sub("*", part) if "[" in plain or "]" in plain else plain


def links_out_of(folder: str, picks: Callable[[str], bool] = bool) -> Iterator[str]:
    """Yield the links below a folder that lead out of it: where whoever follows or opens them goes.

    `picks` tells by its path whether a link counts. A folder with too much in it to be looked through counts as one.
    """
    home = os.path.realpath(folder).rstrip("/") + "/"
    for count, entry in enumerate(entries_below(folder)):
        if count > MOST_NAMES:
            yield folder
            return
        if entry.is_symlink() and picks(entry.path) and leads_out(entry.path, home):
            yield entry.path


def leads_out(link: str, home: str) -> bool:
    """Return whether a link leads out of a folder; what everybody has, the system's own programs, is no way out."""
    target = os.path.realpath(link)
    return not (target + "/").startswith(home) and _OF_THE_SYSTEM.fullmatch(target) is None


def entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield all that lies below a folder, links unfollowed."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _fits(name: str, part: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return fnmatch.fnmatchcase(name, part)


def _magic(text: str) -> bool:
    return any(character in text for character in "*?[")


def _fixed_directory(pattern: str) -> str:
    fixed: list[str] = []
    for part in pattern.split("/"):
        if _magic(part):
            break
        fixed.append(part)
    return "/".join(fixed) or "/"
