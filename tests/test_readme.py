"""The README: its programs do what their comments say, and the Chinese one is in step with the English one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surehand.cli.tour import write_demo

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = (ROOT / "README.md").read_text(), (ROOT / "README.zh-CN.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", ENGLISH, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_of_the_readme_prints_what_its_comment_says(code: str, tmp_path: Path) -> None:
    workspace = tmp_path / "demo"
    workspace.mkdir()
    write_demo(str(workspace))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, timeout=300, check=False
    )
    (said,) = re.findall(r"print\(.*\)\s+# (.+)", code)
    assert done.stdout.strip() == said, done.stderr


def shape(text: str) -> list[str]:
    """Return the skeleton of a page: headings by depth, code blocks whole, tables by their columns, links by target."""
    found: list[str] = []
    for block in re.split(r"^(```.*?^```)$", text, flags=re.MULTILINE | re.DOTALL):
        if block.startswith("```"):
            found.append(block)
            continue
        for line in block.splitlines():
            if heading := re.match(r"#+", line):
                found.append(heading[0])
            elif line.startswith("|"):
                found.append(f"row of {line.count('|')}")
            found += re.findall(r"\]\(([^)]+)\)", line)
    return found


def test_the_chinese_readme_has_the_same_headings_blocks_tables_and_links() -> None:
    other = {"README.zh-CN.md": "README", "README.md": "README"}
    assert [other.get(each, each) for each in shape(CHINESE)] == [other.get(each, each) for each in shape(ENGLISH)]


def test_the_first_screen_has_the_two_commands() -> None:
    first = "\n".join(ENGLISH.splitlines()[:20])
    assert "make run" in first
    assert "make test" in first


def test_every_entry_about_others_leads_to_its_source() -> None:
    (table,) = re.findall(r"## Compared with others\n.*?((?:^\|[^\n]*\n)+)", ENGLISH, re.MULTILINE | re.DOTALL)
    heads, _, *rows = [[cell.strip() for cell in line.strip("\n")[1:-1].split("|")] for line in table.splitlines()]
    bare = [(heads[place], cell) for row in [heads, *rows] for place, cell in enumerate(row) if place > 1]
    assert [each for each in bare if each[1] != "–" and not re.fullmatch(r"\[[^]]+\]\(https://\S+\)", each[1])] == []
    assert all(re.fullmatch(r"\[[^]]+\]\(docs/\S+\)", row[1]) for row in rows), "ours lead to our own pages"
