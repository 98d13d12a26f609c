"""A code reviewer with sub-agents: each looks at one file, read-only, at the same time; the first agent sums up.

python examples/reviewer.py [MODEL]       (without a model a script stands in for one, to show the shape)
"""

import asyncio
import sys

from surehand import Surehand
from surehand.core.model import Model, ModelRequest
from surehand.models import choose, open_model
from surehand.testing import ScriptedModel

PROMPT = "Review app.py and notes.txt, one sub-agent each, and sum up what is wrong."


def stand_in() -> Model:
    """Play a model: two sub-agents, each reads a file and answers, then a summary."""

    def step(request: ModelRequest) -> object:
        said = str([message.text for message in request.messages])
        done = any(message.results for message in request.messages)
        if PROMPT in said:
            if done:
                return "app.py has an open TODO; notes.txt has CRLF line ends."
            return [("Agent", {"prompt": f"Review {name}."}) for name in ("app.py", "notes.txt")]
        name = "app.py" if "app.py" in said else "notes.txt"
        return f"{name}: read" if done else [("Read", {"file_path": name})]

    return ScriptedModel(*[step] * 20)


async def main() -> None:
    async with Surehand(".", mode="plan") as app:  # plan: look and think, change nothing
        model = open_model(app.settings, choose(app.settings, sys.argv[1])) if len(sys.argv) > 1 else stand_in()
        outcome = await app.conversation(model).ask(PROMPT)
        print(outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
