"""How a path is judged: rules on it, and what protects it by default (secrets, git's files, what lies outside)."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from surehand.core.effects import DeletePath, ReadPath, RunCommand, WritePath
from surehand.core.secrets import is_secret
from surehand.policy.floor import kept_output, own_state, path_floor, picks_by_pattern, removes_by_choice
from surehand.policy.hard_links import secret_beside
from surehand.policy.matching import Matching
from surehand.policy.paths import Place, below, folded
from surehand.policy.policy import JudgedEffect
from surehand.policy.rules import Kind, Rule, Verdict
from surehand.policy.tool_settings import denied_by_settings
from surehand.policy.weighing import Guard, by, weigh

if TYPE_CHECKING:
    from surehand.policy.policy import Request

PathEffect = ReadPath | WritePath | DeletePath

_LISTERS = frozenset({"ls", "dir", "vdir", "stat", "du", "readlink", "realpath"})
# Of git those that name files, and the options with which they tell more: what changed, or the object it is kept as.
_GIT_LISTERS = {
    "check-attr": "--source",
    "check-ignore": "--stdin",
    "ls-files": r"-\w*[sX]|--(?:stage|format|debug|exclude-from)",
    "status": r"-\w*v|--verb|--porcelain=v?2",
}
# Files of the system that tell what machine this is, and nothing of anybody.
_PUBLIC = re.compile(
    r"/proc/(?:cpuinfo|meminfo|version|loadavg|uptime|filesystems|swaps|partitions|stat|vmstat|diskstats|devices|modules|"
    r"interrupts|(?:self/)?(?:mounts|cgroup)|self/(?:status|limits|mountinfo)|sys/(?:kernel/(?:ostype|osrelease|version|"
    r"pid_max|threads-max|random/uuid)|fs/(?:file-max|file-nr|inotify/\w+)|vm/(?:swappiness|overcommit_memory|"
    r"max_map_count)))"
    r"|/etc/(?:os-release|lsb-release|\w+[-_](?:release|version)|issue(?:\.net)?|timezone|localtime|shells|services|"
    r"protocols|mime\.types|nsswitch\.conf|ld\.so\.conf)"
    r"|/usr/lib/os-release|/usr/share/(?:zoneinfo|dict)/[\w./+-]+"
    r"|/sys/fs/cgroup/(?:memory\.max|memory\.current|cpu\.max|pids\.max|cgroup\.controllers)"
    r"|/sys/devices/system/cpu/(?:online|present|possible)"
)
_OWN_PROCESS = re.compile(r"/proc/\d+/(mounts|cgroup|status|limits|mountinfo)")
_NEUTRAL = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def judge_path(rules: Matching, effect: PathEffect, command: RunCommand | None, cover: Rule | None) -> JudgedEffect:
    """Judge a read, write or removal; `command` implies it, `cover` is an allow rule that covers what lies inside."""
    request = rules.request
    place = rules.roots.place(effect.path)
    reads = isinstance(effect, ReadPath)
    if reason := _of_no_matter(effect, place, request):
        return JudgedEffect(effect, "allow", reason)
    kind: Kind = "read" if reads else "write"
    deep = effect.recursive and not reads
    deny = rules.forbidding(kind, "deny", place, deep)
    ask = rules.forbidding(kind, "ask", place, deep)
    allow = rules.allowing(kind, place)
    deletes = isinstance(effect, DeletePath)
    chosen = (
        command is not None
        and deep
        and (
            removes_by_choice(command, request.effects or (), deletes=deletes) or picks_by_pattern(command, effect.path)
        )
    )
    inside: tuple[Verdict, str] = ("allow", "inside the workspace")
    if not reads and request.mode != "accept-edits":
        inside = ("ask", f"it changes {place.given}")
    guard = _protection(
        rules, effect, place, lists=_lists(command), deny=_built_in(deny), ask=_built_in(ask), allow=allow
    )
    return weigh(
        request.mode,
        effect,
        floor=path_floor(effect, place, rules.roots, picked=chosen),
        deny=(*denied_by_settings(request, place, rules.pattern), *_own(deny)),
        ask=_own(ask),
        guard=guard,
        changes=not reads,
        allow=allow,
        covered=cover if place.inside else None,
        default=inside,
    )


def _of_no_matter(effect: PathEffect, place: Place, request: Request) -> str:
    """Say why a path needs no judgement: it is no file, or output that was kept to be read."""
    reads = isinstance(effect, ReadPath)
    neutral = place.given == "/dev/null" or (place.given in _NEUTRAL and not reads)
    if neutral and not isinstance(effect, DeletePath):
        return f"{place.given} is no file"
    if reads and not place.inside and below(place.real, kept_output(request.workspace)):
        return "it is the kept output of a command of this workspace"
    return ""


def _protection(
    rules: Matching,
    effect: PathEffect,
    place: Place,
    *,
    lists: bool,
    deny: tuple[Rule, ...],
    ask: tuple[Rule, ...],
    allow: tuple[Rule, ...],
) -> Guard | None:
    """Return what protects this path by default. A rule of the user's that spells the name out lifts a question.

    `lists` says that names and sizes are all that is read: a secret file may be seen to be there, like any other.
    `deny` and `ask` are the built-in rules.
    """
    if "\0" in place.given:
        return Guard("deny", "no path holds a NUL character")
    reads = isinstance(effect, ReadPath)
    meant = any(rules.spelled_out(rule, place) for rule in allow)
    exact = all(any(rules.points_at(rule, name) for rule in allow) for name in place.names)
    unread = lists and reads and place.inside
    if any(is_secret(folded(name)) for name in place.names) and not (unread and os.path.isfile(place.real)):
        if exact:
            return None
        if isinstance(effect, DeletePath):  # tells and changes nothing of what is in it
            return None if meant else Guard("ask", f"{place.given} holds secrets")
        rule = f"{'Read' if reads else 'Edit'}({rules.roots.spelled(place.given)})"
        reason = f"{place.given} holds secrets, going by its name; where it holds none, a user's rule {rule} allows it"
        return Guard("ask" if meant else "deny", reason)
    if reads and not unread and (other := secret_beside(place.real, rules.roots)):
        meant_otherwise = other == "?"
        reason = "has another name, which may be that of a secret" if meant_otherwise else f"is {other} by another name"
        return Guard("ask" if meant or meant_otherwise else "deny", f"{place.given} {reason}")
    if reads and any(own_state(name, rules.roots) for name in place.names):
        return Guard("deny", "Surehand's own state is out of reach")
    if reads and ".git" in place.components and not unread:
        return Guard("ask" if meant else "deny", "git's own files are read through git")
    if deny:
        return Guard("ask" if meant else "deny", by(deny[0]), deny)
    if ask and not meant:
        return Guard("ask", by(ask[0]), ask)
    if not reads and not meant and (ran := _trusted_with(rules, effect, place)):
        return Guard("ask", f"{ran} is part of what this folder was trusted with: it runs as the user")
    if place.inside or allow or (reads and public_file(place)):
        return None
    return Guard("ask", f"{place.real} is outside the workspace")


def public_file(place: Place) -> bool:
    """Tell whether a file is one of the system's that anybody may read; a link to it is no other file."""
    real = (
        _OWN_PROCESS.sub(r"/proc/self/\1", place.real)
        if place.given.startswith(("/proc/self/", "/proc/mounts"))
        else place.real
    )
    return _PUBLIC.fullmatch(real) is not None


def _trusted_with(rules: Matching, effect: PathEffect, place: Place) -> str:
    """Return what would be changed of the files that a trusted folder runs, or nothing."""
    from surehand.policy.trust import trusted_files

    files = trusted_files(rules.request.workspace)
    if place.real in files:
        return place.given
    return next((path for path in sorted(files) if below(path, place.real)), "") if effect.recursive else ""


def _lists(command: RunCommand | None) -> bool:
    """Tell whether a command shows names and sizes of files alone, and never what is in them."""
    if command is None or not command.read_only:
        return False
    program, *words = command.words
    if posixpath.basename(program) == "git":
        more = _GIT_LISTERS.get(words[0]) if words else None
        return more is not None and not any(re.match(more, word) for word in words)
    reads_a_list = any(word.startswith(("-X", "--exclude-from")) for word in words)  # `du -X` reads a file
    return posixpath.basename(program) in _LISTERS and not reads_a_list


def _own(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source != "built-in")


def _built_in(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.origin.source == "built-in")
