"""Every fenced block of the pages is held against the program: run, type-checked, or parsed by what would read it.

A block that cannot be run says why on the line before it, for readers of the source and of `pytest -rs` alike:
`<!-- not run: a drawing -->`. There is no other way to be left out: a language without a check fails.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
from scripts import docs_pages

from surehand import catalog
from surehand.agent.subagents import parse_profile
from surehand.batch.tasks import read_tasks
from surehand.cli.main import COMMANDS, _global_options, _parser, load_command, main
from surehand.slash import load_commands
from surehand.state import locations

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted({*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")})
GENERATED: Final = ("tools.md", "reference/settings.md", "reference/command-line.md", "reference/api.md")
_FENCE: Final = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(\S*)")
_REASON: Final = re.compile(r"<!-- not run: (.{4,}) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language, its text, and why it is not run, if it says so."""

    page: Path
    line: int
    language: str
    text: str
    reason: str

    @property
    def where(self) -> str:
        """The page and the line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield every fenced block of a page; a fence that is never closed is a fault of the page."""
    lines = page.read_text().splitlines()
    start: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        if (fence := _FENCE.match(line)) is None:
            continue
        if start is None:
            start = number, fence[2], fence[3]
        elif fence[2].startswith(start[1]) and not fence[3]:
            begun, _, language = start
            reason = _REASON.fullmatch(lines[begun - 1].strip()) if begun else None
            text = "\n".join(lines[begun + 1 : number]) + "\n"
            yield Block(page, begun + 1, language, text, reason[1] if reason else "")
            start = None
    assert start is None, f"{page}: the block of line {start[0] + 1} is never closed"


BLOCKS: Final = [block for page in PAGES for block in read_blocks(page)]
PYTHON: Final = [block for block in BLOCKS if block.language == "python"]


# -- the command line --------------------------------------------------------------------------------------------------


def check_console(block: Block, _: Path) -> None:
    """Parse every command that is typed in it, each by its own reader."""
    typed = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
    assert typed, "no line begins with `$ `; is it `text`?"
    for line in typed:
        for words in split_commands(line):
            check_command(words)


def split_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of every simple command of a line, without assignments and targets of redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    target = False
    for word in [*lexer, ";"]:
        if word in (";", "&&", "||", "|", "&"):
            if words:
                yield words
            words = []
        elif word in (">", ">>", "<"):
            target = True
        elif target:
            target = False
        elif words or not re.fullmatch(r"[A-Z_]+=.*", word):
            words.append(word)


def check_command(words: list[str]) -> None:
    """Let the real parser read a command; one that nobody here can read is a fault."""
    match words:
        case ["surehand", *rest]:
            check_surehand(rest)
        case ["claude", "mcp", "add", _, "--", "surehand", *rest]:
            check_surehand(rest)
        case ["make", verb]:
            assert re.search(rf"^{verb}:", (ROOT / "Makefile").read_text(), re.MULTILINE), verb
        case ["pip", "install", package]:
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            found = re.fullmatch(r"(?:\.|surehand)(?:\[([\w,-]+)\])?", package)
            assert found is not None, package
            assert set((found[1] or "all").split(",")) <= set(known), package
        case ["cd", _]:
            pass
        case _:
            pytest.fail(f"nothing here can read {' '.join(words)}")


def check_surehand(words: list[str]) -> None:
    """Parse the words of `surehand` as the program does, and the arguments of a call by the tool's own schema."""
    _, rest = _global_options(words)
    if rest in ([], ["--help"], ["--version"]):
        return
    name, *rest = rest
    assert name in COMMANDS, name
    parser = _parser(name, COMMANDS[name][1])
    load_command(name)[0](parser)
    options = parser.parse_args(rest)
    if getattr(options, "args", None) not in (None, "-") and isinstance(options.args, str):
        given = json.loads(options.args)
        named = getattr(options, "name", None) or getattr(options, "tool", None)
        if (schema := SCHEMAS.get(named or "")) is not None:
            jsonschema_rs.validate(schema, given)


SCHEMAS: Final[dict[str, Any]] = {row["name"]: row["inputSchema"] for row in catalog.rows()}


# -- the other languages -----------------------------------------------------------------------------------------------


def check_python(block: Block, _: Path) -> None:
    """Compile it; what it means is type-checked below, and whole programs are run by the tests of pages."""
    compile(block.text, block.where, "exec")


def check_settings(block: Block, folder: Path) -> None:
    """Let the program read it as the user's settings, rules and their examples included."""
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)
    assert main(["--cwd", str(folder), "policy", "list", "--json"]) == 0


def check_json(block: Block, folder: Path) -> None:
    """Read tasks of a batch as a batch does, and what starts us by the words we are started with."""
    if '"agent_servers"' in block.text:
        (server,) = json.loads(block.text)["agent_servers"].values()
        assert server["command"] == "surehand"
        check_surehand(server["args"])
        return
    (folder / "tasks.jsonl").write_text(block.text)
    assert read_tasks(str(folder / "tasks.jsonl"))


def check_markdown(block: Block, folder: Path) -> None:
    """Read it as the definition of an agent or of a slash command."""
    if "\nname:" in block.text:
        parse_profile(block.text, block.where)
        return
    commands = folder / ".surehand" / "commands"
    commands.mkdir(parents=True)
    (commands / "review.md").write_text(block.text)
    found, problems = load_commands(str(folder), trusted=True)
    assert (list(found), problems) == (["review"], [])


def check_text(block: Block, _: Path) -> None:
    """A page that is written by the program is compared whole; elsewhere plain text must say why it is not run."""
    written = {ROOT / "docs" / name for name in GENERATED}
    assert block.page in written, "say before it why it is not run: <!-- not run: ... -->"


CHECKS: Final[dict[str, Callable[[Block, Path], None]]] = {
    "console": check_console,
    "python": check_python,
    "toml": check_settings,
    "json": check_json,
    "markdown": check_markdown,
    "text": check_text,
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_a_block_is_read_by_what_would_read_it(block: Block, tmp_path: Path) -> None:
    if block.reason and block.language != "python":
        pytest.skip(f"{block.where}: {block.reason}")
    assert block.language in CHECKS, f"no check for {block.language or 'a block that names no language'!r}"
    CHECKS[block.language](block, tmp_path)


def test_pages_that_the_program_writes_are_as_it_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pages = docs_pages.pages()
    assert set(pages) == set(GENERATED)
    if sys.version_info[:2] != (3, 11):
        pytest.skip("argparse and inspect word their pages otherwise in other versions than 3.11")
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text() == text, f"{name}: run `make docs`"


# -- types -------------------------------------------------------------------------------------------------------------


def missing_module(block: Block) -> str:
    """Return the first module it imports that is not installed here."""
    for node in ast.walk(ast.parse(block.text)):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            framework = FRAMEWORKS.get(name, top)
            if importlib.util.find_spec(framework.partition(".")[0]) is None or not importlib.util.find_spec(framework):
                return framework
    return ""


FRAMEWORKS: Final = {
    "surehand.integrations.claude_sdk": "claude_agent_sdk",
    "surehand.integrations.google_adk": "google.adk",
    "surehand.cluster": "ray",
    "google.adk.agents": "google.adk",
}
"""What a module of ours needs beside us, and packages that share a name with others."""

HERE: Final = [block for block in PYTHON if not missing_module(block)]
ELSEWHERE: Final = [block for block in PYTHON if missing_module(block)]


@pytest.mark.timeout(600)
def test_python_blocks_are_free_of_faults_that_a_type_checker_sees(tmp_path: Path) -> None:
    places = {f"block_{number}.py": block for number, block in enumerate(HERE)}
    for name, block in places.items():
        (tmp_path / name).write_text(block.text)
    settings = {"include": ["."], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(places)
    faults = [each for each in found["generalDiagnostics"] if each["severity"] == "error"]
    assert [f"{places[Path(each['file']).name].where}: {each['message']}" for each in faults] == []


@pytest.mark.parametrize("block", ELSEWHERE, ids=lambda block: block.where)
def test_a_python_block_that_needs_a_framework_is_checked_where_that_is_installed(block: Block) -> None:
    verb = "test-cluster" if missing_module(block) == "ray" else "test-integrations"
    pytest.skip(f"{block.where} needs {missing_module(block)}; `make {verb}` runs these tests with it")
