"""The six classes of commands, and the class of a whole line: that of its least safe part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from surehand.shell.options import names

Class: TypeAlias = Literal["search", "read", "list", "silent", "write", "general"]

# From the safest to the least safe.
ORDER: tuple[Class, ...] = ("search", "read", "list", "silent", "write", "general")

NEUTRAL = names("echo printf test [ true false : cd pushd popd exit return break continue set read sleep wait")

_MEMBERS: dict[Class, frozenset[str]] = {
    "search": names("grep egrep fgrep zgrep rg ag ack find gfind fd fdfind locate which whereis look apropos"),
    "read": names(
        """cat tac head tail less more bat batcat wc jq yq sort uniq cut tr paste join comm fold fmt nl rev column
        sed gsed awk gawk mawk nawk diff cmp od hexdump hd xxd strings file base64 base32 md5sum sha1sum sha224sum
        sha256sum sha384sum sha512sum b2sum cksum shasum md5 sum zcat gzcat bzcat xzcat zstdcat iconv expand unexpand
        pr tsort shuf basename dirname realpath readlink seq date pwd expr bc factor numfmt printenv man help type
        readelf objdump nm size diffstat"""
    ),
    "list": names(
        """ls dir vdir exa eza tree du df ps stat lsblk lscpu lsof pgrep pidof pstree free uptime who w users id groups
        whoami uname hostname arch nproc getfacl lsattr zipinfo"""
    ),
    "silent": names(
        """mv cp rm mkdir rmdir touch chmod chown chgrp ln install unlink truncate mkfifo mktemp export unset"""
    ),
}
_CLASS_OF: dict[str, Class] = {name: kind for kind, members in _MEMBERS.items() for name in members}


# Programs that build, install or test: what they come to stands at the end of what they print.
_BUILDERS = names(
    """make gmake ninja cmake meson cargo go npm npx pnpm yarn bun mvn mvnw gradle gradlew ant sbt dotnet msbuild bazel
    pytest tox nox jest vitest mocha tsc gcc g++ cc c++ clang clang++ rustc javac rake bundle mix swift xcodebuild pip
    pip3 uv poetry docker podman terraform apt apt-get brew"""
)
ENDS_SHARE = 0.8
"""How much of what is shown of long output comes from its beginning, where the class of a command says nothing else."""


def head_share(kind: Class, commands: Iterable[str]) -> float:
    """Return how much of what is shown of a command's long output comes from its beginning, the rest from its end.

    The first hits of a search and the first lines of a list are the ones wanted; a build tells at its end what failed.
    """
    if kind in ("search", "list"):
        return 1.0
    builds = kind == "general" and any(name in _BUILDERS for name in commands)
    return 1 - ENDS_SHARE if builds else ENDS_SHARE


MEANINGS: dict[Class, str] = {
    "search": "searches",
    "read": "reads",
    "list": "lists",
    "silent": "changes files and prints nothing",
    "write": "writes files",
    "general": "runs a program",
}
"""What commands of a class do, for people; from the safest to the least safe."""


def class_of(name: str, read_only: bool, writes: bool) -> Class | None:
    """Return the class of one command, `None` for a neutral one.

    A search or read that its options turn into something else is no longer one: it writes, or nobody knows.
    """
    if name in NEUTRAL:
        return None
    kind = _CLASS_OF.get(name, "general")
    if read_only or kind not in ("search", "read", "list"):
        return kind
    return "write" if writes else "general"


def least_safe(kinds: list[Class]) -> Class:
    """Return the class of a line out of those of its parts; a line of neutral commands alone is general."""
    return max(kinds, key=ORDER.index) if kinds else "general"
