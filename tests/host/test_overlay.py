"""A command tried on a layer: every kind of change is seen, nothing of it happens, and it can be made real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.call import ToolCall
from holdfast.core.context import ToolContext
from holdfast.core.session import Session
from holdfast.core.settings import SandboxSettings, Settings
from holdfast.core.tool import Preview
from holdfast.host import overlay
from holdfast.host.process import Command
from holdfast.host.sandbox import probe
from holdfast.host.shells import SHELLS
from holdfast.tools.bash_trial import tried

pytestmark = pytest.mark.skipif(
    not probe.abilities().overlay, reason=f"no overlay in namespaces here: {probe.abilities().why_not}"
)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    workspace = tmp_path / "ws"
    for name, text in (
        ("a.txt", "one\ntwo\n"),
        ("b.txt", "b\n"),
        ("d/x.txt", "x\n"),
        ("d/e/y.txt", "y\n"),
        ("run.sh", "#\n"),
    ):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (workspace / "link").symlink_to("a.txt")
    session = Session(str(workspace), settings=Settings(), state_dir=str(tmp_path / "state"))
    yield session
    await session.close()


def snapshot(folder: str | Path) -> str:
    listing = "find . -printf '%P %y %m %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 -r sha256sum"
    return subprocess.run(["bash", "-c", listing], cwd=folder, capture_output=True, text=True, check=True).stdout


async def preview(session: Session, command: str, timeout_s: float = 20) -> Preview:
    call = ToolCall("Bash", {"command": command})
    return await tried(command, timeout_s, ToolContext(call, session, lambda progress: None, {}))


CASES = {
    "create": ("echo new > new.txt", {"new.txt": "created"}),
    "change": ("sed -i s/two/2/ a.txt", {"a.txt": "changed"}),
    "append": ("echo three >> a.txt", {"a.txt": "changed"}),
    "delete": ("rm b.txt", {"b.txt": "deleted"}),
    "mode": ("chmod 755 run.sh", {"run.sh": "mode changed"}),
    "link": ("ln -s b.txt other; ln -sfn d link", {"other": "created", "link": "changed"}),
    "folder": ("mkdir -p n/m", {"n": "created", "n/m": "created"}),
    "remove a folder": ("rm -r d", {"d": "deleted", "d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted"}),
    "replace a folder": (
        "rm -r d; mkdir d; echo z > d/z.txt",
        {"d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted", "d/z.txt": "created"},
    ),
    "move a folder": (
        "mv d/e d/f",
        {"d/e": "deleted", "d/e/y.txt": "deleted", "d/f": "created", "d/f/y.txt": "created"},
    ),
    "file becomes a folder": ("rm b.txt; mkdir b.txt; touch b.txt/i", {"b.txt": "changed", "b.txt/i": "created"}),
    "folder becomes a file": (
        "rm -r d; echo d > d",
        {"d": "changed", "d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted"},
    ),
    "touch": ("touch a.txt; chmod 644 a.txt", {}),
    "there and back": ("mv a.txt t; mv t a.txt", {}),
    "outside": ("echo x > $TMPDIR/x", {}),
}


@pytest.mark.parametrize("case", CASES)
async def test_every_kind_of_change_is_seen_and_nothing_happens(session: Session, case: str) -> None:
    os.chmod(Path(session.workspace, "a.txt"), 0o644)
    command, expected = CASES[case]
    before = snapshot(session.workspace)
    shown = await preview(session, command)
    assert {str(each["path"]): each["action"] for each in shown.data["changes"]} == expected
    assert shown.data["exit_code"] == 0
    assert snapshot(session.workspace) == before


@pytest.mark.parametrize("case", CASES)
async def test_a_tried_change_made_real_is_what_the_command_would_have_done(
    session: Session, case: str, tmp_path: Path
) -> None:
    command, _ = CASES[case]
    twin = tmp_path / "twin"
    subprocess.run(["cp", "-a", session.workspace, str(twin)], check=True)
    subprocess.run(["bash", "-c", command], cwd=twin, check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    shells = session.keep(SHELLS)
    launcher = await shells.trial_launcher()
    assert launcher is not None
    trial = overlay.Trial.make(shells.trial_folder("t"), launcher.plan.workspace)
    environment = shells.environment("t")
    run = launcher.run(
        Command(("/bin/bash", "-c", command), session.workspace, environment),
        bytearray().extend,
        bytearray().extend,
        overlay=trial.layer,
    )
    await run.finish(20)
    trial.apply(trial.differences())
    trial.drop()
    assert snapshot(session.workspace) == snapshot(twin)


async def test_the_diff_shows_lines_and_notes_what_is_binary(session: Session) -> None:
    shown = await preview(session, "sed -i s/two/zwei/ a.txt; head -c 100 /dev/zero > blob; chmod +x run.sh; echo done")
    assert "-two\n+zwei\n" in shown.diff
    assert "created blob: binary or large, not shown" in shown.diff
    assert "mode changed run.sh: mode 6" in shown.diff
    assert "done" in shown.text
    assert "3 paths would change" in shown.text


async def test_a_failing_and_an_endless_command_are_tried_too(session: Session) -> None:
    failing = await preview(session, "echo partial > a.txt; exit 4")
    assert failing.data["exit_code"] == 4
    endless = await preview(session, "echo partial > b.txt; sleep 600", timeout_s=0.3)
    assert endless.data["stopped"] == "timeout"
    assert [each["path"] for each in endless.data["changes"]] == ["b.txt"]


async def test_secrets_and_hooks_are_kept_from_a_trial(session: Session) -> None:
    Path(session.workspace, ".env").write_text("canary")
    subprocess.run(["git", "init", "-q"], cwd=session.workspace, check=True)
    shown = await preview(session, "cat .env; echo evil > .git/hooks/pre-commit; git add -A . 2>&1; touch $HOME/x")
    assert "canary" not in shown.diff
    assert not any("hooks" in str(each["path"]) for each in shown.data["changes"])


async def test_a_trial_has_no_network_even_where_commands_have_it(tmp_path: Path) -> None:
    settings = Settings(sandbox=SandboxSettings(network=True))
    session = Session(str(tmp_path), settings=settings, state_dir=None)
    shown = await preview(session, "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 9), 1)\"")
    assert "unreachable" in shown.data["stderr"]
    await session.close()


async def test_nothing_of_a_trial_is_left(session: Session) -> None:
    await preview(session, "mkdir -m 000 locked; touch x")
    folder = Path(session.keep(SHELLS).private_dir, "trials")
    assert list(folder.iterdir()) == []
