"""Reads of archives, compressed files and object files: programs that also unpack, and take options from files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.shell import options
from surehand.shell.readonly_table import READ_ONLY
from surehand.shell.verdict import Check, Verdict, by_table
from surehand.shell.word import Word

_TAR_LIST = re.compile(r"-?[tvzjJa]*t[tvzjJa]*f?")


def _tar(words: Sequence[Word]) -> Verdict:
    if not words or any(word.kind == "opaque" for word in words):
        return Verdict("`tar` is not known to only read")
    first = words[0].text
    rest = list(words[1:])
    if first == "--list":
        first = "-t"
    if not _TAR_LIST.fullmatch(first):
        return Verdict("`tar` that does not list is no read")
    if not first.endswith("f") and rest and rest[0].text in ("-f", "--file"):
        rest = rest[1:]
    elif rest and rest[0].literal and rest[0].text.startswith("--file="):
        rest[0] = Word(rest[0].text.partition("=")[2])
    if any(word.may_be_flag for word in rest):
        return Verdict("`tar` with these options is not known to only read")
    if rest and ":" in rest[0].text:
        return Verdict("`tar` takes a name with a colon for one on another host")
    return Verdict(reads=tuple(rest[:1]))


def _compressor(name: str, line: str) -> Check:
    """Return a check for a program that lists and tests too; where two modes are given, the last one counts."""
    known = options.flags(line)

    def check(words: Sequence[Word]) -> Verdict:
        parsed = options.parse(words, known)
        prints = parsed.has("-c", "--stdout")
        looks = parsed.has("-l", "-t", "--list", "--test") and not parsed.has("-d", "--decompress")
        if not prints and not looks:
            return Verdict(f"`{name}` writes a file beside the one it reads")
        return by_table(name, words, known)

    return check


def _object_file(name: str) -> Check:
    """Return a check for a program that takes options out of a file named `@file`, among them plug-ins to load."""

    def check(words: Sequence[Word]) -> Verdict:
        if any(word.text.startswith("@") for word in words):
            return Verdict(f"`{name} @file` takes its options from a file")
        return by_table(name, words, options.flags(READ_ONLY[name]))

    return check


_STREAMED = "-ltcdvqkf --list --test --stdout --decompress --verbose --quiet --keep @read"
ARCHIVE_CHECKS: dict[str, Check] = {
    "tar": _tar,
    "gtar": _tar,
    **{name: _compressor(name, _STREAMED) for name in ("gzip", "gunzip", "xz", "unxz", "bzip2", "bunzip2", "zstd")},
    **{name: _object_file(name) for name in ("nm", "size", "strings", "objdump", "readelf")},
}
