"""The class of a command chooses what is kept of its output, what a question says, and what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.text import STDERR_LIMIT, STDOUT_LIMIT
from surehand.testing import Says, scratch_app

LINES = 60_000


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(LINES)))
    (tmp_path / "Makefile").write_text("all:\n\t@cat lines.txt\n")
    return tmp_path


async def shown(workspace: Path, command: str) -> str:
    async with scratch_app(workspace, approver=Says("once")) as app:
        result = await app.call("Bash", {"command": command})
    assert result.ok, result.error
    assert len(result.output.encode()) <= STDOUT_LIMIT + STDERR_LIMIT
    return result.output


async def test_a_search_keeps_its_head(lines: Path) -> None:
    text = await shown(lines, "grep line lines.txt")
    assert "line 15000\n" in text
    assert f"line {LINES - 1}" not in text


async def test_a_read_keeps_both_ends(lines: Path) -> None:
    text = await shown(lines, "cat lines.txt")
    assert "line 10000\n" in text
    assert f"line {LINES - 1}\n" in text + "\n"


@pytest.mark.skipif(not Path("/usr/bin/make").exists(), reason="there is no make here")
async def test_a_build_keeps_its_tail(lines: Path) -> None:
    text = await shown(lines, "make")
    assert f"line {LINES - 10000}\n" in text
    assert "line 10000\n" not in text


async def test_empty_lines_on_stderr_stay_within_the_limit_marks_included(tmp_path: Path) -> None:
    text = await shown(tmp_path, "yes '' | head -55000 >&2; yes x | head -300000")
    assert "[stderr] " in text


async def test_a_silent_command_says_that_it_is_done(tmp_path: Path) -> None:
    assert await shown(tmp_path, "mkdir made") == "(done)"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("mkdir a", "The command changes files and prints nothing."),
        ("echo x > a", "The command writes files."),
        ("ls | frobnicate", "The command runs a program."),
        ("cat /etc/passwd", "The command reads."),
    ],
)
async def test_a_question_says_what_kind_of_command_it_is_about(tmp_path: Path, command: str, said: str) -> None:
    says = Says("no")
    async with scratch_app(tmp_path, approver=says) as app:
        await app.call("Bash", {"command": command})
    (question,) = says.asked
    assert said in question.text()


@pytest.mark.parametrize(
    ("rule", "warned"),
    [
        ("Bsh(ls)", "did you mean Bash?"),
        ("WebFech", "did you mean WebFetch?"),
        ("mcp__later__tool", ""),
        ("deploy_to_production", ""),
        ("Bash(ls)", ""),
        ("Edit(src/**)", ""),
    ],
)
def test_a_rule_that_nearly_names_a_tool_is_warned_of(tmp_path: Path, rule: str, warned: str) -> None:
    app = Surehand(tmp_path, keep_state=False, allow=[rule])
    found = [warning for warning in app.warnings if rule in warning]
    assert [warned in warning for warning in found] == ([True] if warned else [])
