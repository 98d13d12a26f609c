"""`surehand tools new NAME`: a tool and its test, ready to be changed."""

from __future__ import annotations

import keyword
import os
import re
from argparse import Namespace
from typing import Final

from surehand.cli import render

FOLDER: Final = os.path.join(".surehand", "tools")

TOOL: Final = '''\
"""{title}: say here what it is for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from surehand import tool


@tool(read_only=True, examples=({{"text": "some text"}},))
def {name}(
    text: Annotated[str, Field(description="The text to look at")],
    limit: Annotated[int, Field(ge=1, description="How many words to return")] = 10,
) -> dict[str, object]:
    """Return the first words of a text, and how many it has.

    A model reads this text to decide when to call the tool: say what it does and when to use it.
    """
    words = text.split()
    return {{"count": len(words), "first": words[:limit]}}
'''

TEST: Final = """\
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from {name} import {name}  # noqa: E402

from surehand.testing import run_tool  # noqa: E402


async def test_{name}_counts_words() -> None:
    result = await run_tool({name}, {{"text": "one two three", "limit": 2}})
    assert result.ok, result.output
    assert result.data == {{"count": 3, "first": ["one", "two"]}}


async def test_{name}_says_what_is_wrong_with_its_arguments() -> None:
    result = await run_tool({name}, {{"text": "one", "limit": 0}})
    assert result.error is not None
    assert result.error.code == "invalid_args"
"""


def run(options: Namespace) -> int:
    """Write the files; nothing that is there already is touched."""
    name: str = options.name
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        render.error(f"{name!r} cannot name a Python function", f"Try {_identifier(name)!r}.", code="invalid_args")
        return 2
    folder = os.path.join(options.cwd, FOLDER)
    files = {
        os.path.join(folder, f"{name}.py"): TOOL.format(name=name, title=name.replace("_", " ").capitalize()),
        os.path.join(folder, "tests", f"test_{name}.py"): TEST.format(name=name),
    }
    if there := [path for path in files if os.path.lexists(path)]:
        render.error(f"{there[0]} is already there", "Choose another name, or remove it first.")
        return 1
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    tool, test = (os.path.relpath(path, options.cwd) for path in files)
    render.facts(options, {"name": name, "tool": tool, "test": test}, lambda: _next(name, tool, test))
    return 0


def _next(name: str, tool: str, test: str) -> str:
    return "\n".join(
        [
            f"Wrote {tool} and {test}.",
            "",
            "  pip install pytest pytest-asyncio",
            f"  pytest -p asyncio -o asyncio_mode=auto {test}",
            "  surehand trust            # a workspace's own tools count once you trust them",
            f'  surehand tools invoke {name} --args \'{{"text": "one two"}}\'',
        ]
    )


def _identifier(name: str) -> str:
    word = re.sub(r"\W+", "_", name.encode("ascii", "ignore").decode()).strip("_").lower() or "my_tool"
    return f"tool_{word}" if word[0].isdigit() or keyword.iskeyword(word) else word
