"""Denials of the sandbox, recognised in the output of a failed command, and the settings that would lift them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from surehand.core.text import lazy_pattern
from surehand.files.protected_paths import inside
from surehand.sandbox.profile import SandboxProfile

_QUOTED: Final = lazy_pattern(r"['\"‘“`]([^'\"’”`]+)['\"’”`]")
# Compiled on first use: most commands meet no denial.
_READ_ONLY: Final = r"Read-only file system|EROFS"
_IN_PLACE: Final = r"Invalid cross-device link|EXDEV|Device or resource busy|EBUSY"
_DENIED: Final = r"Permission denied|EACCES"
_MISSING: Final = r"No such file or directory|ENOENT|can't open file|cannot access"
_NETWORK: Final = (
    r"(?i)Network is unreachable|ENETUNREACH|Temporary failure in name resolution|Could not resolve|EAI_AGAIN"
    r"|Name or service not known|getaddrinfo (?:failed|ENOTFOUND)|Address family not supported by protocol"
    r"|unable to resolve host|Failed to resolve|NameResolutionError|\bENOTFOUND\b|EHOSTUNREACH|no such host"
    r"|Failed to connect to|Unable to connect|Connection (?:timed out|error)|ConnectTimeout|error sending request"
    r"|No matching distribution found for|No route to host"
    r"|dial (?:tcp|udp)[^\n]*(?:unreachable|misbehaving|no such host|refused)"
)
_PRIVILEGES: Final = r"no new privileges|effective uid is not 0|must be setuid|setuid: Operation not perm"
_DAEMON: Final = r"Cannot connect to the Docker daemon|docker\.sock|Failed to connect to bus"
_FORBIDDEN: Final = (
    r"(?<![\w/.-])(?:u?mount|unshare|chroot|setns|bpf|ptrace|perf_event\w*|user namespaces?)(?![\w/.-])"
    r"[^\n]*(?:not permitted|denied)"
)
_MEMORY: Final = r"(?i)Cannot allocate memory|MemoryError|std::bad_alloc|out of memory|ENOMEM"
_PROCESSES: Final = r"fork: (?:retry: )?Resource temporarily unavailable|Cannot fork|can't start new thread"
_SIZE: Final = r"File (?:size limit exceeded|too large)|EFBIG"


_GIT: Final = (
    "The sandbox keeps .git/hooks, .git/config and .git/info as they are: what is in them runs as you. A setting for "
    "one command goes on its line (git -c user.name=... commit); the rest you change yourself, outside Surehand."
)


def explain(text: str, profile: SandboxProfile, exit_code: int) -> str:
    """Return which restriction the command seems to have hit, and the setting that lifts it; empty if none."""
    if not profile.contained:
        return ""
    for pattern, say in _TABLE:
        if (found := re.search(pattern, text)) and (said := say(found, profile)):
            return said
    return _too_large(None, profile) if exit_code == 128 + 25 else ""


def _path(found: re.Match[str]) -> str:
    """Return the path a message is about: the last one quoted in its line, else the word before the error."""
    text = found.string
    begin = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    if quoted := _QUOTED.findall(text[begin : end if end >= 0 else None]):
        return quoted[-1].strip()
    words = text[begin : found.start()].rstrip(": ").rpartition(": ")[2].split()
    return words[-1] if words else ""


def _read_only(found: re.Match[str], profile: SandboxProfile) -> str:
    path = _path(found)
    if "/.git/" in f"/{path}" and _lies_in(path, profile):
        return _GIT
    if "/.git/" in path:
        repository = path.partition("/.git/")[0]
        return (
            f"The repository {repository} lies around the workspace, where commands cannot write, git's own included. "
            "Start Surehand there, or ask the user to run it."
        )
    if kept := _find_read_only(path, profile):
        return (
            f"{kept} stays as it is: a rule denies writing it, or it is of Surehand's own. "
            "Leave it, or ask the user to change it or the rule."
        )
    return _outside(path, profile)


def _outside(path: str, profile: SandboxProfile) -> str:
    where = f"{path} is outside" if path else "that path is outside"
    return (
        f"The sandbox lets commands write only in {profile.workspace} and in $TMPDIR; {where}. "
        "A rule such as Edit(/that/folder/**) opens a folder to commands, and so does [sandbox] writable in the "
        "settings."
    )


def _lies_in(path: str, profile: SandboxProfile) -> bool:
    """Tell whether a path of a message is writable for commands; a relative one is assumed to be."""
    return not os.path.isabs(path) or inside(path, profile.writable)


def _find_read_only(path: str, profile: SandboxProfile) -> str:
    """Return the read-only path in the writable folders that contains a path of a message; empty if none."""
    name = os.path.normpath(path) if path else ""
    full = os.path.join(profile.workspace, name)
    return next(
        (kept for kept in profile.read_only if inside(full, [kept]) or (name and kept.endswith("/" + name))), ""
    )


def _explain_pinned(found: re.Match[str], profile: SandboxProfile) -> str:
    if "/.git/" in f"/{_path(found)}":
        return _GIT
    held = [each for each in profile.pinned if not each.endswith("/.git")] + list(profile.read_only)
    if not held:
        return ""
    return (
        f"The sandbox holds folders in place that a rule keeps something in, such as {held[0]}: they cannot be renamed "
        "or removed, and a file moves in or out of them by a copy (mv, or cp and rm), not by a rename."
    )


def _explain_denied(found: re.Match[str], profile: SandboxProfile) -> str:
    return _explain_masked(found, profile) or _explain_confined(found, profile)


def _explain_confined(found: re.Match[str], profile: SandboxProfile) -> str:
    """Explain a denial of Landlock (no mounts): the path is outside, and the user could write it."""
    path = os.path.normpath(os.path.join(profile.workspace, _path(found)))
    if profile.private_view or inside(path, profile.writable):
        return ""
    place = path if os.path.exists(path) else os.path.dirname(path)
    said = [_outside(path, profile)] if os.access(place, os.W_OK) else []
    return " ".join([*said, *filter(None, [_explain_unseen(found, profile)])])


def _explain_masked(found: re.Match[str], profile: SandboxProfile) -> str:
    path = _path(found).rstrip("/")
    name = path.rpartition("/")[2]
    covered = [each for each in profile.masked if each.endswith("/" + name) or path.startswith(each)]
    if not name or not covered:
        return ""
    return (
        f"{covered[0]} holds secrets: the sandbox keeps commands from reading it. "
        f"Ask the user for what you need, or for a rule that allows Read({name})."
    )


def _explain_unseen(found: re.Match[str], profile: SandboxProfile) -> str:
    """Explain that a path exists, but is not visible to commands."""
    path = os.path.normpath(os.path.join(profile.workspace, os.path.expanduser(_path(found))))
    if inside(path, (*profile.shown, *profile.writable)) or not inside(path, profile.closed):
        return ""
    folder = os.path.dirname(path)  # creating a file in an invisible folder fails with ENOENT
    if not os.path.lexists(path) and (folder in profile.closed or not os.path.lexists(folder)):
        return ""
    return (
        f"Commands see the system, toolchains and the workspace; {path} is none of these. A rule such as "
        f"Read({path}) shows it to them, and so does [sandbox] readable in the settings."
    )


def _no_network(found: re.Match[str], profile: SandboxProfile) -> str:
    if profile.network:
        return ""
    return (
        "The sandbox has no network (its own loopback apart). WebFetch reaches public pages; "
        "to let commands use the network set [sandbox] network = true in the settings."
    )


def _not_permitted(found: re.Match[str], profile: SandboxProfile) -> str:
    return "The sandbox takes mounts, namespaces and kernel interfaces away from commands; no setting gives them back."


def _no_privileges(found: re.Match[str], profile: SandboxProfile) -> str:
    return "Nothing in the sandbox can gain privileges: sudo and the like do not work. Ask the user to run it."


def _no_daemon(found: re.Match[str], profile: SandboxProfile) -> str:
    return "The sandbox keeps commands from the sockets of the machine, such as docker's. Ask the user to run it."


def _out_of_memory(found: re.Match[str], profile: SandboxProfile) -> str:
    return (
        f"The sandbox allows {profile.limits['memory'] >> 20} MB of memory; raise [sandbox] memory_mb if it needs more."
    )


def _too_many(found: re.Match[str], profile: SandboxProfile) -> str:
    return f"The sandbox allows {profile.limits['processes']} processes; raise [sandbox] processes if it needs more."


def _too_large(found: re.Match[str] | None, profile: SandboxProfile) -> str:
    limit = profile.limits["file_size"] >> 20
    return f"The sandbox allows files of {limit} MB; raise [sandbox] file_size_mb if it needs more."


_TABLE: Final[tuple[tuple[str, Callable[[re.Match[str], SandboxProfile], str]], ...]] = (
    (_READ_ONLY, _read_only),
    (_IN_PLACE, _explain_pinned),
    (_DENIED, _explain_denied),
    (_MISSING, _explain_unseen),
    (_NETWORK, _no_network),
    (_PRIVILEGES, _no_privileges),
    (_DAEMON, _no_daemon),
    (_FORBIDDEN, _not_permitted),
    (_PROCESSES, _too_many),
    (_MEMORY, _out_of_memory),
    (_SIZE, _too_large),
)
