"""Repositories with random settings out of git's own list: where the model asks nothing, every look at them runs git
alone, reads nothing outside and writes nothing outside.

Every system call of git and of all it starts is watched (`ptrace`). The short run takes a few repositories, the long
one (slow) many, and each setting by itself. `documented_settings.txt` is what `git help --config` prints.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.faults import tracing
from tests.users import ORDINARY, USERS

from surehand.git.config import only_reading
from surehand.git.model import find_risks, is_harmless
from surehand.shell.programs.git import FORMS, SUBCOMMANDS

pytestmark = pytest.mark.skipif(
    not tracing.available() or shutil.which("git") is None, reason="nothing can be traced here"
)

NAMES = Path(__file__).with_name("documented_settings.txt").read_text().split()

# A use of every subcommand that is taken for a look; the tables say what else may be said with it.
LOOKS: dict[str, list[str]] = {
    "status": ["status", "status -sb --ignored"],
    "log": ["log -p --stat --decorate", "log --graph --oneline --all", "log --remerge-diff -3"],
    "show": ["show HEAD", "show tag"],
    "whatchanged": ["whatchanged -1"],
    "diff": ["diff", "diff --submodule=diff HEAD~1", "diff --cached --word-diff"],
    "diff --no-index": ["diff --no-index a.txt b.txt"],
    "diff-tree": ["diff-tree -p HEAD"],
    "diff-index": ["diff-index -p HEAD"],
    "diff-files": ["diff-files -p"],
    "range-diff": ["range-diff HEAD~2..HEAD~1 HEAD~1..HEAD"],
    "shortlog": ["shortlog -s HEAD"],
    "blame": ["blame a.txt"],
    "annotate": ["annotate a.txt"],
    "grep": ["grep a", "grep a HEAD"],
    "ls-files": ["ls-files --eol -s", "ls-files -o --exclude-standard"],
    "ls-tree": ["ls-tree -r HEAD"],
    "rev-parse": ["rev-parse HEAD --show-toplevel"],
    "rev-list": ["rev-list --objects --all"],
    "describe": ["describe --always --dirty"],
    "name-rev": ["name-rev HEAD"],
    "merge-base": ["merge-base HEAD side"],
    "cherry": ["cherry side"],
    "cat-file": ["cat-file -p HEAD", "cat-file -p HEAD:a.txt"],
    "show-ref": ["show-ref"],
    "show-branch": ["show-branch"],
    "for-each-ref": ["for-each-ref"],
    "count-objects": ["count-objects -v"],
    "check-ignore": ["check-ignore -v a.txt"],
    "check-attr": ["check-attr -a a.txt"],
    "check-ref-format": ["check-ref-format --branch main"],
    "check-mailmap": ["check-mailmap me"],
    "var": ["var -l"],
    "version": ["version"],
    "stripspace": ["stripspace"],
    "patch-id": ["patch-id"],
    "diff-pairs": ["diff-pairs -z"],
    "fsck": ["fsck"],
    "help": ["help -a"],
    "branch": ["branch -avv"],
    "tag": ["tag -l -n"],
    "remote": ["remote -v"],
    "stash": ["stash list", "stash show -p"],
    "ls-remote": ["ls-remote --get-url"],
    "config": ["config --list"],
    "worktree": ["worktree list"],
    "submodule": ["submodule status"],
    "notes": ["notes list"],
    "reflog": ["reflog show"],
    "bisect": ["bisect log"],
    "bundle": ["bundle verify a.txt"],
    "symbolic-ref": ["symbolic-ref HEAD"],
    "lfs": ["lfs version"],
    "sparse-checkout": ["sparse-checkout list"],
    "rerere": ["rerere status"],
    "archive": ["archive --list"],
    "apply": ["apply --stat a.txt"],
}
# What git's own scripts are written with; only they may start it.
SCRIPTS = frozenset({"submodule", "bisect"})
TOOLS = frozenset(
    {"sh", "gettext", "envsubst", "basename", "dirname", "sed", "uname", "expr", "tr", "cat", "rm", "cut", "wc"}
)
SYSTEM = ("/usr/", "/lib", "/etc/", "/proc/", "/dev/null", "/dev/urandom", "/sys/devices/", "/bin/")
_CREATES_OR_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def test_every_subcommand_that_is_taken_for_a_look_is_tried() -> None:
    assert LOOKS.keys() == SUBCOMMANDS.keys() | FORMS.keys()


def git(*words: str, cwd: Path) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module", params=USERS)
def repository(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A repository of whoever runs the tests, and one of an ordinary user."""
    if request.param != USERS[0] and os.geteuid() != 0:
        pytest.skip("the tests already run as an ordinary user")
    base = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        folder = furnish(base)
        for path in (base, *base.rglob("*")) if request.param != USERS[0] else ():
            os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)
        yield folder
    finally:
        shutil.rmtree(base, ignore_errors=True)


def furnish(base: Path) -> Path:
    """Make a repository with all that settings could bear on: attributes, a merge, a tag, a stash, a submodule."""
    outside, inner, folder = base / "outside", base / "inner", base / "ws"
    for each in (outside, inner, folder, base / "home"):
        each.mkdir()
    (outside / "secret.txt").write_text("canary\n")
    (outside / "run.sh").write_text("#!/bin/sh\ncat\n")
    (outside / "run.sh").chmod(0o755)
    git("init", "-q", "-b", "main", cwd=inner)
    git("commit", "-q", "--allow-empty", "-m", "inner", cwd=inner)
    git("init", "-q", "-b", "main", cwd=folder)
    (folder / ".gitattributes").write_text("*.txt filter=x diff=x merge=x text\n")
    (folder / ".mailmap").write_text("me <me@example.com>\n")
    for text in ("a\n", "b\n"):
        (folder / "a.txt").write_text(text)
        git("add", "-A", cwd=folder)
        git("commit", "-q", "-m", text, cwd=folder)
    git("submodule", "add", "-q", str(inner), "inner", cwd=folder)
    git("commit", "-q", "-m", "submodule", cwd=folder)
    git("checkout", "-q", "-b", "side", "HEAD~1", cwd=folder)
    (folder / "b.txt").write_text("side\n")
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "side", cwd=folder)
    git("checkout", "-q", "main", cwd=folder)
    git("submodule", "update", "-q", cwd=folder)
    git("merge", "-q", "-m", "merge", "side", cwd=folder)
    git("tag", "-m", "tag", "tag", cwd=folder)
    (folder / "a.txt").write_text("stashed\n")
    git("stash", "-q", cwd=folder)
    (folder / "a.txt").write_text("changed\n")
    shutil.copy(folder / ".git/config", folder / ".git/config.first")
    return folder


def key_of(name: str) -> str:
    """Return a documented name with something in the place of what stands for others."""
    parts = ["x" if part.startswith("<") or part == "*" else part for part in name.split(".")]
    return ".".join(parts)


def values(chance: random.Random, outside: Path) -> list[str]:
    programs = [f"touch {outside}/pwn", f"{outside}/run.sh", f"!touch {outside}/pwn", "git-lfs clean; touch pwn"]
    files = [f"{outside}/secret.txt", "../outside/secret.txt", "~/secret", "/etc/shadow"]
    words = ["true", "false", "1", "0", "always", "diff", "log", "signature", "%G?", "remerge", "x", "", "auto", "2"]
    addresses = [f"ext::touch {outside}/pwn", "ssh://-oProxyCommand=x/y", "helper::x", "https://example.com/x"]
    return chance.choices([*programs, *files, *words, *words, *addresses], k=1)


def written(settings: dict[str, str]) -> str:
    lines: list[str] = []
    for key, value in settings.items():
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        heading = f'[{section} "{middle}"]' if middle else f"[{section}]"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{heading}\n\t{name} = "{escaped}"\n')
    return "".join(lines)


def set_up(repository: Path, settings: dict[str, str]) -> None:
    first = (repository / ".git/config.first").read_text()
    (repository / ".git/config").write_text(first + written(settings))


@cache
def program() -> str:
    found = shutil.which("git")
    assert found is not None
    return os.path.realpath(found)


# Which arguments of a call that changes something name files: (folder's descriptor or None, path).
CHANGES: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(("unlink", "mkdir", "truncate", "rmdir", "mknod", "chmod"), ((None, 0),)),
    **dict.fromkeys(("rename", "link"), ((None, 0), (None, 1))),
    **dict.fromkeys(("unlinkat", "mkdirat", "mknodat", "fchmodat"), ((0, 1),)),
    **dict.fromkeys(("renameat", "renameat2", "linkat"), ((0, 1), (2, 3))),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
}
HERE = 0xFFFFFF9C  # the working directory, in the place of a descriptor


def note(call: tracing.Call) -> str:
    """Say what a call starts, opens, changes or reaches, a line each; nothing of other calls."""
    if call.name == "execve":
        return f"run {call.text(0)}"
    if call.name == "openat":
        return _opened(call, call.text(1), call.args[0], call.args[2])
    if call.name in ("open", "creat"):
        return _opened(call, call.text(0), HERE, call.args[1] if call.name == "open" else os.O_CREAT)
    if call.name in CHANGES:
        named = ((HERE if at is None else call.args[at], call.text(path)) for at, path in CHANGES[call.name])
        return "\n".join(_opened(call, name, at, os.O_WRONLY) for at, name in named)
    if call.name == "connect" and call.memory(call.args[1] + 2, 64).startswith((b"/var/run/nscd/", b"/run/nscd/")):
        return ""  # the C library asks the machine's cache of names
    return f"reach {call.name}" if call.name in ("connect", "sendto", "openat2") else ""


def looked(repository: Path, home: Path, line: str) -> list[str]:
    """Run one command as Surehand does, as the owner of the repository; return what it started, opened and changed."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C", **only_reading({})}

    owner = os.stat(repository).st_uid

    def run() -> None:
        if owner != os.geteuid():
            os.setgroups([])
            os.setgid(owner)
            os.setuid(owner)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.chdir(repository)
        os.execve(program(), ["git", *line.split()], variables)

    done = tracing.trace(run, note=note)
    begin = next((at for at, each in enumerate(done.noted) if each.startswith("run ")), 0)
    return [line for each in done.noted[begin:] for line in each.split("\n")]


def _opened(call: tracing.Call, name: str, folder: int, flags: int) -> str:
    if not name.startswith("/"):
        number = folder & 0xFFFFFFFF
        place = "cwd" if number == HERE else f"fd/{number}"
        name = os.path.join(os.readlink(f"/proc/{call.thread}/{place}"), name)
    return f"{'write' if flags & _CREATES_OR_WRITES else 'read'} {os.path.realpath(name)}"


def faults(subcommand: str, noted: list[str], repository: Path, home: Path) -> list[str]:
    """Return what a command did that it must not."""
    own = (f"{repository}/", f"{home}/")
    found: list[str] = []
    for each in noted:
        kind, _, path = each.partition(" ")
        name = os.path.basename(path)
        if kind == "run":
            fine = name == "git" or name.startswith("git-") or (subcommand in SCRIPTS and name in TOOLS)
            fine = fine and not path.startswith(str(repository.parent))
        elif kind == "read":
            fine = (path.startswith((*own, *SYSTEM)) and not path.startswith("/etc/shadow")) or path == str(repository)
            fine = fine or path in (str(home), "/", str(repository.parent))
        else:
            fine = path.startswith((*own, "/dev/null", "/dev/tty", "/proc/self/")) and kind == "write"
        found += [] if fine else [f"git {subcommand}: {each}"]
    return found


def harmless(settings: dict[str, str], repository: Path) -> dict[str, str]:
    """Return the settings about which nothing is asked."""

    def inside(value: str) -> bool:
        return os.path.realpath(repository / os.path.expanduser(value)).startswith(f"{repository}/")

    return {key: value for key, value in settings.items() if is_harmless(key, value, inside=inside, reads=True)}


def try_one(repository: Path, seed: int, commands: int | None = None) -> None:
    chance = random.Random(seed)
    outside, home = repository.parent / "outside", repository.parent / "home"
    every = {key_of(name): values(chance, outside)[0] for name in chance.sample(NAMES, len(NAMES) * 2 // 3)}
    settings = harmless(every, repository)
    set_up(repository, settings)
    assert find_risks(str(repository), [str(repository)]) == (), seed
    lines = [(name, line) for name, each in LOOKS.items() for line in each]
    for name, line in lines if commands is None else chance.sample(lines, commands):
        assert faults(name, looked(repository, home, line), repository, home) == [], (seed, line, settings)
    assert sorted(path.name for path in outside.iterdir()) == ["run.sh", "secret.txt"]
    assert not list(repository.rglob("pwn"))


@pytest.mark.parametrize("seed", range(3))
def test_a_repository_about_which_nothing_is_asked_makes_git_run_and_reach_nothing(repository: Path, seed: int) -> None:
    try_one(repository, seed, commands=14)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_repositories_about_which_nothing_is_asked(repository: Path, seed: int) -> None:
    try_one(repository, seed)


def test_the_watch_sees_what_a_setting_that_is_asked_about_would_do(repository: Path) -> None:
    outside, home = repository.parent / "outside", repository.parent / "home"
    set_up(repository, {"diff.x.textconv": f"{outside}/run.sh", "blame.ignoreRevsFile": f"{outside}/secret.txt"})
    assert find_risks(str(repository)) == ("diff.x.textconv", "blame.ignorerevsfile")
    assert any("run.sh" in each for each in faults("diff", looked(repository, home, "diff"), repository, home))
    blamed = faults("blame", looked(repository, home, "blame a.txt"), repository, home)
    assert f"git blame: read {outside}/secret.txt" in blamed
    assert any(each.startswith("write ") for each in looked(repository, home, "tag another"))


def test_the_watch_sees_connections_and_every_kind_of_change(repository: Path) -> None:
    outside = str(repository.parent / "outside")

    def act() -> None:
        folder = os.open(outside, os.O_RDONLY)
        os.mkdir("made", dir_fd=folder)
        os.rename("made", "moved", src_dir_fd=folder, dst_dir_fd=folder)
        os.rmdir("moved", dir_fd=folder)
        with socket.socket() as link:
            link.connect_ex(("127.0.0.1", 9))

    noted = [line for each in tracing.trace(act, note=note).noted for line in each.split("\n")]
    assert [each for each in noted if each.startswith("write ")].count(f"write {outside}/made") == 2
    assert f"write {outside}/moved" in noted
    assert "reach connect" in noted
    assert faults("x", [f"write {outside}/made", "reach connect"], repository, repository.parent / "home") != []
