"""Replay as a regression test: record what an agent did once, run it again on changed code, see every difference.

python examples/replay.py
"""

import asyncio
import os
import tempfile
from pathlib import Path

from surehand import Surehand
from surehand.engine.replay import read, replay


async def main() -> None:
    recording = os.path.join(tempfile.mkdtemp(), "recording.jsonl")
    Path("numbers.txt").write_text("1\n2\n")
    async with Surehand(".", record=recording) as app:
        await app.call("Grep", {"pattern": "2", "path": "numbers.txt", "output_mode": "content"})
        await app.call("Read", {"file_path": "numbers.txt"})
    Path("numbers.txt").write_text("1\n22\n")  # somebody changed something
    async with Surehand(".") as app:
        async for again in replay(read(recording), app.executor, app.session, app.selection):
            print(again.recorded.call.name, "differs" if again.differences else "is the same")
    os.unlink("numbers.txt")


if __name__ == "__main__":
    asyncio.run(main())
