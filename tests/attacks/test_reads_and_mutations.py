"""Reads and mutations as they are typed in a repository, labelled by hand: which reads ask, and no mutation runs.

In `reads.txt` the lines after `## run` run unasked, those after `## needless` ask and need not, those after
`## ask: reason` may ask. All of `mutations.txt` asks or is refused.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy
from surehand.shell.programs import PROGRAMS, load_families

HERE = Path(__file__).parent
FILES = """
README.md src/app.py src/util.py src/pkg/mod.py src/main.rs tests/test_app.py docs/guide.md docs/api.md data.csv
app.log config.yaml Makefile CHANGELOG.md a.txt b.txt versions.txt deps.txt files.txt script.sh setup.cfg main.go x.c
pom.xml lib.a a.out lib.so doc.pdf Dockerfile docker-compose.yml .dockerignore .github/workflows/ci.yml x.tar x.tar.gz
x.zip app.log.gz
"""
WRITTEN = {
    "package.json": '{"name": "x", "version": "1.0.0", "scripts": {"test": "true"}}\n',
    "data.json": "[]\n",
    "go.mod": "module example.test/x\n\ngo 1.22\n",
    "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n',
    "pyproject.toml": "[tool.ruff]\nline-length = 100\n",
    ".gitignore": ".env\nid_rsa\n",
    ".env": "KEY=1\n",
    "id_rsa": "KEY\n",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of two commits with a change that is not committed."""
    folder = tmp_path_factory.mktemp("repository")
    for name, text in {**dict.fromkeys(FILES.split(), "foo main 1\n"), **WRITTEN}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    person = ("-c", "user.name=x", "-c", "user.email=x@x.test")
    for words in (
        ("init", "-q", "-b", "main"),
        ("remote", "add", "origin", "https://example.test/x.git"),
        ("add", "-A"),
        (*person, "commit", "-qm", "one"),
        (*person, "commit", "-qm", "two", "--allow-empty"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True, env=environment)
    (folder / "README.md").write_text("changed\n")
    return folder


def decide(repository: Path, commands: Sequence[str], mode: str = "default") -> dict[str, str]:
    app = Surehand(repository, keep_state=False)
    checker = Checker(Policy.from_settings(app.settings, str(repository)), app.session, app.registry)
    return {each: checker.check("Bash", {"command": each}, mode)["decision"] for each in commands}


def read_list(name: str) -> dict[str, str]:
    """Return each command of a list with the heading it stands under."""
    found: dict[str, str] = {}
    heading = ""
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("##"):
            heading = line[2:].strip()
        elif line.strip():
            found[line.replace("⏎", "\n")] = heading
    return found


@pytest.mark.spec("PERM-9")
def test_reads_that_need_no_question_run_unasked(repository: Path) -> None:
    reads = read_list("reads.txt")
    decisions = decide(repository, [each for each, heading in reads.items() if heading.startswith("run")])
    needless = sum(heading.startswith("needless") for heading in reads.values())
    assert len(decisions) > 740
    assert needless < 0.03 * len(decisions)
    assert [each for each, decision in decisions.items() if decision != "allow"] == []


@pytest.mark.spec("SHELL-4", "PERM-9")
@pytest.mark.parametrize("mode", ["default", "plan"])
def test_no_mutation_runs_unasked(repository: Path, mode: str) -> None:
    decisions = decide(repository, list(read_list("mutations.txt")), mode)
    assert len(decisions) > 1200
    assert [each for each, decision in decisions.items() if decision == "allow"] == []


# What a command that asks may stand in, among commands that only read.
AROUND = (
    "ls; {c}", "{c} | cat", "{c} && ls", "[[ -f x ]] || {c}", "! {c}", "({c})", "{c} 2>/dev/null | head -1", "{c} &",
    'cd src && {c}', 'cd "$(git rev-parse --show-toplevel)" && {c}', "timeout 5 {c}", "nice {c}", "LC_ALL=C {c}",
    "for i in 1 2; do {c}; done", "for ((i = 0; i < 2; i++)); do {c}; done", "if true; then {c}; fi",
    "i=0; while [ $i -lt 1 ]; do {c}; i=$((i + 1)); done", "case x in *) {c};; esac", "f() {{ {c}; }}; f",
    "find . -name '*.md' | while read -r f; do {c}; done", "while read -r f; do {c}; done < <(git ls-files)",
    'echo "$({c})"', "n=$({c} | wc -l); echo $((n + 1))", "mapfile -t lines < <({c})", "cat <({c})",
    "git ls-files | xargs wc -l; {c}", "git -c color.ui=always log | {c}",
)  # fmt: skip


def test_no_composition_with_reads_makes_a_question_go_away(repository: Path) -> None:
    load_families()
    records = {id(each): each for each in PROGRAMS.values()}.values()
    asking = [example for record in records for example in record.asks]
    chance = random.Random(20_261_117)
    composed = [around.format(c=each) for each in asking for around in chance.sample(AROUND, 2)]
    assert len(composed) > 900
    assert [each for each, decision in decide(repository, composed).items() if decision == "allow"] == []


def test_edits_that_are_accepted_are_redirections_and_nothing_else(repository: Path) -> None:
    decisions = decide(repository, list(read_list("mutations.txt")), "accept-edits")
    assert [each for each, decision in decisions.items() if decision == "allow" and ">" not in each] == []
