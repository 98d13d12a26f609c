"""What the sandbox promises, tried for real: as whoever runs the tests, and as an ordinary user when that is root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from tests.users import USERS, User, somebody

from surehand.files.protected_paths import homes
from surehand.sandbox.linux import probe

pytestmark = pytest.mark.skipif(
    not probe.abilities().private_view, reason=f"no namespaces here: {probe.abilities().why_not}"
)

DRIVER = """
import asyncio, json, subprocess, sys
from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.sandbox.linux import probe
from surehand.policy.policy import Policy
from surehand.testing import scratch_app
from surehand.tools.bash import BASH

async def past_the_door(given, settings):
    session = Session(given["workspace"], settings=settings, state_dir=given["state"])
    Policy.from_settings(settings, given["workspace"]).bind(session)
    for number, command in enumerate(given["commands"]):
        if number and given["meanwhile"]:
            subprocess.run(["bash", "-ec", given["meanwhile"]], check=True)
        args = {"command": command, "timeout": given["timeout"]}
        yield await BASH.run(BASH.arguments.parse(args), ToolContext(ToolCall("Bash", args), session, print, {}))
    await session.close()

async def through_the_door(given, settings):
    async with scratch_app(given["workspace"], settings=settings) as app:
        for command in given["commands"]:
            yield await app.call("Bash", {"command": command, "timeout": given["timeout"]})

async def main():
    given = json.load(sys.stdin)
    if given["without_namespaces"]:
        probe.note_failure("the test does without")
    settings = Settings.parse({key: given[key] for key in ("sandbox", "permissions")})
    run = through_the_door if given["door"] else past_the_door
    results = [result.to_dict() async for result in run(given, settings)]
    json.dump(results, sys.stderr)

asyncio.run(main())
"""


@dataclass
class Box:
    """A home, a workspace, something outside; and commands run there as a user."""

    user: User
    sandbox: dict[str, Any] = field(default_factory=dict[str, Any])
    permissions: dict[str, list[str]] = field(default_factory=lambda: {"allow": [], "deny": []})
    timeout_ms: int = 20_000
    without_namespaces: bool = False
    path: str = ""
    inner: str = ""
    meanwhile: str = ""
    """What its user does outside the sandbox between two commands."""

    @property
    def base(self) -> Path:
        return self.user.folder

    @property
    def python(self) -> str:
        """A Python that commands can start."""
        return sys.executable if not self.user.libraries else f"env LD_LIBRARY_PATH={self.user.libraries} python3"

    @property
    def workspace(self) -> Path:
        return self.base / "ws"

    @property
    def home(self) -> Path:
        return self.base / "home"

    def run(self, *commands: str, door: bool = False) -> list[dict[str, Any]]:
        """Run commands: past the policy, so that the sandbox alone stands in the way, or with it (all approved)."""
        given = {
            "workspace": str(self.workspace / self.inner),
            "state": str(self.base / "state"),
            "commands": commands,
            "sandbox": self.sandbox,
            "permissions": self.permissions,
            "door": door,
            "meanwhile": self.meanwhile,
            "timeout": self.timeout_ms,
            "without_namespaces": self.without_namespaces,
        }
        env = {"PATH": self.path} if self.path else {}
        driver = self.user.start(DRIVER, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
        _, said = driver.communicate(json.dumps(given), timeout=90)
        assert driver.returncode == 0, said[-3000:]
        return json.loads(said.splitlines()[-1])

    def one(self, command: str) -> dict[str, Any]:
        return self.run(command)[0]


@pytest.fixture(params=USERS)
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with somebody(request.param) as user:
        yield furnished(Box(user))


def furnished(box: Box) -> Box:
    for folder in (box.workspace / "sub", box.home / ".ssh", box.home / ".aws", box.base / "state"):
        folder.mkdir(parents=True)
    (box.home / ".ssh" / "id_rsa").write_text("canary")
    (box.home / ".aws" / "credentials").write_text("canary")
    (box.home / "notes.txt").write_text("a note")
    (box.workspace / ".env").write_text("KEY=canary")
    (box.workspace / "sub" / "server.pem").write_text("canary")
    (box.workspace / "a.txt").write_text("a")
    (box.workspace / ".gitignore").write_text(".env\n*.pem\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q", str(box.workspace)], check=True)
    subprocess.run([*git, "-C", str(box.workspace), "commit", "-qm", "0", "--allow-empty"], check=True)
    box.user.give()
    return box


def test_the_disk_is_readable_and_only_the_workspace_and_a_private_temp_are_writable(box: Box) -> None:
    read, write, temp, *others = box.run(
        "cat /etc/passwd ~/notes.txt",
        "echo b > a.txt && mkdir -p deep/er && mv a.txt deep/er && cat deep/er/a.txt",
        "echo t > $TMPDIR/t && mktemp && cat $TMPDIR/t",
        "touch /etc/canary",
        "touch /canary",
        "touch ~/canary",
        "chmod 777 ~/notes.txt",
        "echo x >> ~/.bashrc",
        "touch $SUREHAND_HOME/canary; touch ~/surehand/canary",
        "rm -f ~/notes.txt",
        "ln ~/notes.txt stolen",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /proc/self/oom_score_adj; dd if=/dev/zero of=/dev/vda count=0",
    )
    assert read["ok"]
    assert write["data"]["stdout"] == "b\n"
    assert temp["ok"]
    assert [result["ok"] for result in others] == [False] * len(others)
    assert (box.home / "notes.txt").read_text() == "a note"
    box.one(f"touch {box.base}/canary ../canary")
    assert not list(box.base.glob("**/canary"))


def test_the_machines_temp_is_readable_and_what_is_written_there_stays_private(box: Box) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/tmp", prefix="host-") as file:
        file.write("of the host")
        file.flush()
        os.chmod(file.name, 0o644)
        read, write, again = box.run(
            f"cat {file.name}", f"echo changed > {file.name}; echo new > /tmp/canary-new", "cat /tmp/canary-new"
        )
        assert read["data"]["stdout"] == "of the host"
        assert again["data"]["stdout"] == "new\n"
        assert Path(file.name).read_text() == "of the host"
    assert write is not None
    assert not os.path.exists("/tmp/canary-new")


def test_a_workspace_below_the_temp_directory_works() -> None:
    base = Path(tempfile.mkdtemp(prefix="box-", dir="/tmp"))
    try:
        box = Box(User(os.geteuid(), base, (sys.executable,)))
        for folder in (box.workspace, box.home, base / "state"):
            folder.mkdir()
        outside, inside = box.run("echo x > ../canary; cat ../canary", "echo y > f; cat f")
        assert inside["data"]["stdout"] == "y\n"
        assert (box.workspace / "f").read_text() == "y\n"
        assert outside is not None
        assert not (base / "canary").exists()
    finally:
        shutil.rmtree(base)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount something")
def test_a_workspace_beside_other_mounts_of_a_temp_directory_works(box: Box) -> None:
    (box.base / "mounted").mkdir()
    mount = f'mount -t tmpfs none "{box.base}/mounted" && exec "$@"'
    box.user = replace(box.user, python=("unshare", "--mount", "sh", "-c", mount, "sh", *box.user.python))
    written, outside = box.run("echo x > new; cat new", f"echo x > {box.base}/canary")
    assert written["data"]["stdout"] == "x\n"
    assert "namespaces" in written["data"]["sandbox"]["by"]
    assert outside is not None
    assert not (box.base / "canary").exists()


def test_secrets_cannot_be_read_moved_or_replaced(box: Box) -> None:
    results = box.run(
        "cat ~/.ssh/id_rsa",
        "ls ~/.ssh",
        "cat ~/.aws/credentials",
        "cat .env",
        "cat sub/server.pem",
        "mv .env x; cat x",
        "mv sub sub2; cat sub2/server.pem",
        "cp -r . $TMPDIR/copy; cat $TMPDIR/copy/.env",
        "grep -r canary . ~/.ssh",
        "cat /etc/shadow",
        "cat /proc/1/root/etc/shadow /proc/1/environ",
    )
    assert "canary" not in json.dumps([result["data"] for result in results])
    assert [result["ok"] for result in results[:5]] == [False] * 5
    assert not results[-2]["ok"]
    assert (box.workspace / ".env").read_text() == "KEY=canary"


def test_a_rule_that_names_a_secret_lets_commands_read_it(box: Box) -> None:
    box.permissions["allow"].append("Read(sub/*.pem)")
    read, other = box.run("cat sub/server.pem", "cat .env")
    assert read["data"]["stdout"] == "canary"
    assert "Read(.env)" in other["error"]["hint"]


def test_a_secret_that_appears_later_is_covered_too(box: Box) -> None:
    (box.workspace / ".env").unlink()
    made, read = box.run("echo NEW=canary > .env", "cat .env")
    assert made["ok"]
    assert "canary" not in read["data"]["stdout"]


def test_a_secret_that_appears_deep_in_the_workspace_is_covered_too(box: Box) -> None:
    (box.workspace / "sub" / "deep").mkdir()
    box.user.give()
    box.meanwhile = f"echo canary > {box.workspace}/sub/deep/.env"
    _, read = box.run("true", "cat sub/deep/.env; grep -r canary sub")
    assert "canary" not in read["data"]["stdout"]


def test_what_a_rule_denies_to_read_is_hidden_by_every_name_it_has(box: Box) -> None:
    box.permissions["deny"].append("Read(private/**)")
    (box.workspace / "private").mkdir()
    (box.workspace / "private" / "plan.txt").write_text("canary")
    (box.workspace / "plain.txt").write_text("shown")
    os.link(box.workspace / ".env", box.workspace / "second.txt")
    (box.workspace / "soft.txt").symlink_to("private/plan.txt")
    box.user.give()
    results = box.run(
        "grep -rh . .",
        "find . -type f | xargs cat",
        "cat second.txt soft.txt",
        "cp -r . $TMPDIR/copy; cat $TMPDIR/copy/private/plan.txt $TMPDIR/copy/second.txt",
        "ln second.txt third.txt; cat third.txt",
        "mv private public; cat public/plan.txt",
    )
    assert "shown" in results[0]["data"]["stdout"]
    assert "canary" not in json.dumps([result["data"] for result in results])


def test_a_rule_holds_in_a_folder_beside_the_workspace_too(box: Box) -> None:
    (box.base / "shared" / "deep").mkdir(parents=True)
    (box.base / "shared" / "deep" / "kept.cfg").write_text("kept")
    box.user.give()
    box.sandbox["writable"] = [str(box.base / "shared")]
    box.permissions["deny"].append("Edit(*.cfg)")
    folder = f"{box.base}/shared"
    result = box.one(
        writes(f"{folder}/deep/kept.cfg", f"{folder}/deep/free.txt") + f"; mv {folder}/deep {folder}/moved"
    )
    assert result["data"]["stdout"] == "changed\n"
    assert (box.base / "shared" / "deep" / "kept.cfg").read_text() == "kept"


def test_what_git_would_execute_is_protected_and_commits_still_work(box: Box) -> None:
    *refused, commit, log = box.run(
        "echo evil > .git/hooks/pre-commit",
        "git config core.fsmonitor evil",
        "echo evil >> .git/config",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/other",
        "mv .git elsewhere",
        "rm -rf .git/info; echo evil > .git/info/attributes",
        "echo x >> a.txt && git add -A . && git -c user.name=t -c user.email=t@t commit -qm one && git stash list",
        "git log --oneline | wc -l",
    )
    assert [result["ok"] for result in refused] == [False] * len(refused)
    assert commit["ok"], commit["output"]
    assert log["data"]["stdout"] == "2\n"
    assert "hooks" in refused[0]["error"]["hint"]
    assert not (box.workspace / ".git/hooks/pre-commit").exists()


def test_protected_places_that_did_not_exist_are_taken_away_again(box: Box) -> None:
    shutil.rmtree(box.workspace / ".git" / "hooks")
    results = box.run(
        "mkdir .git/hooks && echo evil > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        "mkdir .surehand && echo evil > .surehand/config.toml",
    )
    assert [result["ok"] for result in results] == [False, False]
    assert ".git/hooks" in results[0]["error"]["message"]
    assert results[1]["data"]["put_back"] == [str(box.workspace / ".surehand")]
    assert not (box.workspace / ".git" / "hooks").exists()
    assert not (box.workspace / ".surehand").exists()


def writes(*paths: str) -> str:
    """A program that says nothing of what it is about to write."""
    code = "import os, sys\nfor p in sys.argv[1:]:\n try: os.makedirs(os.path.dirname(p) or '.', exist_ok=True)\n"
    code += " except OSError: pass\n"
    code += (
        " try: print('changed' if open(p, 'w').write('evil') else '')\n except OSError as e: print(e, file=sys.stderr)"
    )
    names = " ".join(f"$(echo {path[:-1]}){path[-1]}" for path in paths)
    return f'python3 -c "{code}" {names}'


@pytest.mark.spec("SHELL-9")
def test_what_a_rule_denies_to_write_is_not_written_by_any_program(box: Box) -> None:
    box.permissions["deny"] += ["Edit(secret.cfg)", "Write(./config/**)", "Edit(*.lock)"]
    kept = ["secret.cfg", "config/prod/a.toml", "sub/deep/uv.lock"]
    for name in kept:
        (box.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (box.workspace / name).write_text("kept")
    os.link(box.workspace / "secret.cfg", box.workspace / "second-name")
    os.link(box.workspace / "config/prod/a.toml", box.workspace / "third-name")
    (box.workspace / "link").symlink_to("secret.cfg")
    box.user.give()
    opened, elsewhere = box.run(
        writes(*kept, "second-name", "third-name", "link"),
        writes("other.cfg", "sub/other.txt", "sub/deep/x"),
        door=True,
    )
    moved, removed, folder, mode, again = box.run(
        "mv sub other-sub",
        "mv config other-config; mv secret.cfg x; rm -rf sub/deep config secret.cfg",
        "mv a.txt config/; touch config/b config/prod/b",
        "chmod 777 secret.cfg; ln -f a.txt secret.cfg; cp a.txt secret.cfg; truncate -s 0 secret.cfg",
        "ls sub/deep config",
    )
    assert "changed" not in opened["data"]["stdout"]
    assert opened["data"]["stderr"].count("Read-only file system") == 6
    assert elsewhere["data"]["stdout"].split() == ["changed"] * 3
    assert [(box.workspace / name).read_text() for name in [*kept, "second-name", "third-name"]] == ["kept"] * 5
    assert [result["ok"] for result in (moved, removed, folder, mode)] == [False] * 4
    assert "a rule denies" in mode["error"]["hint"]
    assert "holds folders in place" in moved["error"]["hint"]
    assert "uv.lock" in again["data"]["stdout"]
    assert "prod" in again["data"]["stdout"]


def test_what_is_made_under_a_denied_name_is_taken_away_again(box: Box) -> None:
    box.permissions["deny"] += ["Edit(secret.cfg)", "Edit(./config/**)", "Edit(*.lock)"]
    made, moved, plain = box.run(
        writes("secret.cfg", "config/prod/a.toml", "sub/new/uv.lock", "sub/new/fine.txt"),
        "mkdir box; echo x > box/b; python3 -c \"import os; os.rename('box', 'conf' + 'ig')\"",
        writes("fine.txt"),
        door=True,
    )
    names = ["config", "secret.cfg", "sub/new/uv.lock"]
    assert made["data"]["put_back"] == [str(box.workspace / name) for name in names]
    assert made["error"]["code"] == "execution_error"
    assert "no command may" in made["output"]
    assert str(box.workspace / "config") in moved["data"]["put_back"]
    assert plain["ok"]
    assert sorted(path.name for path in box.workspace.iterdir()) == [
        ".env",
        ".git",
        ".gitignore",
        "a.txt",
        "fine.txt",
        "sub",
    ]
    assert [path.name for path in (box.workspace / "sub" / "new").iterdir()] == ["fine.txt"]


def test_a_rule_against_all_writing_leaves_a_private_temp_alone(box: Box) -> None:
    box.permissions["deny"].append("Edit")
    file, temp = box.run(writes("a.txt", "b.txt"), "echo x > $TMPDIR/t; cat $TMPDIR/t")
    assert file["data"]["stdout"] == ""
    assert temp["data"]["stdout"] == "x\n"
    assert not (box.workspace / "b.txt").exists()


def test_what_is_covered_or_kept_stays_so_when_its_owner_saves_it_meanwhile(box: Box) -> None:
    box.permissions["deny"].append("Edit(secret.cfg)")
    (box.workspace / "secret.cfg").write_text("kept")
    box.user.give()
    # From outside the sandbox, which an editor is: a hard link keeps the old file, a rename puts a new one in place.
    replace = "for f in ws/.env ws/sub/server.pem ws/secret.cfg ws/.git/config; do cp -p $f $f.new; mv $f.new $f; done"
    box.meanwhile = f"cd {box.base}; {replace}"
    before, after = box.run(
        "cat .env sub/server.pem", f"cat .env sub/server.pem; {writes('secret.cfg', '.git/config')}"
    )
    assert "canary" not in before["output"] + after["output"]
    assert after["data"]["stdout"] == ""
    assert (box.workspace / "secret.cfg").read_text() == "kept"
    assert "evil" not in (box.workspace / ".git/config").read_text()


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_settings_of_surehand_and_the_file_of_a_worktree_stay_as_they_are(box: Box, backend: str) -> None:
    box.without_namespaces = backend == "landlock"
    (box.workspace / "surehand.toml").write_text("[sandbox]\n")
    main = box.base / "main"
    (box.workspace / ".git").rename(main)
    (box.workspace / ".git").write_text(f"gitdir: {main}\n")
    box.user.give()
    result = box.one(writes("surehand.toml", ".git") + "; rm -f .git surehand.toml")
    assert not result["ok"]
    assert ("namespaces" in result["data"]["sandbox"]["by"]) == (backend == "namespaces")
    assert (box.workspace / "surehand.toml").read_text() == "[sandbox]\n"
    assert (box.workspace / ".git").read_text() == f"gitdir: {main}\n"


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_a_repository_is_not_moved_away_to_change_its_settings_elsewhere(box: Box, backend: str) -> None:
    box.without_namespaces = backend == "landlock"
    before = (box.workspace / ".git/config").read_text()
    moves = "mv .git away; git config -f away/config core.pager evil; mv away .git"
    box.run(moves, "mkdir d; mv -T --exchange .git d; echo evil >> d/config; mv -T --exchange .git d")
    assert (box.workspace / ".git/config").read_text() == before


def test_a_worktree_of_git_can_commit(box: Box) -> None:
    main = box.base / "main"
    box.workspace.rename(main)
    git = ["git", "-C", str(main), "-c", "safe.directory=*"]
    subprocess.run([*git, "worktree", "add", "-q", str(box.workspace)], check=True)
    box.user.give()
    commit = "git -c user.name=t -c user.email=t@t commit -qm one"
    result, hook = box.run(
        f"echo x > new && git add -A && {commit} && git log --oneline | wc -l",
        f"echo evil > {main}/.git/hooks/pre-commit",
    )
    assert result["data"]["stdout"] == "2\n", result["output"]
    assert not hook["ok"]


@pytest.mark.spec("SHELL-9")
def test_there_is_no_network_but_a_loopback_of_its_own(box: Box) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    connect = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    talk = "from socket import *; s = create_server(('127.0.0.1', 0)); create_connection(s.getsockname()); print('ok')"
    outside, host, own, udp = box.run(
        f'python3 -c "{connect}" 192.0.2.1 80',
        f'python3 -c "{connect}" 127.0.0.1 {port}',
        f'python3 -c "{talk}"',
        "python3 -c \"import socket; socket.socket(2,2).sendto(b'x',('192.0.2.1',53))\"",
    )
    server.close()
    assert not outside["ok"]
    assert "network = true" in outside["error"]["hint"]
    assert not host["ok"]
    assert own["data"]["stdout"] == "ok\n"
    assert not udp["ok"]


def test_sockets_of_the_machine_cannot_be_reached(box: Box) -> None:
    folder = tempfile.mkdtemp(dir="/tmp")
    os.chmod(folder, 0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        server.listen()
        result = box.one(f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{folder}/s')\"")
    shutil.rmtree(folder)
    assert not result["ok"]


def test_sockets_in_a_home_cannot_be_reached_either(box: Box) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(box.home / "daemon.sock"))
        os.chmod(box.home / "daemon.sock", 0o777)
        server.listen()
        (box.base / "state").chmod(0o755)
        outside = Path(tempfile.mkdtemp(dir="/opt" if os.access("/opt", os.W_OK) else "/var/tmp"))
        outside.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(outside / "s"))
            os.chmod(outside / "s", 0o777)
            other.listen()
            connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
            results = box.run(*(f'python3 -c "{connect}" {path}' for path in (box.home / "daemon.sock", outside / "s")))
        shutil.rmtree(outside)
    assert [result["ok"] for result in results] == [False, False]


def test_the_network_can_be_allowed(box: Box) -> None:
    box.sandbox["network"] = True
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = box.one(f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 3)\"")
    assert result["ok"], result["output"]


def test_a_folder_can_be_made_writable(box: Box) -> None:
    (box.base / "shared").mkdir()
    box.user.give()
    box.sandbox["writable"] = [str(box.base / "shared")]
    assert box.one(f"echo x > {box.base}/shared/f")["ok"]
    assert (box.base / "shared" / "f").exists()


def test_no_privileges_can_be_gained(box: Box) -> None:
    privileges, *others = box.run(
        "grep NoNewPrivs /proc/self/status",
        "mount -t tmpfs none /mnt",
        "unshare -Ur true",
        "umount /proc",
        "mount -o remount,rw /",
        "chroot / true",
    )
    assert privileges["data"]["stdout"].split() == ["NoNewPrivs:", "1"]
    assert [result["ok"] for result in others] == [False] * len(others)


def test_processes_of_the_machine_are_invisible(box: Box) -> None:
    shown, kill = box.run("ls /proc | grep -c '^[0-9]'; ps -e | wc -l", f"kill -0 {os.getpid()}")
    assert int(shown["data"]["stdout"].split()[0]) < 8
    assert not kill["ok"]


def test_a_program_that_waits_at_a_terminal_is_recognised(box: Box) -> None:
    box.timeout_ms = 5_500
    result = box.one("python3 -c \"import pty; pty.spawn(['bash', '-c', 'read answer'])\"")
    assert "bash waited for input" in result["error"]["message"]


def test_memory_and_file_size_are_limited_and_the_limit_is_named(box: Box) -> None:
    box.sandbox.update(memory_mb=256, file_size_mb=1)
    memory, together, size = box.run(
        "python3 -c 'bytearray(10**9)'",
        "for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(10**8); time.sleep(20)' & done; wait",
        "head -c 3000000 /dev/zero > big",
    )
    assert "memory_mb" in memory["error"]["hint"]
    assert "more than 256 MB" in together["error"]["message"]
    assert "file_size_mb" in size["error"]["hint"]
    assert (box.workspace / "big").stat().st_size <= 1 << 20


def test_the_number_of_processes_is_limited(box: Box) -> None:
    box.sandbox["processes"] = 40
    result = box.one("for i in $(seq 400); do sleep 5 & done; wait")
    assert not result["ok"]
    assert result["data"]["usage"]["wall_s"] < 19


def test_a_result_says_what_is_in_force(box: Box) -> None:
    facts = box.one("true")["data"]["sandbox"]
    assert facts["active"] is True
    assert "namespaces" in facts["by"]
    assert "seccomp" in facts["by"]
    assert facts["network"] is False
    assert str(box.workspace) in facts["writable"]
    assert facts["secrets_covered"] >= 4


def test_a_denial_names_the_setting_that_would_allow_it(box: Box) -> None:
    result = box.one("touch /etc/canary")
    assert "writable" in result["error"]["hint"]
    assert str(box.workspace) in result["error"]["hint"]


def test_the_home_the_system_knows_counts_also_where_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    known = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    assert homes() == [str(tmp_path), known]
    monkeypatch.setenv("HOME", known)
    assert homes() == [known]
