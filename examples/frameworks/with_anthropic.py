"""Surehand's tools with the tool runner of Anthropic's client; an approver of our own asks. Needs ANTHROPIC_API_KEY."""

import asyncio
import sys

from anthropic import AsyncAnthropic

from surehand import Question, Surehand
from surehand.integrations.anthropic import surehand_tools


def ask(question: Question) -> bool:
    print(question.text())
    return input("Allow it? [y/N] ") == "y"


async def main(question: str) -> str:
    client = AsyncAnthropic()
    async with Surehand(".", approver=ask) as app:
        runner = client.beta.messages.tool_runner(
            model="claude-sonnet-4-5",
            max_tokens=4000,
            messages=[{"role": "user", "content": question}],
            tools=surehand_tools(app),
        )
        final = await runner.until_done()
        return "".join(block.text for block in final.content if block.type == "text")


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
