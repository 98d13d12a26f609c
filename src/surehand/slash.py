"""Slash commands (lines that begin with `/`, in a chat or an editor), and files mentioned as `@src/app.py`.

Some are built in. Others are prompts in Markdown files of the user: `commands/NAME.md` in the state folder,
and `.surehand/commands/NAME.md` in a trusted workspace. In their text `$ARGUMENTS` is replaced by the arguments,
`$1` to `$9` by single ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from surehand.agent.subagents import load_definitions, read_front_matter
from surehand.core.call import Image
from surehand.core.errors import SettingsError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.model import Message, user_message

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.model import Prompt
    from surehand.core.settings import Mode


FILE_BYTES: Final = 100_000
MODES: Final[tuple[Mode, ...]] = ("default", "accept-edits", "plan")
"""Modes that a conversation may switch to; bypass can only be chosen at its start."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KNOWN: Final = ("description", "argument-hint", "name", "allowed-tools", "model", "disable-model-invocation")
_PLACE: Final = re.compile(r"\$ARGUMENTS\b|\$([1-9])(?![0-9])")


# -- built in ----------------------------------------------------------------------------------------------------------


@frozen
class SlashCommand:
    """A built-in slash command; returns the text to show, and raises ToolFailure."""

    usage: str
    about: str
    run: Callable[[Surehand, str], Awaitable[str]]


@contextmanager
def grant_undo(app: Surehand) -> Generator[None]:
    """Permit undo for the duration of a command: typing it is the user's approval."""
    grants = ["Undo", "Redo"]
    app.session.grants += grants
    try:
        yield
    finally:
        for grant in grants:
            app.session.grants.remove(grant)


async def _undo(app: Surehand, rest: str) -> str:
    if rest and not rest.isdigit():
        raise ToolFailure(f"{rest!r} is not a number of changes", hint="/undo, or /undo 3")
    said: list[str] = []
    for _ in range(int(rest or 1)):
        with grant_undo(app):
            result = await app.call("Undo", {}, source="user")
        if not result.ok:
            raise ToolFailure("\n".join((*said, result.output)))
        said.append(result.output)
    return "\n".join(said)


async def _redo(app: Surehand, rest: str) -> str:
    with grant_undo(app):
        return await _call(app, "Redo")


async def _changes(app: Surehand, rest: str) -> str:
    return await _call(app, "Changes")


async def _tasks(app: Surehand, rest: str) -> str:
    return await _call(app, "TaskList")


async def _call(app: Surehand, tool: str) -> str:
    result = await app.call(tool, {}, source="user")
    if not result.ok:
        raise ToolFailure(result.output)
    return result.output


async def _mode(app: Surehand, rest: str) -> str:
    if rest:
        set_mode(app, rest)
    return f"mode: {app.session.mode}"


def set_mode(app: Surehand, wanted: str) -> None:
    """Set the mode of a conversation and inform its model; raise ToolFailure for one that cannot be chosen."""
    if wanted not in MODES:
        raise ToolFailure(f"there is no mode {wanted!r} to switch to", hint=f"{', '.join(MODES[:-1])} or {MODES[-1]}")
    if wanted != app.session.mode:
        app.session.mode = cast("Mode", wanted)
        app.session.notices.append(f"[notice] The user has set the mode to {wanted}.")


BUILT_IN: Final[Mapping[str, SlashCommand]] = {
    "undo": SlashCommand("undo [N]", "take back the last change (or the last N)", _undo),
    "redo": SlashCommand("redo", "reapply what undo took back", _redo),
    "changes": SlashCommand("changes", "what was changed here", _changes),
    "tasks": SlashCommand("tasks", "to-dos, background commands and agents", _tasks),
    "mode": SlashCommand("mode [MODE]", "show or set the mode: default, accept-edits, plan", _mode),
}


# -- from files --------------------------------------------------------------------------------------------------------


@frozen
class FileCommand:
    """A prompt from a file."""

    name: str
    about: str
    hint: str
    """A hint about its arguments, for people."""
    text: str
    source: str

    def prompt(self, rest: str) -> str:
        """Return the prompt with the arguments inserted at its placeholders, or appended if it has none."""
        words = rest.split()

        def fill(found: re.Match[str]) -> str:
            if found[1] is None:
                return rest
            number = int(found[1])
            return words[number - 1] if number <= len(words) else ""

        filled, count = _PLACE.subn(fill, self.text)
        return f"{filled}\n\n{rest}" if rest and not count else filled


def load_commands(workspace: str, *, trusted: bool) -> tuple[dict[str, FileCommand], list[str]]:
    """Load the commands from files, later folders overriding earlier ones; also return why files were skipped."""
    found, problems = load_definitions(workspace, "commands", _read_command, trusted=trusted)
    return {command.name: command for command in found}, problems


def _read_command(path: str) -> FileCommand:
    name = os.path.basename(path).removesuffix(".md")
    if not _NAME.fullmatch(name):
        raise SettingsError("a command's name is letters, digits, '_' and '-'")
    if name in BUILT_IN:
        raise SettingsError(f"/{name} is built in; choose another name")
    with open(path, encoding="utf-8") as file:
        text = file.read(FILE_BYTES + 1)
    if len(text) > FILE_BYTES:
        raise SettingsError(f"it is longer than {FILE_BYTES:,} characters")
    values, body = read_front_matter(text, _KNOWN, lists=("allowed-tools",)) or ({}, text.strip())
    if not body:
        raise SettingsError("it says nothing")
    about = " ".join(values.get("description", [])) or body.splitlines()[0][:80]
    return FileCommand(name, about, " ".join(values.get("argument-hint", [])), body, path)


# Files mentioned in a prompt: `@src/app.py` gives the model that file, `@shot.png` that picture.

MOST_MENTIONS: Final = 20
_MENTION: Final = re.compile(r"""(?<![\w@/])@(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'`<>|*?]+))""")
_TRAILING: Final = ".,;:!?)]}"


def find_mentions(text: str, folder: str) -> list[str]:
    """Return the existing files that a text mentions, as written."""
    found: dict[str, None] = {}
    for match in _MENTION.finditer(text):
        name = match[1] or match[2] or match[3]
        for candidate in (name, name.rstrip(_TRAILING)):
            if candidate and os.path.isfile(os.path.join(folder, os.path.expanduser(candidate))):
                found[candidate] = None
                break
    return list(found)[:MOST_MENTIONS]


async def add_mentioned(app: Surehand, prompt: Prompt) -> Message:
    """Return the user's message with the files it mentions; unreadable ones are reported to model and user."""
    message = user_message(prompt)
    texts: list[str] = []
    images: list[Image] = []
    for name in find_mentions(message.text, app.session.cwd):
        result = await app.call("Read", {"file_path": name}, source="user")
        if not result.ok:
            app.session.emit("note", message=f"@{name} was not read: {result.output}")
            texts.append(f"(@{name} could not be read: {result.output})")
            continue
        pictures = [block for block in result.content if isinstance(block, Image)]
        images += pictures
        texts.append(f"(@{name} is shown)" if pictures else f"<file path={name!r}>\n{result.output}\n</file>")
    if not texts:
        return message
    return replace(message, text="\n\n".join((message.text, *texts)), images=(*message.images, *images))
