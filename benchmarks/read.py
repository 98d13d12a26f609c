"""Read: 2,000 lines at the head and deep inside 200,000, against plain Python that does only that."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Harness
from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.tools.read import TOOLS

(READ,) = TOOLS
LINES = 200_000
DEEP = 190_000
TIMES = 20


def rows(harness: Harness) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SUREHAND_HOME"] = os.path.join(folder, "home")
        path = Path(folder) / "work" / "big.py"
        path.parent.mkdir()
        _write(path)
        loop = asyncio.new_event_loop()
        try:
            _measure(harness, loop, path)
        finally:
            loop.close()


def _write(path: Path) -> None:
    """Write lines as long as those of source code are."""
    rng = random.Random(1)
    words = ["value", "=", "return", "self.items", "(number)", "if", "not", "text:", "for", "in", "range(10)"]
    with path.open("w") as file:
        for number in range(LINES):
            file.write("    " * rng.randrange(4) + " ".join(rng.choices(words, k=rng.randrange(9))) + f"  # {number}\n")


def _measure(harness: Harness, loop: asyncio.AbstractEventLoop, path: Path) -> None:
    from surehand import Surehand

    app = Surehand(path.parent)
    loop.run_until_complete(app.__aenter__())

    def through_the_door(offset: int) -> Callable[[], object]:
        async def calls() -> None:
            for _ in range(TIMES):
                result = await app.call("Read", {"file_path": str(path), "offset": offset})
                assert result.data["lines"] == 2000, result.output

        return lambda: loop.run_until_complete(calls())

    session = _session(path)
    harness.compare(
        "read 2,000 lines at the head",
        [
            ("text islice", _often(lambda: _islice(path))),
            ("Read, through the door", through_the_door(0)),
            ("Read, the tool alone", _often(lambda: _tool(session, path, 0))),
        ],
        goal="<= 1.3",
        rounds=25,
    )
    harness.compare(
        "read 2,000 lines at 190,000, cold",
        [("block scan", lambda: _scan(path)), ("Read, new session", lambda: _tool(_session(path), path, DEEP))],
        goal="<= 1.2",
        rounds=25,
    )
    harness.compare(
        "read 2,000 lines at 190,000, warm",
        [
            ("block scan", _often(lambda: _scan(path))),
            ("Read, through the door", through_the_door(DEEP)),
        ],
        goal="<= 0.15",
    )
    loop.run_until_complete(app.__aexit__(None, None, None))


def _islice(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return list(islice(file, 2000))


def _scan(path: Path) -> int:
    count = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
    return count


def _often(job: Callable[[], object]) -> Callable[[], object]:
    """Return `job` done several times, each result dropped before the next is made."""

    def run() -> None:
        for _ in range(TIMES):
            job()

    return run


def _session(path: Path) -> Session:
    """Return a session that has read nothing yet."""
    return Session(str(path.parent), settings=Settings())


def _tool(session: Session, path: Path, offset: int) -> Any:
    ctx = ToolContext(ToolCall("Read"), session, lambda progress: None, {})
    return READ.run(READ.arguments.parse({"file_path": str(path), "offset": offset}), ctx)
