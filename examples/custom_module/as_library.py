"""The module in your own program:

python examples/custom_module/as_library.py
"""

from __future__ import annotations

import asyncio

from notes import TOOLS

from surehand import Surehand


async def main() -> None:
    async with Surehand(".", modules={"notes": TOOLS}, allow=["mcp__notes__add_note"], keep_state=False) as app:
        print(app.registry.module_names("notes"))
        print((await app.call("add_note", {"title": "milk", "text": "two litres"})).output)
        print((await app.call("mcp__notes__read_note", {"title": "milk"})).output)
        print((await app.call("drop_note", {"title": "milk"})).output)  # nobody to ask: refused


if __name__ == "__main__":
    asyncio.run(main())
