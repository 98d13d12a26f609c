"""From the words of a command to what it does: files read, written and deleted, hosts reached.

Words are turned into *touches* first (a kind and a word); `located` then makes paths of them in every directory the
command may run in. A path that cannot be known is `Unreadable`, never left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.effects import Connect, DeletePath, Effect, ReadPath, Unreadable, WritePath
from holdfast.host.shell import globs, options
from holdfast.host.shell.effects_table import CURL, PLANS, WGET
from holdfast.host.shell.options import Parsed, names
from holdfast.host.shell.programs import find_roots
from holdfast.host.shell.scope import Places
from holdfast.host.shell.word import Word

TouchKind: TypeAlias = Literal["read", "write", "delete", "connect"]
_MAKERS: dict[str, Callable[[str, bool], Effect]] = {"read": ReadPath, "write": WritePath, "delete": DeletePath}

# Descriptors and sinks: writing to them leaves nothing behind, reading from them is reading what is at hand.
STREAMS = re.compile(r"/dev/(?:null|stdin|stdout|stderr|fd/\d+|zero|full|random|urandom)|/proc/self/fd/\d+")


@dataclass(frozen=True, slots=True)
class Touch:
    """Something the words of a command reach: a path, or a host (`connect`)."""

    kind: TouchKind
    word: Word
    recursive: bool = False


Plan: TypeAlias = Callable[[Parsed], Iterator[Touch]]


def touches(name: str, words: Sequence[Word]) -> Iterator[Touch]:
    """Yield what the command with this name does to files and hosts, as far as its words tell."""
    special = SPECIAL.get(name)
    if special is not None:
        yield from special(words)
        return
    plan, line = PLANS.get(name, ("", "")) if not name.startswith("mkfs.") else PLANS["mkfs"]
    if plan:
        yield from _PLANNED[plan](_loosely(words, line))


def located(touch: Touch, places: Places) -> Iterator[Effect]:
    """Yield the effects of one touch in each directory the command may run in."""
    word = touch.word
    if touch.kind == "connect":
        yield from _connection(word)
        return
    if word.kind == "opaque":
        yield Unreadable(f"a path is not literal: {word.text}")
        return
    make = _MAKERS[touch.kind]
    for place in places if not word.text.startswith("/") else places[:1]:
        if place is None and not (word.path or word.text).startswith("/"):
            yield Unreadable(f"the directory that {word.text!r} is relative to is not known")
            continue
        for path, below in _paths(word, place or "/", touch):
            if not STREAMS.fullmatch(path):
                yield make(path, touch.recursive or below)


def _paths(word: Word, place: str, touch: Touch) -> Iterator[tuple[str, bool]]:
    text = word.path or word.text
    if word.literal:
        yield os.path.join(place, text) if text not in (".", "") else place, False
        return
    if text.endswith("/**"):
        yield os.path.join(place, text[:-3]) if text != "./**" else place, True
        return
    yield from globs.matches(place, text, everything=touch.kind == "delete" and touch.recursive)


def _connection(word: Word) -> Iterator[Effect]:
    if word.kind != "literal":
        yield Unreadable(f"a host is not literal: {word.text}")
        return
    host, port, url = host_of(word.text)
    if host:
        yield Connect(host, port, url)


def host_of(text: str) -> tuple[str, int | None, str]:
    """Return host, port and URL of `https://host:8/x`, `user@host`, `host:path` or `host`."""
    scheme, found, rest = text.partition("://")
    url = text if found and scheme.lower() in ("http", "https") else ""
    rest = rest if found else text
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2]
    bracketed = re.match(r"\[([^\]]+)\](?::(\d+))?", authority)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    else:
        host, _, port = authority.partition(":")
    return host.lower().rstrip("."), int(port) if port and port.isdigit() else None, url


def _loosely(words: Sequence[Word], line: str) -> Parsed:
    """Tell options from operands where unknown options count as having no value."""
    known = options.flags(line)
    parsed = options.parse(words, known)
    for word in parsed.unknown:
        name, _, value = word.text.partition("=")
        full = [option for option in known.long if word.text.startswith("--") and option.startswith(name)]
        parsed.options += [(option, Word(value, word.kind)) for option in full]
        if not word.text.startswith("--") and word.literal:
            parsed.options += [("-" + letter, None) for letter in word.text[1:]]
        elif not word.literal:
            parsed.operands.append(word)
    return parsed


def _recursive(parsed: Parsed) -> bool:
    return parsed.has("-r", "-R", "-a", "--recursive", "--archive")


def _delete(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands:
        yield Touch("delete", word, _recursive(parsed))


def _write(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.values("-r", "--reference"):
        yield Touch("read", word)
    for word in parsed.operands:
        yield Touch("write", word)


def _first(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands[:1]:
        yield Touch("write", word)


def _mode(parsed: Parsed) -> Iterator[Touch]:
    files = parsed.operands if parsed.has("--reference") else parsed.operands[1:]
    for word in files:
        yield Touch("write", word, _recursive(parsed))


def _read(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands:
        yield Touch("read", word)


def _device(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands:
        if word.text.startswith("/"):
            yield Touch("write", word)


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
    """Yield the writes of files put at or into a target: both readings where only the disk could tell."""
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
    for word in sources:
        yield Touch("read", word, _recursive(parsed))
    yield from _into(sources, target, _recursive(parsed))


def _move(parsed: Parsed) -> Iterator[Touch]:
    sources, target = _destination(parsed)
    for word in sources:
        yield Touch("read", word, True)
        yield Touch("delete", word, True)
    yield from _into(sources, target, True)


def _link(parsed: Parsed) -> Iterator[Touch]:
    sources, target = _destination(parsed)
    for word in sources:
        yield Touch("read", word)
    if target is None and sources:
        target = Word("./")
    yield from _into(sources, target, False)


def _patch(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.values("-i", "--input"):
        yield Touch("read", word)
    for word in [*parsed.values("-o", "--output"), *parsed.operands[:1]]:
        yield Touch("write", word)


def _prefix(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands[:1]:
        yield Touch("read", word)
    for word in parsed.operands[1:2]:
        yield Touch("write", word)


def _compress(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands:
        yield Touch("read", word)
        if not parsed.has("-c", "-l", "-t", "--stdout"):
            yield Touch("write", word, _recursive(parsed))
    for word in parsed.values("-o"):
        yield Touch("write", word)


def _archive(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands[:1]:
        yield Touch("write", word)
    for word in parsed.operands[1:]:
        yield Touch("read", word, True)


def _extract(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands[:1]:
        yield Touch("read", word)
    if not parsed.has("-l", "-t", "-p", "-Z", "-v"):
        yield Touch("write", next(iter(parsed.values("-d")), Word(".")))


_REMOTE = re.compile(r"(?:[^/:@]+@)?(\[[^\]]+\]|[^/:@]+):(?!//).*|(?:rsync|ssh|scp)://.*")


def _sync(parsed: Parsed) -> Iterator[Touch]:
    deletes = any(name.startswith("--del") for name, _ in parsed.options)
    for index, word in enumerate(parsed.operands):
        last = index == len(parsed.operands) - 1 and index > 0
        if word.literal and _REMOTE.fullmatch(word.text):
            yield Touch("connect", word)
        elif last:
            yield Touch("write", word, True)
            if deletes:
                yield Touch("delete", word, True)
        else:
            yield Touch("read", word, True)


def _host(parsed: Parsed) -> Iterator[Touch]:
    for word in parsed.operands[:1]:
        if not word.text.isdigit():
            yield Touch("connect", word)


_PLANNED: dict[str, Plan] = {
    "delete": _delete, "write": _write, "first": _first, "mode": _mode, "read": _read, "device": _device,
    "copy": _copy, "move": _move, "link": _link, "patch": _patch, "prefix": _prefix, "compress": _compress,
    "archive": _archive, "extract": _extract, "sync": _sync, "host": _host,
}  # fmt: skip

# Commands with a way of their own


def _dd(words: Sequence[Word]) -> Iterator[Touch]:
    for word in words:
        key, _, value = word.text.partition("=")
        if key in ("if", "of"):
            yield Touch("read" if key == "if" else "write", Word(value, word.kind))


def _find(words: Sequence[Word]) -> Iterator[Touch]:
    roots = find_roots(words)
    tested = any(word.text.startswith("-") and word.text not in ("-delete", "-depth", "-print") for word in words)
    deletes = any(word.text == "-delete" for word in words)
    for root in roots:
        yield Touch("read", root, True)
        if deletes:
            yield Touch("write", root, False) if tested else Touch("delete", root, True)
    for option, value in zip(words, words[1:], strict=False):
        if option.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield Touch("write", value)
        elif option.text in ("-newer", "-samefile", "-files0-from"):
            yield Touch("read", value)


def _sed(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = _loosely(
        words, "-nrEsuzi? -e: -f:r -l: --expression: --file:r --in-place? --quiet --silent --line-length:"
    )
    files = parsed.operands if parsed.has("-e", "--expression", "-f", "--file") else parsed.operands[1:]
    for word in [*parsed.read, *files]:
        yield Touch("read", word)
        if parsed.has("-i", "--in-place"):
            yield Touch("write", word)
    scripts = parsed.values("-e", "--expression") or parsed.operands[:1]
    for script in scripts:
        for hit in re.finditer(r"(?:^|[;{\n/$\d!gpI\s])w\s+([^\n;}]+)", script.text):
            yield Touch("write", Word(hit[1].strip(), script.kind))
        for hit in re.finditer(r"(?:^|[;{\n/$\d])[rR]\s+([^\n;}]+)", script.text):
            yield Touch("read", Word(hit[1].strip(), script.kind))


def _sort(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = _loosely(
        words, "-bdfghiMnRrVcCmsuz -k: -t: -S: -T: -o: --key: --field-separator: --output: --files0-from:r"
    )
    for word in [*parsed.operands, *parsed.read]:
        yield Touch("read", word)
    for word in parsed.values("-o", "--output"):
        yield Touch("write", word)


def _second(line: str) -> Callable[[Sequence[Word]], Iterator[Touch]]:
    """Return the plan of a filter whose second operand is its output."""

    def plan(words: Sequence[Word]) -> Iterator[Touch]:
        operands = _loosely(words, line).operands
        for kind, word in zip(("read", "write"), operands, strict=False):
            yield Touch("read" if kind == "read" else "write", word)

    return plan


def _tar(words: Sequence[Word]) -> Iterator[Touch]:
    given = list(words)
    if given and not given[0].text.startswith("-") and given[0].literal:
        given[0] = Word("-" + given[0].text)
    parsed = _loosely(
        given,
        "-cxtruAdvzjJaphPkmOSWwlZ -f: -C: -T: -X: -I: -b: -g: -K: -N: -V: --file: --directory: --files-from: "
        "--exclude-from: --exclude: --strip-components: --transform: --checkpoint? --checkpoint-action? --create "
        "--extract --get --list --to-command: --use-compress-program: --index-file:",
    )
    target = next(iter(parsed.values("-C", "--directory")), None)
    archive = parsed.values("-f", "--file")
    if parsed.has("-x", "--extract", "--get"):
        yield Touch("write", target or Word("."))
    creates = parsed.has("-c", "-r", "-u", "-A", "--create")
    for word in archive:
        if word.text != "-":
            yield Touch("write" if creates else "read", word)
    for word in parsed.operands if creates else ():
        path = word if target is None or word.text.startswith("/") else Word(target.text + "/" + word.text, word.kind)
        yield Touch("read", path, True)
    for word in parsed.values("--index-file"):
        yield Touch("write", word)


def _curl(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = _loosely(words, CURL)
    for word in [*parsed.operands, *parsed.values("--url")]:
        yield Touch("connect", word)
        if parsed.has("-O", "--remote-name", "-J"):
            yield Touch("write", Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or ".", word.kind))
    for word in parsed.values(
        "-o", "--output", "-c", "--cookie-jar", "-D", "--dump-header", "--trace", "--trace-ascii"
    ):
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("-T", "--upload-file", "-K", "--config"):
        if word.text != "-":
            yield Touch("read", word)
    sent = ("-d", "--data", "--data-ascii", "--data-binary", "--data-urlencode", "--json", "-F", "--form", "-H", "-b")
    for word in parsed.values(*sent):
        hit = re.match(r"(?:[^=@]*=)?[@<]([^;]+)", word.text)
        if hit and hit[1] != "-":
            yield Touch("read", Word(hit[1], word.kind))
    for word in parsed.values("-x", "--proxy", "--preproxy", "--socks5", "--doh-url"):
        yield Touch("connect", word)


def _wget(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = _loosely(words, WGET)
    out = parsed.values("-O", "--output-document")
    folder = next(iter(parsed.values("-P", "--directory-prefix")), None)
    for word in parsed.operands:
        yield Touch("connect", word)
        if not out:
            yield Touch(
                "write", folder or Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or "index.html", word.kind)
            )
    for word in [*out, *parsed.values("-o", "-a", "--output-file", "--save-cookies")]:
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("--post-file", "--body-file", "-i", "--input-file", "--load-cookies"):
        yield Touch("read", word)


_GIT_PATHS: dict[str, TouchKind] = {"rm": "delete", "mv": "write", "restore": "write", "clean": "delete", "add": "read"}
_GIT_REMOTE = names("clone push pull fetch ls-remote remote submodule")


def _git(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = _loosely(
        words, "-C: -c: --git-dir:r --work-tree: -m: --message: -o: --output: --output-directory: -F:r --file:r"
    )
    for word in [*parsed.read, *parsed.values("-C")]:
        yield Touch("read", word)
    for word in [*parsed.values("-o", "--output", "--output-directory")]:
        yield Touch("write", word)
    if not parsed.operands:
        return
    name, rest = parsed.operands[0].text, parsed.operands[1:]
    if name in _GIT_PATHS:
        for word in rest:
            yield Touch(_GIT_PATHS[name], word, parsed.has("-r"))
    for word in rest if name in _GIT_REMOTE else ():
        if "://" in word.text or _REMOTE.fullmatch(word.text):
            yield Touch("connect", word)
    if name == "clone" and len(rest) > 1:
        yield Touch("write", rest[1])


def _tests(words: Sequence[Word]) -> Iterator[Touch]:
    return iter(())


SPECIAL: dict[str, Callable[[Sequence[Word]], Iterator[Touch]]] = {
    "dd": _dd,
    "find": _find,
    "gfind": _find,
    "sed": _sed,
    "gsed": _sed,
    "sort": _sort,
    "uniq": _second("-cdDiuz -f: -s: -w: --skip-fields: --skip-chars: --check-chars:"),
    "xxd": _second("-abeEipurC -c: -g: -l: -n: -o: -s: -R:"),
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    "curl": _curl,
    "wget": _wget,
    "git": _git,
    "test": _tests,
    "[": _tests,
}


def guessed(words: Sequence[Word]) -> Iterator[Touch]:
    """Yield reads of the words that look like paths, for a program nobody knows."""
    for word in words:
        text = word.text.partition("=")[2] if word.text.startswith("--") and "=" in word.text else word.text
        if word.literal and _PATH_LIKE.match(text) and "\n" not in text:
            yield Touch("read", Word(text))


_PATH_LIKE = re.compile(r"(?:\.{0,2}/|\.[A-Za-z])[^\s:;|&<>(){}'\"$*]*$|[\w.-]+/[^\s:;|&<>(){}'\"$*]*$")
