"""What of the disk commands can read: tried for real, with namespaces and with Landlock alone."""

from __future__ import annotations

import os
import resource
import shlex
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.linux.test_sandbox import Box, furnished
from tests.users import USERS, somebody

from surehand import Surehand
from surehand.core.settings import Settings
from surehand.sandbox.linux import probe
from surehand.testing import scratch_app

BACKENDS = ["namespaces", "landlock"]
CANARY = "canary-of-a-secret"
WALK = """
import os, sys
for here, _, names in os.walk(sys.argv[1]):
    for name in names:
        try:
            print(open(os.path.join(here, name)).read())
        except (OSError, UnicodeError):
            pass
"""


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Force what contains commands."""
    before = probe.abilities()
    if request.param == "namespaces":
        if not before.private_view:
            pytest.skip(f"no namespaces here: {before.why_not}")
        yield request.param
        return
    if not before.landlock:
        pytest.skip("no Landlock here")
    probe.note_failure("the test does without")
    yield request.param
    probe.forget_failures()


@pytest.fixture(params=USERS)
def box(request: pytest.FixtureRequest, backend: str) -> Iterator[Box]:
    with somebody(request.param) as user:
        box = furnished(Box(user))
        box.without_namespaces = backend == "landlock"
        yield box


def hide(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)


def test_what_lies_beside_the_workspace_cannot_be_read_whatever_it_is_called(box: Box) -> None:
    outside = [
        box.home / name
        for name in ("other/.env", "other/node_modules/p/.env", "other/notes.txt", ".npmrc", ".bash_history", "a~")
    ]
    hide(*outside, box.base / "beside" / "id_rsa.bak")
    box.user.give()
    (box.workspace / "walk.py").write_text(WALK)
    found = box.one(f'for f in $(echo "{box.base}"); do {sys.executable} walk.py "$f"; done; cat $(printf ~/.npmr)c')
    assert found["data"]["exit_code"] != 0
    assert CANARY not in found["data"]["stdout"]


def test_a_secret_in_the_workspace_is_covered_in_every_disguise(box: Box) -> None:
    if box.without_namespaces:
        pytest.skip("secrets in the workspace are asked about there")
    names = (".env~", "#.env#", "id_rsa.bak", "x.pem.old", "node_modules/p/.env", ".venv/lib/.env.local")
    hide(*(box.workspace / name for name in names))
    box.user.give()
    for name, result in zip(names, box.run(*(f"n='{name}'; cat \"$n\"" for name in names)), strict=True):
        assert not result["ok"], name
        assert CANARY not in result["data"]["stdout"], name


def test_compilers_runtimes_and_tools_still_work(box: Box) -> None:
    if box.user.libraries:
        pytest.skip("their Python is in a place of its own")
    (box.workspace / "a.c").write_text("int main(void) { return 0; }\n")
    tools = {
        "cc": "cc a.c -o $TMPDIR/a && $TMPDIR/a",
        "git": "git status --short && git log --oneline",
        "node": "node -e 'process.exit(0)'",
        "npm": "npm --version",
        "perl": "perl -e 'exit 0'",
        "make": "make --version",
    }
    there = {name: command for name, command in tools.items() if _which(name)}
    commands = [f"{sys.executable} -c 'import json, ssl, sqlite3, multiprocessing; multiprocessing.Lock()'"]
    results = box.run(*commands, *there.values())
    assert [result["ok"] for result in results] == [True] * len(results), [result.get("error") for result in results]


def _which(name: str) -> bool:
    return any(os.access(f"{folder}/{name}", os.X_OK) for folder in ("/usr/local/bin", "/usr/bin", "/bin"))


def test_a_virtual_environment_outside_the_workspace_works_by_its_name_in_path(box: Box) -> None:
    if box.user.libraries:
        pytest.skip("their Python is in a place of its own")
    venv = box.home / "somewhere" / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    hide(box.home / "somewhere" / "notes.txt")
    box.user.give()
    box.path = f"{venv}/bin:/usr/bin:/bin"
    ran, read = box.run("python -c 'import sys; print(sys.prefix)'", "cat ~/somewhere/$(echo notes.txt)")
    assert ran["data"]["stdout"].strip() == str(venv)
    assert not read["ok"]


def test_the_setting_shows_a_folder_and_keeps_its_secrets(box: Box) -> None:
    hide(box.home / "data" / "deep" / ".env")
    (box.home / "data" / "table.csv").write_text("a,b\n")
    box.user.give()
    box.sandbox = {"readable": ["~/data"]}
    read, secret = box.run("cat ~/data/$(echo table).csv", "cat ~/data/deep/.$(echo env)")
    assert read["data"]["stdout"] == "a,b\n"
    assert not secret["ok"]
    assert CANARY not in secret["data"]["stdout"]


def test_what_is_not_shown_is_said_with_what_would_show_it(box: Box) -> None:
    result = box.one("cat ~/$(echo notes).txt")
    assert not result["ok"]
    assert "[sandbox] readable" in result["error"]["hint"]


def test_a_workspace_in_a_larger_repository_sees_all_of_it_but_its_secrets(box: Box) -> None:
    inner = box.workspace / "sub" / "project"
    inner.mkdir()
    (inner / "b.txt").write_text("b")
    commit = ["git", "-C", str(box.workspace), "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "1"]
    subprocess.run(["git", "-C", str(box.workspace), "-c", "safe.directory=*", "add", "a.txt", "sub"], check=True)
    subprocess.run([*commit[:3], "-c", "safe.directory=*", *commit[3:]], check=True)
    hide(box.workspace / "sub" / ".env.local")
    box.user.give()
    box.inner = "sub/project"
    status, secret = box.run("git status --porcelain -uno", "cat ../.env$(echo .local)")
    assert status["data"]["stdout"] == ""
    assert status["ok"]
    assert CANARY not in secret["data"]["stdout"]


def test_a_socket_in_the_workspace_that_a_process_outside_listens_on_is_out_of_reach(box: Box) -> None:
    for name, relative in (("s1", False), ("s2", True)):
        with socket.socket(socket.AF_UNIX) as server:
            before = os.getcwd()
            try:
                os.chdir(box.workspace)
                server.bind(name if relative else str(box.workspace / name))
            finally:
                os.chdir(before)
            server.listen()
            (box.workspace / name).chmod(0o777)
            code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{name}'); print('reached')"
            result = box.one(f'{box.python} -c "{code}"')
            assert "reached" not in result["data"]["stdout"]


def test_servers_of_the_session_are_still_reached_by_their_sockets(box: Box) -> None:
    if box.without_namespaces:
        pytest.skip("no sockets by name there")
    code = (
        "import socket; a = socket.socket(socket.AF_UNIX); a.bind('own'); a.listen(); "
        "b = socket.socket(socket.AF_UNIX); b.connect('own'); print('reached')"
    )
    assert box.one(f'{box.python} -c "{code}"')["data"]["stdout"] == "reached\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="about root")
@pytest.mark.parametrize(
    "code",
    [
        "import os,shutil;shutil.copy('/bin/cat','c');os.chown('c',-1,42);os.chmod('c',0o2755)",
        "import os,shutil;shutil.copy('/bin/cat','c');os.chmod('c',0o4755)",
        "import os,ctypes;f=os.open('.',os.O_TMPFILE|os.O_RDWR,0o6755);"
        "ctypes.CDLL(None).linkat(-100,b'/proc/self/fd/%d'%f,-100,b'c',0x400)",
        "import os;os.umask(0);os.open('c',os.O_CREAT|os.O_RDWR,0o2755)",
        "import os;os.mknod('c',0o102755)",
    ],
)
async def test_root_leaves_no_file_that_runs_as_another(code: str, backend: str, tmp_path: Path) -> None:
    settings = Settings.parse({"permissions": {"allow": ["Bash(python3:*)"]}})
    async with scratch_app(str(tmp_path), settings=settings) as app:
        await app.call("Bash", {"command": f'python3 -c "{code}"'})
    made = tmp_path / "c"
    assert not made.exists() or not made.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


@pytest.mark.usefixtures("backend")
async def test_a_folder_swapped_for_a_link_while_a_read_runs_shows_nothing_outside(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "ws"
    hide(outside / "f")
    (workspace / "real").mkdir(parents=True)
    (workspace / "real" / "f").write_text("inside")
    done = threading.Event()

    def swap() -> None:
        os.symlink("real", workspace / "d")
        while not done.is_set():
            for target in (str(outside), "real"):
                os.symlink(target, workspace / "new")
                os.rename(workspace / "new", workspace / "d")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        async with scratch_app(str(workspace), mode="default") as app:
            printed = [await app.call("Bash", {"command": "cat d/f"}) for _ in range(60)]
    finally:
        done.set()
        swapping.join()
    assert all(CANARY not in each.output for each in printed)


class Refuses:
    """An approver that says no, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, question: Any) -> str:
        self.asked.append(question.decision.reason)
        return "no"


async def asked_about(workspace: Path, command: str, **permissions: list[str]) -> list[str]:
    approver = Refuses()
    settings = Settings.parse({"permissions": permissions})
    async with Surehand(str(workspace), settings=settings, approver=approver) as app:
        await app.call("Bash", {"command": command})
    return approver.asked


async def test_with_landlock_alone_a_command_that_could_print_a_secret_asks(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "ws"
    hide(workspace / "sub" / ".env")
    (workspace / "a.txt").write_text("a")
    alone = backend == "landlock"
    asked = [
        bool(await asked_about(workspace, command, allow=["Bash(python3:*)"]))
        for command in ("grep -rh x .", "python3 -c 'print(1)'", "grep x a.txt", "ls -la")
    ]
    assert asked == [alone, alone, False, False]
    assert not await asked_about(workspace, "grep -rh x .", allow=["Read(sub/.env)"])


OPEN_DEVICES = """
import os, stat, sys
for name in sys.argv[1:]:
    path = "/dev/" + name
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            print(path)
    except OSError:
        pass
"""


async def test_with_landlock_alone_devices_and_capabilities_are_out_of_reach(tmp_path: Path) -> None:
    before = probe.abilities()
    if not before.landlock:
        pytest.skip("no Landlock here")
    probe.note_failure("the test does without")
    try:
        async with scratch_app(str(tmp_path)) as app:
            caps = await app.call("Bash", {"command": "grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status"})
            (tmp_path / "open.py").write_text(OPEN_DEVICES)
            devices = await app.call("Bash", {"command": f"{sys.executable} open.py {shlex.join(os.listdir('/dev'))}"})
    finally:
        probe.forget_failures()
    if os.geteuid() == 0:
        assert {line.split()[1] for line in caps.data["stdout"].splitlines()} == {"0" * 16}
    opened = set(devices.data["stdout"].split())
    assert opened <= {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx")}
    assert "/dev/null" in opened


FAMILIES = """
import socket
for number in range(64):
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(number, kind).close()
            print(number)
        except OSError:
            pass
"""


async def test_sockets_are_of_the_families_that_are_known(backend: str, tmp_path: Path) -> None:
    (tmp_path / "families.py").write_text(FAMILIES)
    async with scratch_app(str(tmp_path)) as app:
        made = await app.call("Bash", {"command": "python3 families.py"})
    known = {"16"} if backend == "landlock" else {"1", "2", "10", "16"}
    assert set(made.data["stdout"].split()) == known


async def test_no_limit_is_set_on_a_process_outside(backend: str, tmp_path: Path) -> None:
    outside = subprocess.Popen(["sleep", "600"])
    try:
        before = resource.prlimit(outside.pid, resource.RLIMIT_NOFILE)
        (tmp_path / "own.py").write_text("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n")
        (tmp_path / "other.py").write_text(
            f"import resource\nresource.prlimit({outside.pid}, resource.RLIMIT_NOFILE, (9, 9))\n"
        )
        async with scratch_app(str(tmp_path)) as app:
            own = await app.call("Bash", {"command": "python3 own.py"})
            other = await app.call("Bash", {"command": "python3 other.py"})
        assert own.data["exit_code"] == 0, own.output
        assert other.data["exit_code"] != 0, backend
        assert resource.prlimit(outside.pid, resource.RLIMIT_NOFILE) == before
    finally:
        outside.kill()
        outside.wait()


LASTING = """
import ctypes, sys
libc, key = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
print(libc.shmget(key, 4096, 0o1600), libc.msgget(key, 0o1600), libc.semget(key, 1, 0o1600))
"""


async def test_nothing_of_a_command_stays_in_the_kernel(backend: str, tmp_path: Path) -> None:
    key = int.from_bytes(os.urandom(3)) + 1
    (tmp_path / "lasting.py").write_text(LASTING)
    async with scratch_app(str(tmp_path)) as app:
        made = await app.call("Bash", {"command": f"python3 lasting.py {key}"})
    assert made.data["stdout"].split() == ["0" if backend == "namespaces" else "-1"] * 3
    for kind in ("shm", "msg", "sem"):
        rows = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
        assert str(key) not in [row.split()[0] for row in rows]


@pytest.mark.usefixtures("backend")
async def test_a_link_in_a_folder_that_is_shown_leads_to_no_secret_in_it(tmp_path: Path) -> None:
    workspace, data = tmp_path / "ws", tmp_path / "data"
    hide(data / "conf" / ".env")
    (data / "conf" / "link").symlink_to(".env")
    (data / "conf" / "a.txt").write_text("shown")
    workspace.mkdir()
    settings = Settings.parse({"sandbox": {"readable": [str(data)]}})
    async with scratch_app(str(workspace), settings=settings) as app:
        command = f"python3 -c \"print(open('{data}/conf/' + '%s').read())\""
        assert "shown" in (await app.call("Bash", {"command": command % "a.txt"})).data["stdout"]
        secret = await app.call("Bash", {"command": command % "link"})
    assert CANARY not in secret.output


HOLDING = {
    "a file without a name": "f = os.memfd_create('x'); [os.write(f, b'x' * 2**20) for _ in range(200)]",
    "a shared map": "import mmap; m = mmap.mmap(-1, 200 << 20); [m.write(b'x' * 2**20) for _ in range(200)]",
    "shared maps of several": "import mmap; [os.fork() and 0 for _ in range(2)]; m = mmap.mmap(-1, 40 << 20); "
    "[m.write(b'x' * 2**20) for _ in range(40)]",
    "shared memory with a name": "f = open('/dev/shm/NAME', 'wb', 0); os.unlink('/dev/shm/NAME'); "
    "[f.write(b'x' * 2**20) for _ in range(50)]; g = b'y' * (30 << 20)",
    "files in a temp": "f = open('/tmp/x', 'wb'); f.write(b'x' * (40 << 20)); g = bytearray(b'y' * (40 << 20))",
}


@pytest.mark.parametrize("how", HOLDING)
async def test_memory_counts_wherever_it_is_held(how: str, backend: str, tmp_path: Path) -> None:
    if backend == "landlock" and "temp" in how:
        pytest.skip("no temp of its own there")
    settings = Settings.parse({"sandbox": {"memory_mb": 64}, "permissions": {"allow": ["Bash(python3:*)"]}})
    code = f"import os, time; {HOLDING[how]}; time.sleep(60)".replace("NAME", tmp_path.name)
    async with scratch_app(str(tmp_path), settings=settings) as app:
        done = await app.call("Bash", {"command": f'python3 -c "{code}"', "timeout": 30_000})
    assert not done.ok
    assert "64 MB of memory" in done.output


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    "command",
    [
        "perl -e 'die qq(curl: (6) Could not resolve host: example.org)' 2>&1 | tail -1",
        "perl -e 'die qq(npm error code ENOTFOUND)' | cat",
        "echo 'WARNING: Retrying ... Failed to resolve pypi.example' >&2; sleep 60",
        "curl() { sleep 60; }; curl https://example.org",
        "curl() { return 6; }; curl -s https://example.org | head -1",
        "curl() { return 6; }; curl -s https://example.org",
        "curl() { return 6; }; curl -s https://example.org | grep . || { echo 'no answer'; exit 1; }",
        "perl -e 'die qq(ERROR: No matching distribution found for requests)' 2>&1 | tail -1",
    ],
)
async def test_a_want_of_network_is_said_behind_a_pipe_and_when_a_command_hangs(command: str, tmp_path: Path) -> None:
    async with scratch_app(str(tmp_path)) as app:
        done = await app.call("Bash", {"command": command, "timeout": 5000})
    assert "[sandbox] network = true" in done.output + str(done.error)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    "command",
    [
        "curl() { :; }; curl -s http://127.0.0.1:8000/",
        "curl() { echo a page; }; curl -s https://example.org",
        "rsync() { :; }; rsync -a a/ b/",
    ],
)
async def test_no_want_of_network_is_said_where_there_was_none(command: str, tmp_path: Path) -> None:
    async with scratch_app(str(tmp_path)) as app:
        done = await app.call("Bash", {"command": command})
    assert done.ok
    assert "network" not in done.output
