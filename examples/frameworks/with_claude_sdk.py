"""Surehand's tools in the Claude Agent SDK; an approver of our own asks. Needs ANTHROPIC_API_KEY."""

import asyncio
import sys

from claude_agent_sdk import ResultMessage

from surehand import Question, Surehand
from surehand.integrations.claude_sdk import Application


def ask(question: Question) -> bool:
    print(question.text())
    return input("Allow it? [y/N] ") == "y"


async def main(question: str) -> str:
    said = ""
    async with Surehand(".", approver=ask) as app:
        application = Application(app, tools=["Read", "Edit", "Write", "Glob", "Grep", "Bash", "Undo"])
        async for message in application.query([question], model="claude-sonnet-4-5", setting_sources=[]):
            if isinstance(message, ResultMessage):
                said = str(message.result)
    return said


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
