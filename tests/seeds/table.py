"""`make seeds`: which test shows which line of the specification and which statement of a source, and how it went.

Lines are named by the marker `spec("ID")`, on tests of the whole tree; statements are the tests of this folder, named
after their documents. What needs another environment or another verb stands with that verb, unless its results were
saved there and are merged in. Exit code 1 when a test fails, or a line that should hold has no test.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

HERE = Path(__file__).parent
_SOURCE: Final = re.compile(r"test_(00\d)_")
_ID: Final = re.compile(r'"([A-Z]+-\d+)"')
ELSEWHERE: Final = {
    "slow": "test-slow",
    "browser": "test-browser",
    "integrations": "test-integrations",
    "cluster": "test-cluster",
}
"""The verb that runs what this one does not, by the mark or the folder of a test."""


def spec_lines() -> dict[str, tuple[str, str]]:
    """Return (`holds` or `open`, text) of every line of the specification, by its id."""
    rows = (line.split("\t") for line in (HERE / "spec.tsv").read_text().splitlines())
    return {id: (state, text) for id, state, text in rows}


class Table:
    """A pytest plug-in that keeps the tests of each id with their outcome."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)
        self.outcomes: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests that show something, and drop the others."""
        kept: list[pytest.Item] = []
        for item in items:
            ids = {id for marker in item.iter_markers("spec") for id in marker.args}
            source = _SOURCE.match(item.path.name) if item.path.parent == HERE else None
            for id in (*ids, *((f"source {source[1]}",) if source else ())):
                self.tests[id].append(item.nodeid)
            if ids or source:
                kept.append(item)
                for mark in item.iter_markers():
                    if mark.name in ELSEWHERE:
                        self.outcomes[item.nodeid] = ELSEWHERE[mark.name]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of what came of a test."""
        told = report.when == "call" or report.outcome != "passed"
        if told and self.outcomes.get(report.nodeid, "passed") in ("passed", *ELSEWHERE.values()):
            self.outcomes[report.nodeid] = report.outcome

    def merge(self, saved: Mapping[str, Any]) -> None:
        """Add what another environment found."""
        for id, tests in saved["tests"].items():
            self.tests[id] += [test for test in tests if test not in self.tests[id]]
        self.outcomes |= saved["outcomes"]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (id, test, result); `open` and `missing` stand for lines that no test shows."""
        known, marked = spec_lines(), marked_files()
        rows: list[tuple[str, str, str]] = []
        for id in [*known, *sorted(id for id in self.tests if id.startswith("source"))]:
            names = sorted({test.partition("[")[0] for test in self.tests.get(id, ())})
            rows += [(id, name, self._outcome(name)) for name in names]
            seen = {name.partition("::")[0] for name in names}
            rows += [(id, path, _where(path)) for path in marked.get(id, ()) if path not in seen]
            if not names and id not in marked:
                rows.append((id, known[id][1], "open" if known[id][0] == "open" else "missing"))
        return rows

    def _outcome(self, name: str) -> str:
        every = {outcome for test, outcome in self.outcomes.items() if test.partition("[")[0] == name}
        order = ("failed", "passed", "skipped", *ELSEWHERE.values())
        return next((each for each in order if each in every), "not run")


def marked_files() -> dict[str, list[str]]:
    """Return the files that are marked with each id, collected here or not."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(HERE.parent.rglob("test_*.py")):
        ids = {id for marks in re.findall(r"mark\.spec\(([^)]*)\)", path.read_text()) for id in _ID.findall(marks)}
        for id in ids:
            found[id].append(str(path.relative_to(HERE.parents[1])))
    return found


def _where(path: str) -> str:
    return ELSEWHERE.get(path.split("/")[1], "not run")


def main(words: list[str]) -> int:
    """Run the tests and print the table; or save what they gave for a later table."""
    parser = ArgumentParser()
    parser.add_argument("--save", metavar="FILE", type=Path, help="write the results there instead of a table")
    parser.add_argument("--merge", metavar="FILE", type=Path, action="append", default=[], help="add saved results")
    parser.add_argument("tests", nargs="*", default=[str(HERE.parent)])
    options = parser.parse_args(words)
    table = Table()
    code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *options.tests], plugins=[table])
    if options.save:
        options.save.parent.mkdir(exist_ok=True)
        options.save.write_text(json.dumps({"tests": table.tests, "outcomes": table.outcomes}))
        return 0
    for path in options.merge:
        if path.exists():
            table.merge(json.loads(path.read_text()))
            path.unlink()
    rows = table.rows()
    return max(int(code), _print(rows))


def _print(rows: list[tuple[str, str, str]]) -> int:
    wide, broad = (max(len(row[column]) for row in rows) for column in (0, 2))
    sys.stdout.write("\n")
    for id, test, result in rows:
        sys.stdout.write(f"{id.ljust(wide)}  {result.ljust(broad)}  {test}\n")
    ids = {id: {result for each, _, result in rows if each == id} for id, _, _ in rows}
    green = [id for id, results in ids.items() if "passed" in results and not results & {"failed", "not run"}]
    opened = [id for id, results in ids.items() if results == {"open"}]
    elsewhere = sorted(id for id, results in ids.items() if results <= set(ELSEWHERE.values()))
    rest = sorted(ids.keys() - {*green, *opened, *elsewhere})
    sums = {"hold": green, "open": opened, "are shown by another verb only": elsewhere, "do not hold": rest}
    lines = [f"{len(found)} {what}: {' '.join(found) or 'none'}" for what, found in sums.items()]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    return 1 if rest else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
