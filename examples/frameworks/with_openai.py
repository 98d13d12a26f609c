"""Surehand's tools with OpenAI's Responses API; what needs permission is asked here. Needs OPENAI_API_KEY."""

import asyncio
import sys
from typing import Any

from openai import AsyncOpenAI

from surehand import Surehand
from surehand.integrations.openai import ResponsesTools


async def main(question: str) -> str:
    client = AsyncOpenAI()
    items: list[Any] = [{"role": "user", "content": question}]
    async with Surehand(".") as app:
        tools = ResponsesTools(app)
        while True:
            response = await client.responses.create(model="gpt-5", input=items, tools=tools.params())
            approved: dict[str, str] = {}
            for id, asked in (await tools.pending(response)).items():
                print(asked["text"])
                if input("Allow it? [y/N] ") == "y":
                    approved[id] = asked["digest"]
            answers = await tools.answer(response, approved)
            if not answers:
                return response.output_text
            items += [*response.output, *answers]


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
