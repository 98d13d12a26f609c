"""A batch evaluation: tasks with checks, run side by side, and how many passed.

python examples/batch_evaluation.py
"""

import asyncio
from collections import Counter

from surehand import Surehand

TASKS = [
    {
        "id": f"rename-{word}",
        "calls": [
            {"tool": "Read", "args": {"file_path": "app.py"}},
            {"tool": "Edit", "args": {"file_path": "app.py", "old_string": "greet", "new_string": word}},
        ],
        "check": f"grep -q 'def {word}' app.py && ! grep -q bad app.py",
    }
    for word in ("welcome", "salute", "bad")
]


async def main() -> None:
    async with Surehand(".") as app:
        counts = Counter([result.status async for result in app.batch(TASKS, parallel=2)])
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    asyncio.run(main())
