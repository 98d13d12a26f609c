"""Best of N: the same task tried in N workspaces of their own; the shortest diff that passes its check is applied.

python examples/best_of_n.py [MODEL]      (without a model a script stands in for one)
"""

import asyncio
import sys

from surehand import Answer, Question, Surehand
from surehand.batch.tasks import Task
from surehand.core.model import Model
from surehand.testing import ScriptedModel

TASK = {"prompt": "Make greet() friendlier in app.py.", "check": "grep -q 'Hello, dear' app.py"}
WAYS = ["'Hello ' + name", "'Hello, dear ' + name", "'Hello, dear, dear, dear ' + name + '!'"]


def stand_in(task: Task) -> Model:
    number = int(task.id.rpartition("-")[2])
    edit = {"file_path": "app.py", "old_string": "'Hello ' + name", "new_string": WAYS[number]}
    steps = [[("Read", {"file_path": "app.py"})], [("Edit", edit)] if number else "done", "done"]
    return ScriptedModel(*steps)


async def agree(question: Question) -> Answer:
    return Answer("once")


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else None
    tasks = [{**TASK, "id": f"way-{number}"} for number in range(len(WAYS))]
    async with Surehand(".", approver=agree, mode="accept-edits") as app:
        results = [each async for each in app.batch(tasks, parallel=3, model=model or stand_in)]
        for each in sorted(results, key=lambda each: each.id):
            print(each.id, each.status, f"{len(each.diff)} characters of diff")
        best = min((each for each in results if each.status == "passed"), key=lambda each: len(each.diff))
        applied = await app.apply_patch(best.diff)
        print("applied", best.id, applied.ok)
        await app.call("Undo", {})


if __name__ == "__main__":
    asyncio.run(main())
