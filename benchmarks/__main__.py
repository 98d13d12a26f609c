"""`python -m benchmarks [NAME ...] [--quick]`: run the named benchmarks, or all, and print one table.

Those whose name begins with `door_` go through the public door with default settings: what a user gets. The others
time inner functions, and say where the time goes.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from pathlib import Path

from benchmarks.harness import Harness

WHEN_NAMED = ("growth",)
"""Not among all of them: minutes each."""
NO_BENCHMARKS = ("__init__", "__main__", "clients", "cluster", "cluster_tools", "harness", "public_door")


def main(words: list[str]) -> int:
    quick = "--quick" in words
    names = [word for word in words if not word.startswith("-")]
    every = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NO_BENCHMARKS)
    unknown = set(names) - set(every)
    if unknown:
        sys.stderr.write(f"no benchmark named {', '.join(unknown)}; there are {', '.join(every)}\n")
        return 2
    harness, began = Harness(quick), time.monotonic()
    for name in names or [each for each in every if each not in WHEN_NAMED]:
        sys.stderr.write(f"{name} ...\n")
        try:
            importlib.import_module(f"benchmarks.{name}").rows(harness)
        except Exception:  # the others are worth their table
            traceback.print_exc()
            harness.failed.append(name)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    sys.stdout.write(f"{harness.table()}\nload of the last 1, 5 and 15 minutes: {load} on {os.cpu_count()} cores\n")
    sys.stdout.write(f"it took {(time.monotonic() - began) / 60:.0f} minutes\n")
    sys.stderr.write(f"failed: {', '.join(harness.failed)}\n" if harness.failed else "")
    return 1 if harness.failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
