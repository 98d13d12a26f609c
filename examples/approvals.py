"""Approvals by callback: a function sees the exact call and its effects, and says yes, no, or yes to something else.

python examples/approvals.py
"""

import asyncio

from surehand import Answer, Question, Surehand


async def decide(question: Question) -> Answer:
    if question.tool == "Write":
        print(question.preview.diff if question.preview else "")  # what would be changed
        return Answer("once")
    if "rm" in str(question.args):
        return Answer("no", "use Undo instead of deleting")
    return Answer("session")  # and do not ask for the like again


async def main() -> None:
    async with Surehand(".", approver=decide) as app:
        written = await app.call("Write", {"file_path": "plan.txt", "content": "one step\n"})
        print("written:", written.ok)
        refused = await app.call("Bash", {"command": "rm plan.txt"})
        print("refused:", refused.error.code if refused.error else "not at all")
        await app.call("Undo", {})


if __name__ == "__main__":
    asyncio.run(main())
