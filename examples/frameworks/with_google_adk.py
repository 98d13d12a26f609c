"""Surehand's tools in an agent of Google's ADK; what needs permission is asked here. Needs GOOGLE_API_KEY."""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

from surehand import Surehand
from surehand.integrations.google_adk import SurehandToolset

CONFIRM = "adk_request_confirmation"


async def main(question: str) -> str:
    async with Surehand(".") as app:
        runner = InMemoryRunner(LlmAgent(name="coder", model="gemini-2.5-pro", tools=[SurehandToolset(app)]))
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
        parts, said = [types.Part(text=question)], ""
        while parts:
            message, parts = types.Content(role="user", parts=parts), []
            async for event in runner.run_async(user_id="me", session_id=session.id, new_message=message):
                for call in event.get_function_calls():
                    if call.name == CONFIRM and call.args is not None:
                        print(call.args["toolConfirmation"]["hint"])
                        answer = {"confirmed": input("Allow it? [y/N] ") == "y"}
                        given = types.FunctionResponse(id=call.id, name=CONFIRM, response=answer)
                        parts.append(types.Part(function_response=given))
                for part in (event.content.parts or []) if event.content else []:
                    said = part.text or said
        return said


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?")))
