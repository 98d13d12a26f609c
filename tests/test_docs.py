"""The docs are true: links lead somewhere, examples compile, the short ones run, named commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from surehand import tool
from surehand.cli.main import COMMANDS
from surehand.testing import scratch_app

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def blocks(language: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for number, (named, text) in enumerate(_BLOCK.findall(page.read_text())):
            if named == language:
                found.append((f"{page.relative_to(ROOT)}#{number}", text))
    return found


PYTHON = blocks("python")
MENTIONED = sorted(
    {
        word
        for page in PAGES
        if page.name != "add-a-command.md"
        for word in re.findall(r"`surehand ([a-z]+)", page.read_text())
    }
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    targets = [target for target, _ in _LINK.findall(page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


async def test_the_approver_of_the_sandbox_page_answers_for_every_tool(tmp_path: Path) -> None:
    code = next(code for where, code in PYTHON if where.startswith("docs/sandbox.md") and "approver=decide" in code)
    page: dict[str, Any] = {}
    exec(compile(code, "docs/sandbox.md", "exec"), page)
    (tmp_path / "a.txt").write_text("one\n")

    @tool
    def post(text: str) -> str:
        "Post something, which has no dry run."
        return text

    async with scratch_app(tmp_path, tools=[post], approver=page["decide"]) as app:
        ran = await app.call("Bash", {"command": "echo two >> a.txt"})
        failing = await app.call("Bash", {"command": "echo three >> a.txt; false"})
        await app.call("Read", {"file_path": "a.txt"})
        edited = await app.call("Edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"})
        posted = await app.call("post", {"text": "hello"})
    assert (ran.ok, edited.ok) == (True, True), (ran.output, edited.output)
    assert failing.error is not None
    assert failing.error.code == "permission_denied"
    assert posted.error is not None
    assert "only what a dry run showed is allowed" in posted.error.message + posted.error.hint
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"


def test_the_programs_of_examples_compile() -> None:
    for path in (ROOT / "examples").rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("command", MENTIONED)
def test_every_command_the_docs_mention_exists(command: str) -> None:
    assert command in COMMANDS


def test_the_readme_names_the_two_commands_of_a_fresh_machine() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for verb in re.findall(r"(?:`|\$ )make ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{verb}:", makefile, re.MULTILINE), verb


def test_no_page_names_a_path_of_a_developers_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(work/(main|shared)|root|home/[a-z]+)/", page.read_text()), page


def test_every_decision_has_a_number_of_its_own_that_its_title_repeats() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [page.name.partition("-")[0] for page in pages]
    assert [number for number in set(numbers) if numbers.count(number) > 1] == []
    titles = {page.name: page.read_text().partition("\n")[0] for page in pages}
    assert [name for name, title in titles.items() if name.partition("-")[0] not in title] == []


def test_every_decision_is_found_by_its_subject() -> None:
    folder = ROOT / "docs" / "decisions"
    named = re.findall(r"\((\d[\w-]+\.md)\)", (folder / "index.md").read_text())
    assert sorted(named) == sorted(page.name for page in folder.glob("[0-9]*.md")), "docs/decisions/index.md"


def test_the_changelog_has_one_short_line_a_change_under_the_three_headings() -> None:
    _, *versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    for version in versions:
        parts = re.split(r"^### ", version, flags=re.MULTILINE)
        assert {part.split("\n")[0] for part in parts[1:]} <= {"Added", "Changed", "Fixed"}
        for line in "\n".join(part.partition("\n")[2] for part in parts[1:]).splitlines():
            assert not line or (line.startswith("- ") and len(line) <= 120), line
