"""Surehand's tools in an agent of LangChain, in plain code; what needs permission is asked. Needs OPENAI_API_KEY."""

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from surehand import Surehand
from surehand.integrations.langchain import SurehandMiddleware


def main(question: str) -> str:
    with Surehand.sync(".") as app:
        model = ChatOpenAI(model="gpt-5", use_responses_api=False)
        agent: Any = create_agent(model, middleware=[SurehandMiddleware(app)], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "1"}}
        state = agent.invoke({"messages": [{"role": "user", "content": question}]}, thread)
        while asked := state.get("__interrupt__"):
            answers: dict[str, bool] = {}
            for each in asked:
                print(each.value["text"])
                answers[each.id] = input("Allow it? [y/N] ") == "y"
            state = agent.invoke(Command(resume=answers), thread)
        return state["messages"][-1].text


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:]) or "What is in this folder?"))
