"""Surehand's tools in an agent of pydantic-ai; what needs permission is asked here. Needs OPENAI_API_KEY."""

import asyncio
import sys

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults

from surehand import Surehand
from surehand.integrations.pydantic_ai import surehand_toolset


async def main(question: str) -> str:
    async with Surehand(".") as app:
        agent = Agent("openai-chat:gpt-5", toolsets=[surehand_toolset(app)], output_type=[str, DeferredToolRequests])
        result = await agent.run(question)
        while isinstance(asked := result.output, DeferredToolRequests):
            answers = DeferredToolResults(metadata=asked.metadata)
            for call in asked.approvals:
                print(asked.metadata[call.tool_call_id]["text"])
                answers.approvals[call.tool_call_id] = input("Allow it? [y/N] ") == "y"
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
        return asked


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
