"""A tool of your own in ten lines."""

import asyncio

from surehand import Surehand, tool


@tool(read_only=True)
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


async def main() -> None:
    async with Surehand(".", tools=[word_count]) as app:
        result = await app.call("word_count", {"text": "hands that hold"})
        print(result.ok, result.data)


if __name__ == "__main__":
    asyncio.run(main())
