"""The guides run: every program in them, in a demo folder, as a reader would paste it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surehand.cli.demo import write_demo

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(code, id=f"{page.stem}#{number}")
    for page in PAGES
    for number, code in enumerate(_BLOCK.findall(page.read_text()))
]


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_program_of_a_guide_runs_and_prints_what_its_comments_say(code: str, tmp_path: Path) -> None:
    workspace = tmp_path / "demo"
    workspace.mkdir()
    write_demo(str(workspace))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, timeout=60, check=False
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
