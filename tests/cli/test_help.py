"""`surehand help` and `surehand demo`: what a stranger with nothing but the installed package can open and try."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def surehand(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surehand", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_help_lists_the_commands_and_the_pages(tmp_path: Path) -> None:
    shown = surehand("help", cwd=tmp_path)
    assert shown.returncode == 0
    assert "undo" in shown.stdout
    assert re.search(r"policy\s+Policy: what may happen", shown.stdout)
    assert re.search(r"files-and-a-shell +Give your agent", shown.stdout)


def test_a_page_is_shown_as_text_also_into_a_pipe_and_as_json_when_asked(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    assert surehand("help", "glossary", cwd=tmp_path).stdout.splitlines()[0] == page.splitlines()[0]
    assert json.loads(surehand("help", "glossary", "--json", cwd=tmp_path).stdout) == {"page": "glossary", "text": page}


def test_a_link_is_shown_as_the_command_that_opens_its_page(tmp_path: Path) -> None:
    shown = surehand("help", "take-it-back", cwd=tmp_path).stdout
    assert "(write a tool: `surehand help add-a-tool`)" in shown
    assert "More on the history (`surehand help history`)." in shown
    for page in ("console", "frameworks", "mcp"):
        shown = surehand("help", page, cwd=tmp_path).stdout
        assert not re.search(r"\]\([^)]*\.(md|png)", shown)


def test_help_of_a_command_is_that_commands_help(tmp_path: Path) -> None:
    assert surehand("help", "undo", cwd=tmp_path).stdout == surehand("undo", "--help", cwd=tmp_path).stdout


def test_every_command_tells_its_options_without_any_extra(tmp_path: Path) -> None:
    extras = "acp mcp mcp_types httpx2 starlette uvicorn prompt_toolkit anthropic openai PIL pypdfium2 ray keyring"
    without = f"import sys; sys.modules.update(dict.fromkeys({extras.split()!r}))"
    command = [sys.executable, "-c", f"{without}; from surehand.cli.main import main; sys.exit(main())", "completion"]
    done = subprocess.run([*command, "bash"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "--tool-allow" in done.stdout


@pytest.mark.parametrize("topic", ["polcy", "../README", "/etc/passwd", ""])
def test_a_topic_that_is_no_page_is_refused(topic: str, tmp_path: Path) -> None:
    shown = surehand("help", topic, cwd=tmp_path)
    assert shown.returncode == 2
    assert "lists the pages" in shown.stderr
    assert ("policy" in shown.stderr) == (topic == "polcy")


def test_a_word_of_a_title_leads_to_its_page(tmp_path: Path) -> None:
    assert "did you mean 'write-a-rule'?" in surehand("help", "rules", cwd=tmp_path).stderr


def test_every_page_that_a_message_names_can_be_opened(tmp_path: Path) -> None:
    named: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r"`surehand help ([a-z-]+)`", path.read_text()))
    assert named, "messages name pages"
    missing = [topic for topic in sorted(named) if not (ROOT / "docs" / f"{topic}.md").exists()]
    assert missing == []


def test_no_message_names_a_page_that_only_a_checkout_has() -> None:
    found: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        text = re.sub(r'"""(?:.|\n)*?"""|^\s*#.*$', "", path.read_text(), flags=re.MULTILINE)
        found += [f"{path.name}: {each}" for each in re.findall(r"docs/[a-z-]+\.md", text)]
    assert found == []


def test_the_demo_folder_is_what_the_readme_shows(tmp_path: Path) -> None:
    made = surehand("demo", "demo", cwd=tmp_path)
    assert made.returncode == 0
    demo = tmp_path / "demo"
    assert sorted(os.listdir(demo)) == [".env", ".gitignore", "app.py", "debug.log", "notes.txt"]
    assert (demo / "notes.txt").read_bytes() == b"first line\r\nsecond line\r\n"
    found = surehand("tools", "invoke", "Grep", "--text", "--args", '{"pattern": "TODO"}', cwd=demo)
    assert "app.py:2:" in found.stdout


def test_the_demo_is_never_written_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    refused = surehand("demo", ".", cwd=tmp_path)
    assert refused.returncode == 2
    assert "not empty" in refused.stderr
    assert os.listdir(tmp_path) == ["mine.txt"]
