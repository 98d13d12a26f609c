"""`make seeds`: which test shows which line of the specification and which statement of a source, and how it went.

Lines are named by the marker `spec("ID")`, on tests of the whole tree; statements are the tests of this folder, named
after their documents. Exit code 1 when a test fails, or a line that should hold has no test.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
_SOURCE = re.compile(r"test_(00\d)_")


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
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of what came of a test."""
        told = report.when == "call" or report.outcome != "passed"
        if told and self.outcomes.get(report.nodeid, "passed") == "passed":
            self.outcomes[report.nodeid] = report.outcome

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (id, test, result); `open` and `missing` stand for lines that no test shows."""
        known = spec_lines()
        rows: list[tuple[str, str, str]] = []
        for id in [*known, *sorted(id for id in self.tests if id.startswith("source"))]:
            names = sorted({test.partition("[")[0] for test in self.tests.get(id, ())})
            rows += [(id, name, self._outcome(name)) for name in names]
            if not names:
                rows.append((id, known[id][1], "open" if known[id][0] == "open" else "missing"))
        return rows

    def _outcome(self, name: str) -> str:
        every = {outcome for test, outcome in self.outcomes.items() if test.partition("[")[0] == name}
        return next((each for each in ("failed", "passed", "skipped") if each in every), "not run")


def main(words: list[str]) -> int:
    """Run the tests and print the table."""
    table = Table()
    code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *(words or [str(HERE.parent)])], plugins=[table])
    rows: list[Any] = table.rows()
    wide = max(len(id) for id, _, _ in rows)
    sys.stdout.write("\n")
    for id, test, result in rows:
        sys.stdout.write(f"{id.ljust(wide)}  {result.ljust(8)}  {test}\n")
    ids = {id: {result for each, _, result in rows if each == id} for id, _, _ in rows}
    green = [id for id, results in ids.items() if "passed" in results and not results & {"failed", "not run"}]
    opened = [id for id, results in ids.items() if results == {"open"}]
    rest = sorted(ids.keys() - set(green) - set(opened))
    sys.stdout.write(f"\n{len(green)} hold, {len(opened)} open, {len(rest)} do not hold: {' '.join(rest) or 'none'}\n")
    return int(code) or (1 if rest else 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
