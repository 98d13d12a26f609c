"""Expands globs against the disk, as the shell would when the command runs."""

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
"""Limit on entries visited below a directory."""
# Harmless targets of links: system programs and libraries, and interpreters, which virtual environments link to.
_OF_THE_SYSTEM = lazy_pattern(r"/(?:usr/)?(?:local/)?(?:s?bin|lib\d*|share)/.*|/.*/python[\d.]*", re.DOTALL)
# With these some program takes an argument for an option, a command or a file of options.
_MEANT_OTHERWISE = "-+@!("
_BRACKET = lazy_pattern(r"\[[!^]?[^\[\]/]+\]")
_ODD_BRACKETS = lazy_pattern(r"\[[^/]*\]")


def matches(directory: str, pattern: str, *, everything: bool) -> Iterator[tuple[str, bool]]:
    """Yield each path the pattern matches in `directory`, and whether everything below it is meant.

    Brackets match any character, so that no file is missed because of the locale. Too many matches are replaced by the
    whole directory, plus those that need a judgement of their own: links, hidden names, secrets. With `everything`, a
    bare `*` is replaced by its directory (`rm -rf dir/*` empties `dir`). Without a match the shell passes the pattern
    on unchanged.
    """
    whole = os.path.join(directory, pattern).rstrip("/")
    head, _, last = whole.rpartition("/")
    if everything and last == "*" and not _is_glob(head):
        yield head or "/", True
        return
    found = _expand(whole)
    if found and pattern.endswith("/"):  # matches directories only
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
    """Whether a match must be judged by itself, however many others there are."""
    name = path.rpartition("/")[2]
    return name[:1] == "." or is_secret(name) or name == "surehand.toml" or os.path.islink(path)


def folder_of(word: Word) -> Word:
    """Return the directory the shell lists to expand a pattern: `echo ~/.ssh/*` shows its entries."""
    folder = _fixed_directory(word.text)
    return Word(folder if folder != "/" or word.text.startswith("/") else ".")


def finds_option(word: Word, directories: Sequence[str | None]) -> bool:
    """Return whether a pattern matches a name that looks like an option: `git log *` with a file `--output=x`."""
    if word.kind != "glob" or word.path or not word.may_be_flag:
        return False
    folders = [directory for directory in directories if directory is not None]
    return any(
        name[0] == "-" and _matches_name(name, _without_brackets(word.text))
        for at in folders
        for name in _list_names(at)
    )


def mark_option_free(word: Word, directories: Sequence[str | None]) -> Word:
    """Mark a pattern as `no_flag` if no name in the directory could be taken for an option.

    A bare `*` is not marked.
    """
    if word.kind != "glob" or word.path or not word.may_be_flag or word.text[:1] == "-" or word.text == "*":
        return word
    if any(
        directory is None or any(name[0] in _MEANT_OTHERWISE or ":" in name for name in _list_names(directory))
        for directory in directories
    ):
        return word
    return replace_values(word, no_flag=True)


def _expand(pattern: str) -> list[str] | None:
    paths = ["/"]
    for part in [_without_brackets(part) for part in pattern.split("/") if part]:
        if not _is_glob(part):
            paths = [os.path.join(path, part) for path in paths]
            continue
        paths = [os.path.join(path, name) for path in paths for name in _list_names(path) if _matches_name(name, part)]
        if len(paths) > _MOST_MATCHES:
            return None
    return [path for path in paths if os.path.lexists(path)]


def _without_brackets(part: str) -> str:
    """Return a pattern without brackets that matches at least as much; where nested brackets end is not certain."""
    plain = _BRACKET.sub("?", part)
    return _ODD_BRACKETS.sub("*", part) if "[" in plain or "]" in plain else plain


def links_out_of(folder: str, picks: Callable[[str], bool] = bool) -> Iterator[str]:
    """Yield the symbolic links below a directory that lead out of it.

    `picks` selects links by their path. For a directory with too many entries, the directory itself is yielded.
    """
    home = os.path.realpath(folder).rstrip("/") + "/"
    for count, entry in enumerate(entries_below(folder)):
        if count > MOST_NAMES:
            yield folder
            return
        if entry.is_symlink() and picks(entry.path) and leads_out(entry.path, home):
            yield entry.path


def leads_out(link: str, home: str) -> bool:
    """Return whether a link leads out of a directory; links to programs of the system do not count."""
    target = os.path.realpath(link)
    return not (target + "/").startswith(home) and _OF_THE_SYSTEM.fullmatch(target) is None


def entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a directory without following links."""
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


def _list_names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _matches_name(name: str, part: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return fnmatch.fnmatchcase(name, part)


def _is_glob(text: str) -> bool:
    return any(character in text for character in "*?[")


def _fixed_directory(pattern: str) -> str:
    fixed: list[str] = []
    for part in pattern.split("/"):
        if _is_glob(part):
            break
        fixed.append(part)
    return "/".join(fixed) or "/"
