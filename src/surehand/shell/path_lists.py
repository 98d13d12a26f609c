"""Tracks lists of paths that one command prints for another: `find . | xargs wc -l`, `wc -l $(git ls-files)`.

Reading all paths below known directories is as safe as `grep -r` there. Only commands that print nothing but paths
below the directories in their words count. The names on disk are checked for characters that would change their
meaning: a blank splits a name (`a /etc/passwd`), `xargs` removes quotes and backslashes (`"/etc/passwd"`), and the
shell expands globs (`.*/x`).
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import posixpath
import re
from collections.abc import Iterator, Sequence

from surehand.core.frozen import replace_values
from surehand.core.text import lazy_pattern
from surehand.shell import globs, options, read_only
from surehand.shell.programs import program_of, wrapper_of
from surehand.shell.programs.directories import joins_tests, picked_files, picks_link
from surehand.shell.programs.record import Call
from surehand.shell.scope import FoundCommand
from surehand.shell.word import Many, Word


def find_listed_paths(found: FoundCommand) -> tuple[Word, ...]:
    """Return patterns of the paths a command prints; none if it may print anything else."""
    verdict = read_only.judge(found)
    if verdict.problem or found.context.nested or found.wraps is not None or found.function or _in_subfolder(found):
        return ()
    program = program_of(found.name)
    call = Call(program, found.name, found.words[1:])
    if program.lists_paths is not None and program.lists_paths(call):
        words = [*verdict.reads, *(picked_files(found.words[1:]) if found.name == "find" else ())]
        if any(word.kind == "opaque" for word in words) or (found.name == "ls" and _finds_folder(found)):
            return ()
        folders = [globs.folder_of(word).text for word in verdict.reads]
        splits = _holds_odd_names(found, folders)
        links = [Word(each) for each in _links_listed(found, folders)]
        many: Many = "split" if splits else "names"
        below = [each for word in words for each in _list_below(word, _picked_names(found, word))]
        return (*(replace_values(each, many=many, no_flag=not splits) for each in below), *links)
    passes = program.keeps_lines is not None and not verdict.reads and program.keeps_lines(call)
    return found.context.listed if passes else ()


def _in_subfolder(found: FoundCommand) -> bool:
    """Return whether git prints paths relative to the top of the repository, but runs in a subdirectory."""
    told = found.name == "git" and [word.text for word in found.words[1:2]] == ["diff"]
    return told and any(directory is None or _top_of(directory) != directory for directory in found.directories)


def _finds_folder(found: FoundCommand) -> bool:
    """Return whether a glob given to `ls` matches a directory: its entries are printed without their directory."""
    patterns = [word.text for word in found.words[1:] if word.kind == "glob"]
    places = [directory or "/" for directory in found.directories]
    matched = (globs.matches(place, pattern, everything=False) for place in places for pattern in patterns)
    return any(below or os.path.isdir(path) for each in matched for path, below in each)


def _list_below(word: Word, picked: Sequence[str]) -> list[Word]:
    """Return patterns for the paths below a directory: those with the picked names, or all."""
    if not word.literal:
        return [word]
    folder = word.text.rstrip("/") + "/"
    texts = [f"{folder.removeprefix('./')}**/{name}" for name in picked] or [word.text]
    return [Word(text, "glob", "", folder + "**") for text in texts]


_UNSPECIFIC = "*?[].!^/"  # a pattern of only these characters may match any name
_LISTS_SOME = lazy_pattern(r"-[comdz]+|--(?:cached|others|modified|deleted|exclude-standard|)")


def _picked_names(found: FoundCommand, start: Word) -> list[str]:
    """Return name patterns of which every listed path matches one; none if other paths may be listed."""
    if found.name == "find":
        tests = itertools.pairwise(found.words[1:])
        names = [value for test, value in tests if test.text in ("-name", "-iname")]
        # The starting directory is listed, too, and in `find` a `*` matches a leading dot.
        kept = (posixpath.basename(start.text.rstrip("/")).lower(), ".git", ".surehand")
        patterns = [each.text.lower() for each in names]
        if joins_tests(found.words[1:]) or any(fnmatch.filter(kept, pattern) for pattern in patterns):
            return []
        names = names[:1]
    elif found.name == "git" and [word.text for word in found.words[1:2]] == ["ls-files"]:
        options = [word for word in found.words[2:] if word.text.startswith("-")]
        names = [word for word in found.words[2:] if not word.text.startswith("-")]
        if not all(_LISTS_SOME.fullmatch(word.text) for word in options):
            return []
    else:
        return []
    plain = all(each.literal and each.text.strip(_UNSPECIFIC) and _PLAIN_PICK.match(each.text) for each in names)
    return [each.text for each in names] if plain else []


_PLAIN_PICK = lazy_pattern(r"(?![:/~])(?!.*\.\.)")  # no pathspec magic, and not out of the directory


_WITHIN_INDEX = 62  # bytes of an entry before its name


# Characters that change the meaning of a name: it is split, unquoted, expanded to hidden names (`..` among them), or
# taken for an option, a host or a file of options.
_ODD_NAME = lazy_pattern(rb"[\s'\"\\:]|(?:\A|/)\.[^/]*[*?\[]|\A[-+@!(),=]")


def _holds_odd_names(found: FoundCommand, folders: list[str]) -> bool:
    """Tell whether the command may print a name that is not taken literally, or that cannot be ruled out."""
    if found.context.wrappers or any(directory is None for directory in found.directories):
        return True
    directories = [directory for directory in found.directories if directory is not None]
    if _lists_tracked(found):
        names = [_index_names(directory) for directory in directories]
        if all(each is not None for each in names):
            return any(_ODD_NAME.search(name) for each in names for name in each or ())
    starts = [os.path.join(directory, folder) for directory in directories for folder in folders]
    for count, entry in enumerate(entry for start in starts for entry in globs.entries_below(start)):
        if count > globs.MOST_NAMES or _ODD_NAME.search(os.fsencode(entry.name)):
            return True
    return any(_ODD_NAME.search(os.fsencode(folder)) for folder in folders)


def _lists_tracked(found: FoundCommand) -> bool:
    """Return whether a command is git and lists only tracked files."""
    return found.name == "git" and not any(re.match(r"-\w*o|--o", word.text) for word in found.words[2:])


def _links_listed(found: FoundCommand, folders: list[str]) -> Iterator[str]:
    """Yield links out of the directories that a command may print: a command given one opens its target."""
    if found.name in ("grep", "rg"):
        return  # they skip links
    picks = picks_link(found.words[1:]) if found.name in ("find", "gfind") else bool
    for directory in found.directories:
        tracked = _index_names(directory) if directory is not None and _lists_tracked(found) else None
        if tracked is not None and directory is not None:
            yield from _tracked_links(_top_of(directory) or directory, tracked)
            continue
        for folder in folders if directory is not None else ():
            yield from globs.links_out_of(os.path.join(directory or "/", folder), picks)


def _tracked_links(directory: str, tracked: list[bytes]) -> Iterator[str]:
    """Yield tracked paths that lead through links out of a directory."""
    home = os.path.realpath(directory).rstrip("/") + "/"
    seen: dict[str, bool] = {"": False}
    for name in map(os.fsdecode, tracked):
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            if path not in seen:
                whole = os.path.join(directory, path)
                seen[path] = os.path.islink(whole) and globs.leads_out(whole, home)
            if seen[path] or parts[end - 1] == "..":
                yield os.path.join(directory, name)
                break


def repositories_around(folder: str) -> list[str]:
    """Return a directory and its ancestors that have a `.git`."""
    parts = folder.split("/")
    above = ["/".join(parts[:end]) or "/" for end in range(len(parts), 0, -1)]
    return [each for each in above if os.path.lexists(os.path.join(each, ".git"))]


_OPTION_LIKE = lazy_pattern(rb"^(?:[0-9a-f]+ |ref:[ \t]*)refs/(?:heads|tags|remotes)/-", re.MULTILINE)


def names_an_option(folder: str) -> bool:
    """Tell whether a repository around a folder may have a reference whose short name begins with a dash.

    git makes none but takes them from archives and others: `git log "$(git describe)"` would heed it as an option.
    """
    for top in repositories_around(folder):
        git_dir = os.path.join(top, ".git")
        if not os.path.isdir(git_dir) or os.path.lexists(os.path.join(git_dir, "reftable")):
            return True  # a pointer to elsewhere, or references that are kept in another way
        if os.path.lexists(os.path.join(git_dir, "commondir")):
            return True
        for kind in ("heads", "tags", "remotes"):
            try:
                names = os.listdir(os.path.join(git_dir, "refs", kind))
            except FileNotFoundError:
                continue
            except OSError:
                return True
            if any(name.startswith("-") for name in names):
                return True
        for name in ("packed-refs", "HEAD"):
            try:
                with open(os.path.join(git_dir, name), "rb") as file:
                    if _OPTION_LIKE.search(file.read()):
                        return True
            except FileNotFoundError:
                continue
            except OSError:
                return True
    return False


def _top_of(folder: str) -> str | None:
    """Return the top of the repository around a directory."""
    while not os.path.isdir(os.path.join(folder, ".git")):
        if os.path.dirname(folder) == folder:
            return None
        folder = os.path.dirname(folder)
    return folder


def _index_names(folder: str) -> list[bytes] | None:
    """Return the tracked paths of the repository around a directory; None if the index cannot be read."""
    top = _top_of(folder)
    if top is None:
        return None
    try:
        with open(os.path.join(top, ".git", "index"), "rb") as file:
            data = file.read(64 * 1024 * 1024)
    except FileNotFoundError:
        return []
    except OSError:
        return None
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        return None
    names: list[bytes] = []
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        extended = 2 if data[at + 60 : at + 61] and data[at + 60] & 0x40 else 0
        start = at + _WITHIN_INDEX + extended
        end = data.find(b"\0", start)
        if end < 0:
            return None
        names.append(data[start:end])
        at += (end - at + 8) // 8 * 8
    return names


_SCRIPTED = ("sed", "gsed", "awk", "gawk", "mawk")  # whose operands after the script are files
_LINE_ENDS = ("\\n", "\n")


def add_listed_paths(
    words: tuple[Word, ...], before: Sequence[Word], names: tuple[Word, ...]
) -> tuple[Word, ...] | None:
    """Return the words of a command that `xargs` runs, with the paths it adds; None if these must stay unknown.

    Names may be split at blanks and then begin with a dash, so only commands without harmful options are accepted.
    """
    name = words[0].text.rpartition("/")[2]
    program = program_of(name)
    known = options.flags(program.reads)
    certain = all(each.many == "names" and each.no_flag for each in names if not each.literal)
    plain = (known.all_harmless or certain) and known.operands in ("read", "pattern", "list", "walk")
    plain = plain or (certain and name in _SCRIPTED)
    if not names or (program.has_rules_of_its_own and name not in _SCRIPTED) or not plain:
        return None
    wrapper = wrapper_of("xargs")
    given = options.parse(before, options.flags(wrapper.flags if wrapper else ""), permute=False)
    if not given.has("-0", "--null") and any(each.many == "split" for each in names):
        return None
    if any(each.text not in _LINE_ENDS for each in given.values("-d", "--delimiter")):  # splits the names differently
        return None
    if name in _SCRIPTED and program.judge(name, (*words[1:], *names)).problem:
        return None
    if not given.has("-I", "-i", "--replace"):
        return (*words, *names)
    marks = {name: value.text if value else "{}" for name, value in given.options if name in ("-I", "-i", "--replace")}
    mark = next(iter(marks.values()))
    if set(marks.values()) != {mark} or not mark or any(mark in word.text and word.text != mark for word in words):
        return None
    return tuple(each for word in words for each in (names if word.text == mark else (word,)))
