"""Is a git command a read? By the tables of `readonly_git.py`, its options before the subcommand included."""

from __future__ import annotations

from collections.abc import Sequence

from surehand.shell import options
from surehand.shell.options import Flags, names
from surehand.shell.readonly_git import FORMS, GLOBAL
from surehand.shell.readonly_git import READ_ONLY as GIT
from surehand.shell.verdict import Verdict, by_table
from surehand.shell.word import Word


def git(words: Sequence[Word]) -> Verdict:
    """Judge the words after `git`."""
    before = options.parse(words, options.flags(GLOBAL), permute=False)
    rest = list(words[before.used :])
    if before.unknown:
        return Verdict(f"`git {before.unknown[0].text}` before the subcommand is not known to only read")
    if not rest or not rest[0].literal:
        return Verdict("`git` without a literal subcommand", unreadable=bool(rest))
    if any(word.kind == "opaque" for word in words):
        return Verdict("a word of `git` is not literal", unreadable=True)
    folders = before.values("-C")
    if len(folders) > 1:
        return Verdict("`git` with several -C is not known to only read")
    verdict = _git_subcommand(rest[0].text, rest[1:])
    here = folders[0] if folders else Word(".")
    if not verdict.problem and before.used < len(words) and rest[0].text != "version":
        verdict.reads = (here, *(_below(here, word) for word in verdict.reads))
    return verdict


def _below(folder: Word, word: Word) -> Word:
    """Return a path as it is meant in the folder that `git -C` names."""
    if folder.text == "." or word.text.startswith("/"):
        return word
    return Word(f"{folder.text}/{word.text}", word.kind, f"{folder.text}/{word.fixed}")


# Subcommands that no alias of the repository can hide.
_GIT_BUILT_IN = {*GIT, *FORMS} | names(
    "add am checkout cherry-pick clean clone commit fetch init merge mv pull push rebase reset restore revert rm switch"
)


def _git_subcommand(name: str, words: list[Word]) -> Verdict:
    if len(words) == 1 and words[0].text in ("-h", "--help") and name in _GIT_BUILT_IN:
        return Verdict()
    if name == "diff" and any(word.literal and word.text == "--no-index" for word in words):
        name = "diff --no-index"  # its operands are files, wherever they lie
    if name in GIT:
        return by_table(f"git {name}", words, options.flags(GIT[name]))
    verdict = Verdict(f"`git {name}` is not a known read")
    for wanted, line in FORMS.get(name, ()):
        known = options.flags(line)
        rest = _asked(wanted, words, known)
        if rest is not None:
            verdict = by_table(f"git {name}", rest, known)
            if not verdict.problem:
                return verdict
    return verdict


def _asked(wanted: str, words: list[Word], known: Flags) -> list[Word] | None:
    """Return the words to judge when a form applies: after its first word, or all when it is an option.

    An option counts only where git takes it for one, not as the value of another or behind `--`.
    """
    if not wanted:
        return words
    choices = wanted.split("|")
    if choices[0].startswith("-"):
        return words if options.parse(words, known).has(*choices) else None
    return words[1:] if words and words[0].text in choices else None
