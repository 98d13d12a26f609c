"""Slips of a program that uses the library: each is told in a sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import Surehand, tool
from surehand.core.settings import Settings


@tool(read_only=True)
def shout(text: str) -> str:
    "Say it loudly."
    return text.upper()


SLIPS: dict[str, tuple[Callable[[], Any], str]] = {
    "a flag": (lambda: tool(readonly=True)(str.upper), "read_only"),  # pyright: ignore
    "a rule": (lambda: Surehand(allow="Bash(ls:*)"), "write allow=['Bash(ls:*)']"),
    "a tool": (lambda: Surehand(tools=shout), "write tools=[shout]"),  # pyright: ignore
    "a keyword": (lambda: Surehand(alow=["Bash(ls:*)"]), "takes no 'alow' (did you mean 'allow'?)"),  # pyright: ignore
    "a keyword of the plain front": (lambda: Surehand.sync(aprover=print), "(did you mean 'approver'?)"),  # pyright: ignore
    "a name": (lambda: Surehand(tool_allow="Read"), "write tool_allow=['Read']"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_with_what_to_write_instead(slip: str) -> None:
    make, told = SLIPS[slip]
    with pytest.raises(TypeError) as caught:
        make()
    assert told in str(caught.value)


def test_plain_code_is_told_of_the_plain_front(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"with Surehand\.sync"), Surehand(tmp_path):  # pyright: ignore
        pass


@pytest.mark.parametrize("door", ["call", "dry_run"])
def test_arguments_that_are_no_dictionary_are_told_so(tmp_path: Path, door: str) -> None:
    with Surehand.sync(tmp_path) as app, pytest.raises(TypeError, match="the arguments of Read are a dictionary"):
        getattr(app, door)("Read", "app.py")


def test_settings_and_lists_that_nearly_name_a_tool_are_warned_of(tmp_path: Path) -> None:
    settings = Settings.parse({"tools": {"Bsh": {"enabled": False}, "later_tool_of_a_server": {"enabled": False}}})
    app = Surehand(tmp_path, settings=settings, tool_allow=["Raed", "fs.*", "mcp__github__x"], keep_state=False)
    told = "\n".join(app.warnings)
    assert "[tools.Bsh] matches nothing: there is no tool 'Bsh' (did you mean 'Bash'?)" in told
    assert "tool_allow 'Raed' matches nothing" in told
    assert "later_tool" not in told
    assert "github" not in told
