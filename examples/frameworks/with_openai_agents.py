"""Surehand's tools in an agent of the OpenAI Agents SDK; what needs permission is asked here. Needs OPENAI_API_KEY."""

import asyncio
import sys

from agents import Agent, Runner, set_tracing_disabled

from surehand import Surehand
from surehand.integrations.openai_agents import surehand_tools


async def main(question: str) -> str:
    set_tracing_disabled(True)
    async with Surehand(".") as app:
        tools = surehand_tools(app)
        agent = Agent[None](name="coder", model="gpt-5", tools=tools)
        result = await Runner.run(agent, question)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                print((tools.describe(item) or {})["text"])
                if input("Allow it? [y/N] ") == "y":
                    state.approve(item)
                else:
                    state.reject(item)
            result = await Runner.run(agent, state)
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
