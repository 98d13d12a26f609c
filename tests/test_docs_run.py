"""The pages run: every whole program in them, in a demo folder, as a reader would paste it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs_blocks import PYTHON

from surehand.cli.tour import write_demo

ROOT = Path(__file__).parents[1]
_WHOLE = re.compile(r"^(asyncio\.run\(|with Surehand\.sync\()", re.MULTILINE)
"""What a program has that does something by itself; the others are functions, and type-checked."""
PROGRAMS = [
    pytest.param(block.text, id=block.where)
    for block in PYTHON
    if _WHOLE.search(block.text) and not block.reason and not block.page.name.startswith("README")
]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    workspace = tmp_path / "demo"
    workspace.mkdir()
    write_demo(str(workspace))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return workspace


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_of_a_page_runs_and_prints_what_its_comments_say(code: str, demo: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=demo, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for said in re.findall(r"print\(.*\)\s+# (.+)", code):
        assert said in done.stdout


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    named = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in there if page.startswith("decisions/")}
    assert named - there == set(), "the navigation names pages that are not there"
    assert there - decisions - named == set(), "pages that nobody finds"


def block_of(page: str, language: str, word: str) -> str:
    """Return the code block of a page that holds a word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if word in block)


def surehand(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "surehand", "--text", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_batch_runs_and_is_applied(demo: Path) -> None:
    (demo / "tasks.jsonl").write_text(block_of("batch.md", "json", '"greet"'))
    assert "3 tasks: 3 passed" in surehand("batch", "tasks.jsonl", "--out", "results.jsonl", cwd=demo)
    surehand("batch", "apply", "results.jsonl", "greet", cwd=demo)
    assert "Hi " in (demo / "app.py").read_text()


def test_the_first_tool_of_a_folder_is_trusted_called_and_undone(demo: Path) -> None:
    (demo / ".surehand" / "tools").mkdir(parents=True)
    (demo / ".surehand" / "tools" / "note.py").write_text(block_of("add-a-tool.md", "python", "async def note("))
    surehand("trust", "--yes", cwd=demo)
    note = '{"path": "new.txt", "text": "milk"}'
    surehand("--mode", "accept-edits", "tools", "invoke", "note", "--args", note, cwd=demo)
    assert (demo / "new.txt").read_text() == "milk\n"
    surehand("undo", cwd=demo)
    assert not (demo / "new.txt").exists()


def test_the_first_client_of_mcp_edits_and_undoes(demo: Path) -> None:
    code = block_of("mcp.md", "python", "stdio_client")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=demo, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "restored 1 file" in done.stdout
    assert "Hello" in (demo / "app.py").read_text()


def test_the_client_over_http_lists_the_tools_with_the_token_that_the_server_names(demo: Path) -> None:
    command = [sys.executable, "-m", "surehand", "serve", "--http", "0"]
    with subprocess.Popen(command, cwd=demo, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = re.sub(r"^.* at ", "", server.stderr.readline().strip())
            token_file = re.sub(r"^.* is in ", "", server.stderr.readline().strip())
            code = block_of("mcp.md", "python", "streamable_http_client").replace("http://127.0.0.1:8808/mcp", address)
            done = subprocess.run(
                [sys.executable, "-c", code],
                input=token_file + "\n",
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert "'Edit'" in done.stdout
        finally:
            server.terminate()


def test_what_the_page_of_the_policy_shows_of_a_verdict_is_what_is_printed(demo: Path) -> None:
    block = block_of("policy.md", "console", "policy check 'git status && rm -rf build'")
    (shown,) = re.findall(r"^\$ surehand policy check [^\n]*\n(.*?)\n\n", block, re.MULTILINE | re.DOTALL)
    assert surehand("policy", "check", "git status && rm -rf build", cwd=demo).strip() == shown.replace(
        "/srv/app", str(demo)
    )
