"""The hard floor: what no rule, mode, approval or wrapper permits.

Deleting or handing over `/`, the home folder, a system folder or the workspace itself; disks; Surehand's own state and
settings; `.git` internals; shell start files; ssh keys.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from surehand.core.effects import DeletePath, Effect, ReadPath, RunCommand, WritePath
from surehand.core.text import lazy_pattern
from surehand.files.paths import is_beneath
from surehand.policy.paths import ResolvedPath, Roots, fold_name
from surehand.state import locations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SYSTEM = _words(
    "/bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr /usr/bin "
    "/usr/lib /usr/local /usr/sbin /usr/share /var /var/lib /var/log /Applications /Library /System /Users /Volumes "
    "/private /private/etc /private/var"
)
_START_FILES = _words(
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".kshrc .cshrc .tcshrc .login .inputrc .xprofile .xinitrc .xsession .pam_environment "
    ".config/fish/config.fish"
)
_SYSTEM_START = ("/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh", "/etc/environment")
_HARMLESS_DEVICE = r"/dev/(null|zero|full|tty|stdin|stdout|stderr|ptmx|fd(/.*)?|shm(/.*)?|pts(/.*)?|u?random)"
_DISK = r"/dev/(?!(?:null|zero|full|tty\d*|stdin|stdout|stderr|ptmx|fd|shm|pts|u?random|net|loop-control)(?:/|$)).+"

_REMOVERS = frozenset({"rm", "shred", "srm", "unlink", "rmdir", "mv", "trash", "rimraf", "del"})
_OWNERS = frozenset({"chmod", "chown", "chgrp", "chattr", "setfacl"})
_DISK_WRITERS = (
    r"mkfs(\..+)?|mke2fs|mkswap|wipefs|[cs]?g?fdisk|sfdisk|parted|blkdiscard|badblocks|shred|dd|dcfldd|tee|cp|mv|install|"
    r"cryptsetup|pvcreate|vgcreate|zpool|mdadm|newfs(_.+)?|diskutil|format|truncate|nvme|hdparm|sgdisk"
)
_LANGUAGES = (
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|[gmn]?awk|vim|nvim|vi|ex|emacs|gdb|sqlite3?|psql|mysql|less)[0-9.]*"
)
_RUN_IN_TEXT = lazy_pattern(
    r"(?:(?:system|exec\w*|popen|run|call|check_\w+|spawn\w*|shell[\w-]*|execute)\s*[\[({\"'`]+\s*[\"'`]*|[!`]\s*|"
    r"\.(?:shell|system)\s+)([a-z][^\"'`);\n]*)",
    re.IGNORECASE,
)
_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_NAMES_FILES = r"-(i?name|i?path|i?wholename|i?regex|[acm](time|min)|newer.*|size|empty|user|group|perm|links|inum)"
_FIND_TESTS = (
    r"-(i?name|i?path|i?regex|type|[acm](time|min)|newer.*|size|empty|user|group|perm|uid|gid|maxdepth|mindepth|"
    r"links|inum)"
)


def path_floor(
    effect: ReadPath | WritePath | DeletePath, place: ResolvedPath, roots: Roots, *, picked: bool = False
) -> str:
    """Return why the floor forbids this effect; empty if it does not.

    `picked`: a glob or a test selects what is removed below the path, so inside the roots the path itself may be the
    workspace.
    """
    for name in place.names:
        reason = _ssh(name, roots) or ("" if isinstance(effect, ReadPath) else _kept_from_change(name, roots))
        if reason:
            return reason
    if isinstance(effect, ReadPath) or not effect.recursive or (picked and place.inside):
        return ""
    return _whole(place, roots)


def _ssh(name: str, roots: Roots) -> str:
    return "ssh keys are out of reach" if is_beneath(fold_name(name), fold_name(f"{roots.home}/.ssh")) else ""


def _kept_from_change(name: str, roots: Roots) -> str:
    plain = fold_name(name)
    parts = plain.split("/")
    if ".git" in parts:
        return ".git internals are changed by git alone"
    if ".surehand" in parts or (parts[-1] == "surehand.toml" and _beside_workspace(plain, roots)):
        return "Surehand's own settings are changed by people alone"
    if own_state(name, roots):
        return "Surehand's own state is out of reach"
    if plain.startswith("/dev/") and not re.fullmatch(_HARMLESS_DEVICE, plain):
        return "devices and disks are out of reach"
    if plain in _start_files(roots.home):
        return "shell start files are changed by people alone"
    if any(is_beneath(plain, start) for start in _SYSTEM_START):
        return "shell start files are changed by people alone"
    return ""


def _beside_workspace(plain: str, roots: Roots) -> bool:
    return any(plain == fold_name(f"{root}/surehand.toml") for root in roots.workspace_names)


def own_state(name: str, roots: Roots) -> bool:
    """Return whether a path lies in Surehand's own state or settings."""
    for own in _own_folders(os.environ.get("SUREHAND_HOME"), roots.home):
        # An agent's worktree lies below the state directory, but is a root: work inside it is allowed.
        if is_beneath(name, own) and not any(
            is_beneath(root, own) and is_beneath(name, root) for root in (*roots.given, *roots.real)
        ):
            return True
    return False


@lru_cache(maxsize=8)
def _start_files(home: str) -> frozenset[str]:
    return frozenset(fold_name(f"{home}/{start}") for start in _START_FILES)


@lru_cache(maxsize=8)
def _own_folders(chosen: str | None, home: str) -> tuple[str, ...]:
    del chosen, home  # cache keys only: `locations` reads both from the environment
    folders = (locations.home(), os.path.dirname(locations.user_settings()))
    return tuple(dict.fromkeys(each for folder in folders for each in (folder, os.path.realpath(folder))))


@lru_cache(maxsize=64)
def kept_output(workspace: str) -> str:
    """Return the directory of this workspace's saved command output, the only part of the state that may be read."""
    return os.path.realpath(os.path.join(locations.workspace_state(workspace), "output"))


def _whole(place: ResolvedPath, roots: Roots) -> str:
    for name in place.names:
        if name == "/" or name in _SYSTEM:
            return f"{name} as a whole is out of reach"
        if name == roots.home or is_beneath(roots.home, name):
            return "the home folder as a whole is out of reach"
        if any(is_beneath(root, name) for root in (*roots.given, *roots.real)):
            return "the workspace as a whole is out of reach"
    return ""


def command_floor(command: RunCommand, cwd: str, roots: Roots) -> str:
    """Return why the floor forbids a command by its words alone; empty if it does not."""
    if not command.words:
        return ""
    program = posixpath.basename(command.words[0]).lower()
    words = command.words[1:]
    if program == "find" and _EXEC.intersection(words) and _REMOVERS.intersection(words) and not _picks(words):
        return _targets(_starts(words), cwd, roots)
    if command.read_only:
        return ""
    for text in _texts_run(program, command.words):
        if reason := command_floor(RunCommand(tuple(text.split()), False, ""), cwd, roots):
            return reason
    if re.fullmatch(_DISK_WRITERS, program) and any(
        re.match(_DISK, posixpath.normpath(_value(word))) for word in words
    ):
        return "devices and disks are out of reach"
    if program in _REMOVERS or (program in _OWNERS and _recursive(words)):
        return _targets(words, cwd, roots)
    if program == "find" and "-delete" in words:
        # With a test, `find . -name '*.tmp' -delete` may start at the workspace. Outside the roots the starting point
        # counts in any case: `find /etc -type f -delete`.
        picks = any(re.fullmatch(_FIND_TESTS, word) for word in words)
        return _targets(_starts(words), cwd, roots, inside_too=not picks)
    return ""


def _texts_run(program: str, words: tuple[str, ...]) -> Iterator[str]:
    """Yield commands found literally in code of another language, or in a variable that programs execute."""
    if "=" in words[0]:
        yield words[0].partition("=")[2].lstrip("|")
    elif re.fullmatch(_LANGUAGES, program):
        for word in words[1:]:
            yield from (hit[1] for hit in _RUN_IN_TEXT.finditer(word))


def _starts(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the starting points of a `find`."""
    return words[: next((at for at, word in enumerate(words) if word[:1] in ("-", "(", "!")), len(words))] or (".",)


def removes_by_choice(command: RunCommand, effects: Iterable[Effect], *, deletes: bool) -> bool:
    """Return whether a search selects what is removed, so that its starting point is not removed as a whole.

    `effects` are those of the whole call: `rm {}` removes what the `find` that runs it selects.
    """
    if not command.words:
        return False
    program = posixpath.basename(command.words[0])
    if program not in _REMOVERS | _OWNERS:
        return not (deletes and program == "rsync")  # `rsync --delete` removes what the source lacks, which may be all
    commands = [each.words for each in effects if isinstance(each, RunCommand)]
    runs = [_picks(words) for words in commands if _EXEC.intersection(words)]
    runs += [_fd_picks(words[1:]) for words in commands if words[:1] in (("fd",), ("fdfind",))]
    return "{}" in command.words and bool(runs) and all(runs)


def picks_by_pattern(command: RunCommand, folder: str) -> bool:
    """Return whether the command names `folder` only by a glob for things in it (`rm -r d*`).

    However many files match: `command_floor` also judges each word, and takes `rm -r *` for the whole folder.
    """
    for word in command.words[1:]:
        head = "/".join(itertools.takewhile(lambda part: not re.search(r"[*?\[]", part), word.split("/")))
        narrow = re.search(r"[*?\[]", word) and _without_wildcards(word) == word
        if narrow and (folder == head if head.startswith("/") else folder.endswith(f"/{head}".rstrip("/"))):
            return True
    return False


def _picks(words: tuple[str, ...]) -> bool:
    """Return whether a test such as `-name` limits the files that a `find` runs its command for (no `-o`, no `!`)."""
    depth = 0
    found = False
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word in ("-o", "-or", ",") and depth == 0:
            return False
        chosen = re.fullmatch(_NAMES_FILES, word) and before not in ("!", "-not") and after.strip("*./") != ""
        found = found or bool(chosen)
    return found


_FD_EXEC = frozenset(("-x", "-X", "--exec", "--exec-batch"))
_FD_VALUES = lazy_pattern(r"-[a-zA-Z0-9]*[dtSEcjoM]|--(?:max-|min-|exact-)?depth|--(?:type|size|exclude|changed-\w+)")


def _fd_picks(words: tuple[str, ...]) -> bool:
    """Return whether a pattern or an extension limits the files that an `fd` runs its command for."""
    own = tuple(itertools.takewhile(lambda word: word not in _FD_EXEC, words))
    for before, word in itertools.pairwise(("", *own)):
        if before in ("-e", "--extension"):
            return True
        if word[:1] != "-" and not _FD_VALUES.fullmatch(before):
            return word.strip("*./^$") != ""
    return False


def _value(word: str) -> str:
    key, separator, value = word.partition("=")
    return value if separator and key in ("of", "--output", "--target-directory") else word


def _recursive(words: tuple[str, ...]) -> bool:
    return any(word == "--recursive" or re.fullmatch(r"-[a-zA-Z]*R[a-zA-Z]*", word) for word in words)


def _targets(words: tuple[str, ...], cwd: str, roots: Roots, *, inside_too: bool = True) -> str:
    for word in words:
        if word.startswith("-") or not word:
            continue
        path = posixpath.normpath(posixpath.join(cwd, os.path.expanduser(_without_wildcards(word))))
        place = roots.resolve(path)
        reason = "" if place.inside and not inside_too else _whole(place, roots)
        if reason:
            return reason
    return ""


def _without_wildcards(word: str) -> str:
    """Return the folder whose whole content a word means: `~/*` is the home folder, `/c*` as good as the root."""
    folder, _, last = word.rpartition("/")
    everything = re.fullmatch(r"\*+|\.\*|\{.+\}|\?\*|\.\?\*", last) is not None
    if everything or (word.startswith("/") and folder == "" and re.search(r"[*?\[]", last)):
        return folder or ("/" if word.startswith("/") else ".")
    return word
