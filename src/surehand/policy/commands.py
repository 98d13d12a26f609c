"""Command patterns: what `Bash(...)` matches, on the decoded words of one simple command.

`Bash(git status:*)` and `Bash(git status *)` are words that begin so, `Bash(git status)` exactly these words.

A rule that forbids sees through what does not change the meaning: a path before the program (`/usr/bin/rm`), options
between its words (`git -C x push`), clusters and order of options (`rm -fr` for `rm -rf`), words after the ones it
names. A rule that allows does not.
"""

from __future__ import annotations

import posixpath
import re

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern

PROGRAM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
# Programs whose words hold text in a language of their own that can run commands.
_INTERPRETERS = (
    r"(python|pypy|ipython|perl|ruby|node|deno|bun|php|lua|tclsh|expect|osascript|pwsh|[gmn]?awk|g?sed|Rscript|R|julia|"
    r"g?vim?|nvim|ex|ed|emacs|tmux|screen|g?make|gdb|lldb|sqlite|psql|mysql|m4|socat|nix-shell|docker|podman|kubectl|ssh)"
    r"[0-9.]*"
)
_PARTS = lazy_pattern(r"[;&|\n(){}!`'\"=]+")  # what may stand before a command inside a text
_LONG_NAMES = {"r": "--recursive", "R": "--recursive", "f": "--force", "v": "--verbose", "i": "--interactive"}


@frozen
class CommandPattern:
    """The words of a rule; `open_end` lets more words follow."""

    words: tuple[str, ...]
    open_end: bool

    def allows(self, words: tuple[str, ...]) -> bool:
        """Return whether an allow rule covers the command: word by word, from the first one on."""
        if not words or len(words) < len(self.words) or (len(words) > len(self.words) and not self.open_end):
            return False
        first = words[0]
        folder, name = posixpath.split(first)
        plain = name if folder in PROGRAM_FOLDERS else first
        pairs = zip(self.words, (plain, *words[1:]), strict=False)
        return all(_same(wanted, word) for wanted, word in pairs)

    def forbids(self, words: tuple[str, ...]) -> bool:
        """Return whether a deny or ask rule is meant for the command, however it is written."""
        if not self.words:
            return True
        if not words or not _same_program(self.words[0], words[0]):
            return False
        options, plain = _split(self.words[1:])
        if not all(_has_option(option, words[1:]) for option in options):
            return False
        return self._in_order(plain, words[1:])

    def hidden_in(self, words: tuple[str, ...]) -> bool:
        """Return whether what follows the first word would be such a command: what an unknown wrapper may run.

        The text handed to an interpreter counts when it names the program at all: what it does there is not read. Text
        handed to any other program, or to a variable, counts where it begins with such a command.
        """
        if not self.words:
            return False
        texts = [word for word in words if _PARTS.search(word) or " " in word]
        if any(self.forbids(tuple(part.split())) for text in texts for part in _PARTS.split(text)):
            return True
        if re.fullmatch(_INTERPRETERS, posixpath.basename(words[0])):
            named = re.compile(rf"(?<![\w.-]){re.escape(posixpath.basename(self.words[0]))}(?![\w.-])")
            return any(named.search(word) for word in words[1:])
        return any(self.forbids(words[start:]) for start in range(1, min(len(words), 64)))

    def _in_order(self, wanted: list[str], words: tuple[str, ...]) -> bool:
        """Find the plain words one after the other; only options, and one value after each, may stand between."""
        position = 0
        previous_is_option = False
        for target in wanted:
            while True:
                if position >= len(words):
                    return False
                word = words[position]
                position += 1
                if target == "*" or _same(target, word):
                    previous_is_option = False
                    break
                skippable = word.startswith("-") or previous_is_option
                previous_is_option = word.startswith("-") and "=" not in word
                if not skippable:
                    return False
        return True


def parse_command(text: str) -> CommandPattern:
    """Return the pattern of a `Bash(...)` specifier; an empty one or `*` matches every command."""
    text = text.strip()
    if text in ("", "*", ":*"):
        return CommandPattern((), open_end=True)
    if text.endswith(":*"):
        return CommandPattern(_words(text[:-2]), open_end=True)
    words = _words(text)
    if words[-1] == "*":
        return CommandPattern(words[:-1], open_end=True)
    # `Bash(npm run test*)`: the last word begins so, and what follows it is free as well.
    return CommandPattern(words, open_end=words[-1].endswith("*"))


def _words(text: str) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(shlex.split(text, posix=True))
    except ValueError:
        return tuple(text.split())


def _same(wanted: str, word: str) -> bool:
    if wanted == word or "*" not in wanted:
        return wanted == word
    import fnmatch

    return fnmatch.fnmatchcase(word, wanted)


def _same_program(wanted: str, word: str) -> bool:
    """Compare as the most forgiving system would: base names, case and `.exe` aside."""
    if _same(wanted, word):
        return True
    name = posixpath.basename(word).lower().removesuffix(".exe")
    bare = posixpath.basename(wanted) if wanted.startswith("/") else wanted
    return _same(bare.lower(), name)


def _split(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    options = [word for word in words if word.startswith("-") and word != "-"]
    return options, [word for word in words if not (word.startswith("-") and word != "-")]


def _has_option(option: str, words: tuple[str, ...]) -> bool:
    given = [word for word in words if word.startswith("-")]
    if any(_same(option, word) for word in given):
        return True
    if option.startswith("--"):
        # Programs take unambiguous abbreviations (`--forc`), and values after `=`.
        names = [word.partition("=")[0] for word in given]
        return any(len(name) >= 4 and option.startswith(name) for name in names if name.startswith("--"))
    # `-R` is another spelling of `-r` where either deletes, copies or changes whole trees.
    letters = "".join(word[1:] for word in given if not word.startswith("--")).replace("R", "rR").replace("r", "rR")
    return all(letter in letters or _long_name(letter, given) for letter in option[1:])


def _long_name(letter: str, given: list[str]) -> bool:
    name = _LONG_NAMES.get(letter)
    return name is not None and any(len(word) >= 5 and name.startswith(word) for word in given)
