"""Surehand's tools in a loop of your own, with OpenAI's client (or any compatible server). Needs OPENAI_API_KEY."""

import asyncio
import sys

import openai

from surehand import Surehand
from surehand.core.names import provider_map
from surehand.core.shapes import call_from_openai, result_to_openai


async def main(question: str) -> str:
    client = openai.AsyncOpenAI()
    messages = [{"role": "user", "content": question}]
    async with Surehand(".") as app:
        names = provider_map(app.selection.names())
        while True:
            tools = app.selection.for_openai()
            turn = await client.chat.completions.create(model="gpt-5-mini", tools=tools, messages=messages)
            message = turn.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            calls = [call_from_openai(entry.model_dump(), names) for entry in message.tool_calls]
            results = await app.run_calls(calls)
            messages += [result_to_openai(call.id, result) for call, result in zip(calls, results, strict=True)]


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
