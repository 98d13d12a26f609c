"""Touches: the files that a command reads, writes or deletes, and the hosts it connects to, by its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Parsed
from surehand.shell.word import Word

TouchKind: TypeAlias = Literal["read", "write", "delete", "connect"]


@frozen
class Touch:
    """A path or host (`connect`) that a command touches."""

    kind: TouchKind
    word: Word
    recursive: bool = False
    if_there: bool = False  # counts only if such a file exists
    follows: bool = False  # links below it are followed


Touches: TypeAlias = Callable[[Sequence[Word]], Iterator[Touch]]


def parse_leniently(words: Sequence[Word], line: str) -> Parsed:
    """Parse leniently: unknown options count as having no value, abbreviated ones as all they may stand for."""
    known = options.flags(line)
    parsed = options.parse(words, known)
    for word in parsed.unknown:
        name, _, value = word.text.partition("=")
        full = [option for option in known.long if word.text.startswith("--") and option.startswith(name)]
        parsed.options += [(option, Word(value, word.kind)) for option in full]
        if not word.text.startswith("--") and word.literal:
            parsed.options += [("-" + letter, None) for letter in word.text[1:]]
    return parsed


def _recursive(parsed: Parsed) -> bool:
    return parsed.has("-r", "-R", "-a", "--recursive", "--archive")


def _each(kind: TouchKind, words: Sequence[Word], recursive: bool = False) -> Iterator[Touch]:
    return (Touch(kind, word, recursive) for word in words)


def _delete(parsed: Parsed) -> Iterator[Touch]:
    return _each("delete", parsed.operands, _recursive(parsed))


def _write(parsed: Parsed) -> Iterator[Touch]:
    yield from _each("read", parsed.values("-r", "--reference"))
    yield from _each("write", parsed.operands)


def _first(parsed: Parsed) -> Iterator[Touch]:
    return _each("write", parsed.operands[:1])


def _mode(parsed: Parsed) -> Iterator[Touch]:
    files = parsed.operands if parsed.has("--reference") else parsed.operands[1:]
    return _each("write", files, _recursive(parsed))


def _read(parsed: Parsed) -> Iterator[Touch]:
    return _each("read", parsed.operands)


def _device(parsed: Parsed) -> Iterator[Touch]:
    return _each("write", [word for word in parsed.operands if word.text.startswith("/")])


def _destination(parsed: Parsed) -> tuple[list[Word], Word | None]:
    target = next(iter(parsed.values("-t", "--target-directory")), None)
    if target is not None:
        return parsed.operands, Word(target.text.rstrip("/") + "/", target.kind)
    if len(parsed.operands) < 2:
        return parsed.operands, None
    last = parsed.operands[-1]
    if len(parsed.operands) > 2 and last.literal:
        last = Word(last.text.rstrip("/") + "/")
    return parsed.operands[:-1], last


def _into(sources: list[Word], target: Word | None, recursive: bool) -> Iterator[Touch]:
    """Yield writes of files put at or into a target: both, if only the disk could tell whether it is a directory."""
    if target is None:
        return
    directory = target.text.endswith("/") or target.text in (".", "..")
    if not directory:
        yield Touch("write", target, recursive)
    for source in sources:
        name = source.text.rstrip("/").rpartition("/")[2]
        if target.literal and source.literal and name not in ("", ".", ".."):
            yield Touch("write", Word(target.text.rstrip("/") + "/" + name), recursive)
        elif directory:
            yield Touch("write", target)


def _copy(parsed: Parsed) -> Iterator[Touch]:
    sources, target = _destination(parsed)
    if parsed.has("-d") and target is not None and not parsed.has("-D"):
        yield from _write(parsed)
        return
    yield from _each("read", sources, _recursive(parsed))
    yield from _into(sources, target, _recursive(parsed))


def _move(parsed: Parsed) -> Iterator[Touch]:
    sources, target = _destination(parsed)
    for word in sources:
        yield Touch("read", word, True)
        yield Touch("delete", word, True)
    yield from _into(sources, target, True)


def _link(parsed: Parsed) -> Iterator[Touch]:
    sources, target = _destination(parsed)
    yield from _each("read", sources)
    if target is None and sources:
        target = Word("./")
    yield from _into(sources, target, False)


def _patch(parsed: Parsed) -> Iterator[Touch]:
    yield from _each("read", parsed.values("-i", "--input"))
    yield from _each("write", [*parsed.values("-o", "--output"), *parsed.operands[:1]])


def _through(parsed: Parsed) -> Iterator[Touch]:
    yield from _each("read", parsed.operands[:1])
    yield from _each("write", parsed.operands[1:2])


def _compress(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands:
        yield Touch("read", word)
        if not parsed.has("-c", "-l", "-t", "--stdout"):
            yield Touch("write", word, _recursive(parsed))
    yield from _each("write", parsed.values("-o"))


def _archive(parsed: Parsed) -> Iterator[Touch]:
    yield from _each("write", parsed.operands[:1])
    yield from _each("read", parsed.operands[1:], True)


def _extract(parsed: Parsed) -> Iterator[Touch]:
    yield from _each("read", parsed.operands[:1])
    if not parsed.has("-l", "-t", "-p", "-Z", "-v"):
        yield Touch("write", next(iter(parsed.values("-d")), Word(".")))


REMOTE = lazy_pattern(r"(?:[^/:@]+@)?(\[[^\]]+\]|[^/:@]+):(?!//).*|(?:rsync|ssh|scp)://.*")


def _sync(parsed: Parsed) -> Iterator[Touch]:
    deletes = any(word.text.startswith("--del") for word in parsed.unknown)
    for index, word in enumerate(parsed.operands):
        last = index == len(parsed.operands) - 1 and index > 0
        if word.literal and REMOTE.fullmatch(word.text):
            yield Touch("connect", word)
        elif last:
            yield Touch("write", word, True)
            if deletes:
                yield Touch("delete", word, True)
        else:
            yield Touch("read", word, True)


def _host(parsed: Parsed) -> Iterator[Touch]:
    return _each("connect", [word for word in parsed.operands[:1] if not word.text.isdigit()])


_PLANS: dict[str, Callable[[Parsed], Iterator[Touch]]] = {
    "delete": _delete, "write": _write, "first": _first, "mode": _mode, "read": _read, "device": _device,
    "copy": _copy, "move": _move, "link": _link, "patch": _patch, "through": _through, "compress": _compress,
    "archive": _archive, "extract": _extract, "sync": _sync, "host": _host,
}  # fmt: skip


@frozen
class Operands:
    """What a command touches, by a plan for its operands (`delete`: each is deleted).

    Options are listed only to tell values from operands; one that is not listed counts as having no value.
    """

    plan: str
    options: str = ""

    def __call__(self, words: Sequence[Word]) -> Iterator[Touch]:
        """Yield what these words touch."""
        return _PLANS[self.plan](parse_leniently(words, self.options))
