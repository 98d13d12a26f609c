"""`surehand tour` and `surehand demo`: a step-by-step demonstration, and a small directory to try commands in.

The tour makes real calls in a temporary workspace, without network or API key, and deletes it at the end.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from surehand.app import Surehand
from surehand.cli import render, session
from surehand.cli.main import Usage
from surehand.core.text import format_count
from surehand.core.tool import tool
from surehand.policy.approval import Nobody
from surehand.providers.offline import OfflineModel
from surehand.sandbox.protocol import abilities

if TYPE_CHECKING:
    from surehand.core.call import ToolResult


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    del parser


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    del options
    with tempfile.TemporaryDirectory(prefix="surehand-tour-") as scratch:
        workspace = os.path.join(scratch, "project")
        os.mkdir(workspace)
        # State of its own: the tour must not read or change the user's.
        os.environ["SUREHAND_HOME"] = os.path.join(scratch, "state")
        write_demo(workspace)
        render.line("A tour of Surehand, on a folder made for it: no network, no key, and nothing is left behind.")
        failed = session.run(_walk(workspace))
    render.line()
    if failed:
        render.error(f"{failed} step(s) of the tour did not work", "`surehand doctor` says what is missing here.")
        return 1
    render.line(_next())
    return 0


_NEXT = (
    ("tools list", "the tools there are"),
    ('tools invoke Read --args \'{"file_path": "README.md"}\'', "one of them, called"),
    ('policy check --tool Bash --args \'{"command": "git push"}\'', "what may happen, and why"),
    ("doctor", "what works on this machine"),
    ("console --open", "every session in a browser: it prints its address, http://127.0.0.1:PORT with a code"),
)


def _next() -> str:
    """Return the commands to try next, as they can be typed here."""
    program = _program()
    lines = [f"  {program} {words}\n      {about}" for words, about in _NEXT]
    last = "`surehand help concepts` says how it works, in one minute."
    return "\n".join(["That was the tour. What next:", *lines, last])


def _program() -> str:
    """Return how to run surehand: its name if it is on PATH, else its path."""
    import shutil

    if shutil.which("surehand"):
        return "surehand"
    beside = os.path.join(os.path.dirname(sys.executable), "surehand")
    if not os.path.exists(beside):
        return "python -m surehand"
    try:
        here = os.path.relpath(beside)
    except OSError:  # the current directory no longer exists
        return beside
    return beside if here.startswith("..") else here


class _Guide:
    """Numbers the steps, shows each call and its result, and counts failures."""

    def __init__(self, app: Surehand) -> None:
        self.app = app
        self.number = 0
        self.failed = 0

    def step(self, title: str) -> None:
        self.number += 1
        render.line()
        render.line(render.paint(f"{self.number}. {title}", "bold"))

    async def call(self, name: str, args: dict[str, Any], *, refused: str | None = None, lines: int = 6) -> ToolResult:
        """Make a call and show it. `refused` is the expected error code; any other outcome counts as a failure."""
        render.line(render.paint(f"   > {name} {json.dumps(args, ensure_ascii=False)}", "cyan"))
        result = await self.app.call(name, args, source="cli")
        self.show(result, lines)
        code = result.error.code if result.error else None
        if code != refused:
            self.failed += 1
        return result

    def show(self, result: ToolResult, lines: int) -> None:
        text = result.output.rstrip().splitlines()
        if result.error:
            text = [f"{result.error.code}: {result.error.message}", *result.error.hint.splitlines()]
        left = len(text) - lines
        for each in text[:lines] if left > 1 else text:
            render.line(f"     {each}".rstrip())
        if left > 1:
            render.line(f"     ... {format_count(left, 'more line')}")


def _bytes(guide: _Guide, name: str) -> bytes:
    with open(os.path.join(guide.app.session.workspace, name), "rb") as file:
        return file.read()


async def _walk(workspace: str) -> int:
    async with Surehand(
        workspace, approver=Nobody(), mode="accept-edits", allow=["Undo", "Redo", "Bash(sed:*)"]
    ) as app:
        guide = _Guide(app)
        for part in PARTS:
            await part(guide)
        return guide.failed


async def _first_calls(guide: _Guide) -> None:
    guide.step("A call goes in, a result comes out")
    await guide.call("time.now", {})
    await guide.call("calculate", {"expression": "2 + 3 * 4"})


async def _bad_input(guide: _Guide) -> None:
    guide.step("A mistake gets an answer that helps")
    await guide.call("calculat", {}, refused="tool_not_found")
    await guide.call("calculate", {"precision": "many"}, refused="invalid_args")
    guide.step("Arguments with one obvious meaning are repaired, and the result says so")
    result = await guide.call("calculate", {"expression": "10 / 4", "precision": "1"})
    render.line(f"     repaired: {'; '.join(result.meta.get('repaired', []))}")


async def _own_tool(guide: _Guide) -> None:
    @tool(read_only=True)
    def word_count(text: str) -> int:
        "Count the words of a text."
        return len(text.split())

    guide.step("A tool of your own is a typed function")
    guide.app.register(word_count)
    await guide.call("word_count", {"text": "hands that hold"})


async def _files(guide: _Guide) -> None:
    guide.step("Files: find, read, and nothing is changed unread")
    await guide.call("Grep", {"pattern": "TODO"})
    edit = {"file_path": "notes.txt", "old_string": "second line\n", "new_string": "second line\nthird line\n"}
    await guide.call("Edit", edit, refused="precondition_failed")
    await guide.call("Read", {"file_path": "notes.txt"})
    guide.step("An edit keeps every other byte: this file's line ends are CRLF, and stay so")
    await guide.call("Edit", edit)
    render.line(f"     on disk: {_bytes(guide, 'notes.txt')!r}")


async def _undo(guide: _Guide) -> None:
    guide.step("Everything can be undone")
    await guide.call("Undo", {})
    render.line(f"     on disk: {_bytes(guide, 'notes.txt')!r}")


async def _policy(guide: _Guide) -> None:
    guide.step("One policy for files and shell alike: a secret is a secret")
    await guide.call("Read", {"file_path": ".env"}, refused="permission_denied", lines=2)
    await guide.call("Bash", {"command": "ls && cat .env"}, refused="permission_denied", lines=2)
    guide.step("The web tools reach only public addresses, however they are spelt")
    await guide.call("WebFetch", {"url": "http://2852039166/latest/meta-data"}, refused="permission_denied", lines=1)
    guide.step("What nobody approved does not run, however it is hidden")
    await guide.call("Bash", {"command": "echo ok && rm -rf /"}, refused="permission_denied", lines=2)


def _contained(guide: _Guide) -> bool:
    """Whether commands can be sandboxed. If not, say so: they would need approval, and the tour has no approver."""
    found = abilities()
    if not found.enough:
        render.line(f"\n   (this system has no sandbox: {found.why_not}; commands ask before they run)")
    return found.enough


async def _shell(guide: _Guide) -> None:
    if not _contained(guide):
        return
    guide.step("Read-only commands run without asking, in a sandbox where the system has one")
    await guide.call("Bash", {"command": "ls *.py | wc -l"})


async def _shell_undo(guide: _Guide) -> None:
    if not _contained(guide):
        return
    args = {"command": "sed -i s/Hello/Hi/ app.py"}
    guide.step("A command can have a dry run first: it runs on a copy, and the difference is shown")
    render.line(render.paint(f"   > (dry run) Bash {json.dumps(args)}", "cyan"))
    tried = await guide.app.dry_run("Bash", args)
    guide.show(tried, 12)
    guide.failed += not tried.ok
    guide.step("What a command changed is undone like any edit")
    await guide.call("Bash", args)
    await guide.call("Undo", {})
    render.line(f"     on disk: {_bytes(guide, 'app.py').splitlines()[-1]!r}")


async def _ask(guide: _Guide) -> None:
    guide.step("The agent loop uses the same executor (here with the offline planner, not a language model)")
    render.line(render.paint("   > surehand ask 'find TODO in .'", "cyan"))
    outcome = await guide.app.conversation(OfflineModel()).ask("find TODO in .")
    for line in outcome.text.splitlines()[:3]:
        render.line(f"     {line}".rstrip())
    guide.failed += not outcome.answered


async def _show_measures(guide: _Guide) -> None:
    guide.step("Everything was measured and recorded")
    for each in guide.app.metrics.all()[:4]:
        run = each.execution
        render.line(f"     {each.tool:<10} {format_count(run.total_calls, 'call')}, {run.failed_calls} failed")
    render.line("     in a folder of yours, `surehand audit show`, `surehand log` and `surehand stats` tell the rest")


PARTS: tuple[Callable[[_Guide], Awaitable[None]], ...] = (
    _first_calls,
    _bad_input,
    _own_tool,
    _files,
    _undo,
    _policy,
    _shell,
    _shell_undo,
    _ask,
    _show_measures,
)


FILES: Final = {
    "app.py": "def greet(name):\n    # TODO: be friendlier\n    return 'Hello ' + name\n",
    "notes.txt": "first line\r\nsecond line\r\n",  # CRLF: an edit must keep it
    ".env": "API_KEY=do-not-show\n",
    ".gitignore": "*.log\n",
    "debug.log": "noise\n",
}


def configure_demo(parser: ArgumentParser) -> None:
    """Add the options of `demo`."""
    parser.add_argument("directory", metavar="DIR", help="a directory that does not exist yet, or is empty")


def run_demo(options: Namespace) -> int:
    """Run `demo` and return its exit code."""
    directory = os.path.join(str(options.cwd), os.path.expanduser(str(options.directory)))
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        raise Usage(f"{options.directory} is not empty", "Name a directory that does not exist yet.")
    write_demo(directory)
    render.facts(
        options,
        {"directory": directory, "files": sorted(FILES)},
        f"made {directory}\n"
        f"  cd {options.directory}\n"
        '  surehand tools invoke Grep --args \'{"pattern": "TODO"}\'\n'
        '  surehand tools invoke Bash --args \'{"command": "ls && cat .env"}\'',
    )
    return 0


def write_demo(directory: str) -> None:
    """Write the demo's files into an existing directory."""
    for name, content in FILES.items():
        with open(os.path.join(directory, name), "x", encoding="utf-8", newline="") as file:
            file.write(content)
