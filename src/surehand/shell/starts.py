"""What starts another command: options whose value is a command line, and runners that are given one.

Each command is judged as the one it is. A script given as one word (`sh -c` style) is told apart from a list of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from surehand.core.frozen import frozen
from surehand.shell.word import Word


@frozen
class Started:
    """A command another one starts: its words, or a script. `below` names the directories its `{}` lies in,
    `picks_link` tells which links there it may stand for, and `many` whether it stands for several paths at once.

    `if_known` for words that may be no command at all: judged where the first is the name of a program that others run.
    """

    words: tuple[Word, ...] = ()
    script: Word | None = None
    below: tuple[str, ...] = ()
    picks_link: Callable[[str], bool] = bool
    many: bool = False
    if_known: bool = False


Starts: TypeAlias = Callable[[Sequence[Word]], Iterator[Started]]


def scripts(*wanted: str) -> Starts:
    """Return a finder for options whose value is a command line (`-e ssh`, `--pre=cmd`, `-I zstd`)."""

    def find(words: Sequence[Word]) -> Iterator[Started]:
        for index, word in enumerate(words):
            for option in wanted:
                if word.text == option and index + 1 < len(words):
                    yield Started(script=words[index + 1])
                elif len(option) > 2 and word.text.startswith(option + "="):
                    yield Started(script=value_of(word))
                elif len(option) == 2 and word.text.startswith(option) and len(word.text) > 2:
                    yield Started(script=Word(word.text[2:], word.kind))

    return find


def runner(*deeds: str) -> Starts:
    """Return a finder for programs that run the first word that is no option, after one of `deeds` if they have such.

    An option may have a value, so that the word after it is either: each is judged as the command it would be.
    """

    def find(words: Sequence[Word]) -> Iterator[Started]:
        start = next((at + 1 for at, word in enumerate(words) if word.text in deeds), None) if deeds else 0
        before = ""
        for at in range(start, len(words)) if start is not None else ():
            text = words[at].text
            if not text.startswith("-") or not words[at].literal:
                yield Started(tuple(words[at:]), if_known=True)
                if not before.startswith("-") or before == "--":
                    return
            before = text

    return find


def value_of(word: Word) -> Word:
    """Return what follows the equals sign of `--option=value`."""
    return Word(word.text.partition("=")[2], word.kind)
