"""Surehand's tools in a loop of your own, with Anthropic's client. Needs ANTHROPIC_API_KEY."""

import asyncio
import sys

import anthropic

from surehand import Surehand
from surehand.core.names import provider_map
from surehand.core.shapes import call_from_anthropic, result_to_anthropic


async def main(question: str) -> str:
    client = anthropic.AsyncAnthropic()
    messages = [{"role": "user", "content": question}]
    async with Surehand(".") as app:
        names = provider_map(app.selection.names())
        while True:
            tools = app.selection.for_anthropic()
            turn = await client.messages.create(
                model="claude-sonnet-4-5", max_tokens=2000, tools=tools, messages=messages
            )
            messages.append({"role": "assistant", "content": [block.model_dump() for block in turn.content]})
            calls = [
                call_from_anthropic(block.model_dump(), names) for block in turn.content if block.type == "tool_use"
            ]
            if not calls:
                return "".join(block.text for block in turn.content if block.type == "text")
            results = await app.run_calls(calls)
            shapes = [result_to_anthropic(call.id, result) for call, result in zip(calls, results, strict=True)]
            messages.append({"role": "user", "content": shapes})


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
