"""Builtins of bash that run text as code or change what later words mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surehand.shell.options import names
from surehand.shell.word import Word

NEVER_READABLE: dict[str, str] = {
    "eval": "runs its words as code",
    "source": "runs a file in the shell",
    ".": "runs a file in the shell",
    "trap": "runs text later",
    "enable": "changes or loads builtins",
    "hash": "can rebind a command",
    "alias": "changes what later words mean",
    "unalias": "changes what later words mean",
    "shopt": "changes how the shell reads",
    "bind": "runs text on a key",
    "complete": "runs text on completion",
    "compgen": "can run commands",
    "compopt": "changes completion",
    "fc": "runs commands again",
    "history": "changes the history",
    "let": "evaluates its words as code",
    "mapfile": "can run text for each line",
    "readarray": "can run text for each line",
    "getopts": "assigns variables",
    "parallel": "makes command lines out of its input",
    "sem": "makes command lines out of its input",
}
CHANGES_NAMES = names("read unset export declare typeset local readonly printf mapfile readarray getopts")


def runs_text(name: str, words: Sequence[Word]) -> Word | None:
    """Return the text that `eval`, `trap` or `parallel` runs as a script."""
    given = list(words)
    while given and given[0].text.startswith("-"):
        given = given[1:]
    if name == "trap":
        return given[0] if given else None
    if name in ("eval", "parallel", "sem"):
        end = next((at for at, word in enumerate(given) if word.text.startswith(":::")), len(given))
        kind = "literal" if all(word.literal for word in given[:end]) else "opaque"
        return Word(" ".join(word.text for word in given[:end]), kind)
    return None


def names_changed(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Yield the variables a builtin assigns or unsets (more names than it really changes do no harm)."""
    for word in words:
        if not word.text.startswith("-"):
            yield word.text.partition("=")[0].partition("[")[0]
    if name == "read":
        yield "REPLY"
