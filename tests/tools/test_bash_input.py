"""Commands that want somebody to type: nobody can, and whoever runs them is told."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from surehand import Event, Surehand
from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.sandbox import protocol
from surehand.testing import scratch_app
from surehand.tools.background import BACKGROUND

MODES = ["off", *(["required"] if protocol.available() else [])]
AT_A_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"


def at_a_terminal(*words: str) -> str:
    """A command line that gives a program a terminal at which nobody sits."""
    return f'{sys.executable} -c "{AT_A_TERMINAL}" ' + " ".join(f"'{word}'" for word in words)


ASKING = {
    "bash": at_a_terminal("bash", "-c", "read answer"),
    "sh": at_a_terminal("sh", "-c", "read answer < /dev/tty"),
    Path(sys.executable).name: at_a_terminal(sys.executable, "-c", "input()"),
}
NOT_ASKING = [
    "sleep 3 | cat",
    "mkfifo f; (sleep 3; echo > f) & read answer < f",
    at_a_terminal("sleep", "3"),
    at_a_terminal("bash", "-c", "end=$((SECONDS + 3)); while [ $SECONDS -lt $end ]; do :; done"),
]


async def run(app: Surehand, command: str, timeout_s: float) -> ToolResult:
    return await app.call("Bash", {"command": command, "timeout": int(timeout_s * 1000)})


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_waits_at_a_terminal_is_named_and_one_that_waits_for_another_is_not(
    tmp_path: Path, mode: str
) -> None:
    told: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "call_progress" and "waits for input" in (text := event.data["progress"].text):
            told.append(text.split()[0])

    async with scratch_app(tmp_path, settings=Settings.parse({"sandbox": {"mode": mode}})) as app:
        app.bus.subscribe(listen)
        asking = [run(app, command, 5.5) for command in ASKING.values()]
        results = await asyncio.gather(*asking, *(run(app, command, 20) for command in NOT_ASKING))
    for name, result in zip(ASKING, results, strict=False):
        assert result.error is not None
        assert result.error.code == "timeout"
        assert f"{name[:15]} waited for input" in result.error.message
        assert "no input" in result.error.hint
        assert result.data["waiting_for_input"] is True
    assert sorted(told) == sorted(name[:15] for name in ASKING)
    assert [("waiting_for_input" in result.data, result.error) for result in results[3:]] == [(False, None)] * 4


@pytest.mark.skipif(shutil.which("vim") is None, reason="no vim here")
async def test_an_editor_that_asks_where_it_prints_is_recognised_too(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await run(app, "vim file", 5.5)
    assert result.data["waiting_for_input"] is True


async def test_a_background_command_that_waits_says_so_while_it_does(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        await app.call("Bash", {"command": ASKING["bash"], "run_in_background": True})
        task = app.session.keep(BACKGROUND).get("bg_task_1")
        for _ in range(1000):
            if task.facts().get("waiting_for_input"):
                break
            await asyncio.sleep(0.01)
        assert task.facts()["waiting_for_input"] == "bash"
        await task.stop()


async def test_a_persistent_shell_knows_which_of_its_commands_waits(tmp_path: Path) -> None:
    settings = Settings.parse({"tools": {"Bash": {"custom": {"persistent": True}}}})
    async with scratch_app(tmp_path, settings=settings) as app:
        assert (await run(app, "true", 20)).ok
        result = await run(app, ASKING["bash"], 5.5)
    assert result.data["waiting_for_input"] is True


@pytest.mark.parametrize(
    ("command", "ok"),
    [
        ("read answer", False),
        ("bash -c 'read answer' < /dev/tty", False),
        (f"{sys.executable} -c 'input()'", False),
        (f"{sys.executable} -c \"open('/dev/tty')\"", False),
        ("printf 'Overwrite it? ' >&2; exit 1", False),
        ("touch f; rm -i f", True),
        ("select x in a b; do echo $x; done", False),
    ],
)
async def test_an_input_that_is_empty_is_the_reason_given(tmp_path: Path, command: str, ok: bool) -> None:
    async with scratch_app(tmp_path) as app:
        result = await run(app, command, 20)
    assert result.ok is ok
    assert result.data["waiting_for_input"] is True
    assert "Commands get no input" in result.output


@pytest.mark.skipif("required" not in MODES, reason="no sandbox here")
async def test_a_command_that_met_the_sandbox_too_is_told_both(tmp_path: Path) -> None:
    asking = f"{sys.executable} -c \"import os\ntry: input()\nfinally: os.mkdir('/usr/surehand-probe')\""
    async with scratch_app(tmp_path, settings=Settings.parse({"sandbox": {"mode": "required"}})) as app:
        result = await run(app, asking, 20)
    assert result.data["waiting_for_input"] is True
    assert "Commands get no input" in result.output
    assert "The sandbox lets commands write only in" in result.output


@pytest.mark.parametrize("command", ["false", "ls nothing", "echo 'what?'; exit 3", "printf 'a:\\n' >&2; exit 1"])
async def test_other_failures_are_not_put_down_to_it(tmp_path: Path, command: str) -> None:
    async with scratch_app(tmp_path) as app:
        result = await run(app, command, 20)
    assert "waiting_for_input" not in result.data


async def test_git_opens_no_editor(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await run(app, "git init -q . && git -c user.name=t -c user.email=t@t commit --allow-empty", 20)
    assert "empty commit message" in result.output
