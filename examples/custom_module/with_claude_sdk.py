"""The module inside the Claude Agent SDK (pip install 'surehand[claude]', ANTHROPIC_API_KEY set):

python examples/custom_module/with_claude_sdk.py "Note that we need two litres of milk."
"""

from __future__ import annotations

import asyncio
import sys

from notes import TOOLS

from surehand import Surehand
from surehand.integrations.claude_sdk import Application


async def main(prompts: list[str]) -> None:
    async with Surehand(".", allow=["mcp__notes__add_note"], keep_state=False) as app:
        application = Application(app, modules={"notes": TOOLS}).initialize()
        async for message in application.query(prompts):
            print(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["Which notes are there?"]))
