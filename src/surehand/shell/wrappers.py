"""Finds the command inside the words of a wrapper (`env`, `timeout`), and commands that options start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Parsed
from surehand.shell.word import Word

_ASSIGNMENT = lazy_pattern(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)


@frozen
class Wrapper:
    """How a wrapper reads its words: options, then assignments or `operands` words of its own, then the command.

    `alters` says why it is not a read even if its command is; empty for those that only time or prioritize.
    """

    flags: str
    operands: int = 0
    assigns: bool = False
    alters: str = ""
    adds_words: bool = False  # appends words to the command (`xargs`)
    as_script: str = ""  # the option whose value is a script ("-c"), or "*" if the words are joined to one
    directory: tuple[str, ...] = ()  # options that change the directory


class Unwrapped:
    """The command or script that a wrapper runs."""

    __slots__ = ("assigns", "directory", "problem", "script", "words")

    def __init__(
        self,
        words: tuple[Word, ...] = (),
        script: Word | None = None,
        assigns: tuple[tuple[str, Word], ...] = (),
        directory: Word | None = None,
        problem: str = "",
    ) -> None:
        self.words = words
        self.script = script
        self.assigns = assigns
        self.directory = directory
        self.problem = problem


def unwrap(name: str, wrapper: Wrapper, words: Sequence[Word]) -> Unwrapped:
    """Find the command in the words after the wrapper's name; unknown options are a `problem`."""
    given = list(words)
    if name == "env":
        given, problem = _split_strings(given)
        if problem:
            return Unwrapped(problem=problem)
    script, given = _script_option(wrapper, given)
    parsed = options.parse(given, options.flags(wrapper.flags), permute=False)
    if parsed.unknown:
        return Unwrapped(problem=f"`{name}` with the option {parsed.unknown[0].text!r} is not understood")
    inner = parsed.operands or given[parsed.used :]
    if script is not None and not wrapper.operands:
        return Unwrapped(script=script)
    found = _command(name, wrapper, parsed, inner)
    found.script = found.script or script  # ambiguous (`flock file curl -c jar`): both readings are judged
    return found


def _command(name: str, wrapper: Wrapper, parsed: Parsed, inner: list[Word]) -> Unwrapped:
    assigns: list[tuple[str, Word]] = []
    if name == "env" and inner and inner[0].text == "-":  # the same as `-i`
        inner = inner[1:]
    while wrapper.assigns and inner and (hit := _ASSIGNMENT.match(inner[0].text if inner[0].literal else "")):
        assigns.append((hit[1], Word(hit[2])))
        inner = inner[1:]
    own, inner = inner[: wrapper.operands], inner[wrapper.operands :]
    if any(not word.literal for word in own):
        return Unwrapped(problem=f"a word before the command of `{name}` is not literal")
    directory = next(iter(parsed.values(*wrapper.directory)), None) if wrapper.directory else None
    if wrapper.as_script == "*" and inner:
        if any(not word.literal for word in inner):
            return Unwrapped(problem=f"`{name}` joins words that are not literal into a script")
        return Unwrapped(script=Word(" ".join(word.text for word in inner)))
    return Unwrapped(tuple(inner), assigns=tuple(assigns), directory=directory)


def _script_option(wrapper: Wrapper, words: list[Word]) -> tuple[Word | None, list[Word]]:
    """Separate `-c SCRIPT` from the other words."""
    if wrapper.as_script not in ("-c",):
        return None, words
    for index, word in enumerate(words):
        if re.fullmatch(r"-[A-Za-z]*c|--command", word.text) and index + 1 < len(words):
            return words[index + 1], words[:index] + words[index + 2 :]
        if word.text.startswith("--command="):
            return Word(word.text.partition("=")[2], word.kind), words[:index] + words[index + 1 :]
        if word.text.startswith("-c"):
            return Word(word.text[2:], word.kind), words[:index] + words[index + 1 :]
    return None, words


def _split_strings(words: list[Word]) -> tuple[list[Word], str]:
    """Split the string of `env -S 'a b'` if it is plain words; quotes and expansions in it are a problem."""
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            break
        text = _split_string_of(word, words[index + 1 : index + 2])
        if text is None:
            continue
        value, used = text
        if not value.literal or re.search(r"[\\'\"$#]", value.text):
            return words, "`env -S` with quotes or expansions is not understood"
        made = [Word(part) for part in value.text.split()]
        return words[:index] + made + words[index + used :], ""
    return words, ""


def _split_string_of(word: Word, following: list[Word]) -> tuple[Word, int] | None:
    if word.text.startswith("--split-string="):
        return Word(word.text.partition("=")[2], word.kind), 1
    if word.text.startswith("--s") and "--split-string".startswith(word.text) and following:
        return following[0], 2
    letters = word.text[1:].partition("S")
    if word.text.startswith("--") or not letters[1] or letters[0].strip("iv0"):
        return None
    if letters[2]:
        return Word(letters[2], word.kind), 1
    return (following[0], 2) if following else None


# Finders of started commands: in options whose value is a command line, and in the words of runners. Each command is
# judged separately.


@frozen
class Started:
    """A command that another one starts: its words, or a script.

    For `{}` in it: `below` are the directories of its paths, `picks_link` selects the links it may stand for, `many`
    says that it becomes several paths, `bare` that a path may come without its directory and so begin with a dash.
    `if_known` marks words that may not be a command: judged only if the first is a program with `run_by_others`.
    """

    words: tuple[Word, ...] = ()
    script: Word | None = None
    below: tuple[str, ...] = ()
    picks_link: Callable[[str], bool] = bool
    many: bool = False
    bare: bool = False
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


def runner(*subcommands: str) -> Starts:
    """Return a finder for programs that run their first operand as a command, after a subcommand if given.

    A word after an option may be its value or the command: both readings are judged.
    """

    def find(words: Sequence[Word]) -> Iterator[Started]:
        start = next((at + 1 for at, word in enumerate(words) if word.text in subcommands), None) if subcommands else 0
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
    """Return the value in `--option=value`."""
    return Word(word.text.partition("=")[2], word.kind)
