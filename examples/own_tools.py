"""Tools of your own: progress while it works, and a way back for what is done elsewhere than in files.

python examples/own_tools.py
"""

import asyncio
from collections.abc import AsyncIterator

from surehand import Answer, Event, Progress, Question, Surehand, ToolCall, ToolResult, tool

SHELF: dict[str, str] = {}  # stands for a service somewhere else


@tool(read_only=True)
async def count_slowly(to: int) -> AsyncIterator[Progress | int]:
    "Count up to a number, telling how far it has come."
    for number in range(1, to + 1):
        yield Progress("counting", done=number, total=to)
    yield to


@tool
def unshelve(title: str) -> str:
    "Take a book off the shelf."
    return SHELF.pop(title)


@tool(undo=lambda args, result: ToolCall("unshelve", {"title": args.title}))
def shelve(title: str, author: str) -> str:
    "Put a book on the shelf."
    SHELF[title] = author
    return f"{title} is on the shelf"


async def agree(question: Question) -> Answer:
    return Answer("once")


async def main() -> None:
    async with Surehand(".", tools=[count_slowly, shelve, unshelve], approver=agree) as app:

        def show(event: Event) -> None:
            if event.kind == "call_progress":
                progress: Progress = event.data["progress"]
                print(progress.text, progress.done, "of", progress.total)

        app.bus.subscribe(show)
        counted: ToolResult = await app.call("count_slowly", {"to": 3})
        print("counted to", counted.data)
        await app.call("shelve", {"title": "Moby-Dick", "author": "Melville"})
        print("shelf:", SHELF)
        await app.call("Undo", {})
        print("after undo:", SHELF)


if __name__ == "__main__":
    asyncio.run(main())
