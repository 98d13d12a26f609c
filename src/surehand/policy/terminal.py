"""`Terminal`: an approver that asks the person at the terminal, showing exactly what will run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.tool import DryRun
from surehand.policy.approval import Answer, AnswerKind, Question, one_line, printable
from surehand.state.stdio import echoing

_KEYS: Final[dict[str, AnswerKind]] = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
    "n": "no",
    "no": "no",
    "": "no",
}


class Terminal:
    """Asks on the controlling terminal, one question at a time; without a terminal the answer is no.

    `reading` and `writing` are the file descriptors of another terminal to use; `style` colours a text.
    """

    def __init__(
        self,
        reading: int | None = None,
        writing: int | None = None,
        *,
        style: Callable[[str], str] = str,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._style = style
        self._turn = asyncio.Lock()

    async def ask(self, question: Question) -> Answer:
        """Ask the person at the terminal."""
        async with self._turn:
            if self._reading is not None and self._writing is not None:
                with echoing(self._reading):
                    return await self._ask_on(question, self._reading, self._writing)
            try:
                device = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            except OSError:
                return Answer("no", "there is no terminal to ask on", unasked=True)
            try:
                with echoing(device):
                    return await self._ask_on(question, device, device)
            finally:
                os.close(device)

    def withdraw(self, question: Question, answer: Answer) -> None:
        """Print that the question on the terminal was answered elsewhere."""
        del question
        said = f"\nanswered elsewhere by {one_line(answer.by)}: {answer.kind}\n"
        if self._writing is not None:
            return _write(self._writing, said)
        try:
            device = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return _write(device, said)
        finally:
            os.close(device)

    async def _ask_on(self, question: Question, reading: int, writing: int) -> Answer:
        rules, can_try = question.decision.suggestion, question.try_first is not None
        dry_run = question.preview.dry_run if question.preview is not None else None
        _forget_typed(reading)
        _write(writing, f"\n{self._style(question.text())}\n\n{choices(rules, can_try, seen=dry_run is not None)}")
        while True:
            line = await _line(reading)
            if line is None:
                return Answer("no", "the terminal was closed")
            word, _, rest = line.strip().partition(" ")
            if word.lower() in ("d", "dry") and question.try_first is not None:
                shown, dry_run = await _try_on_copy(question)
                _write(writing, f"{self._style(shown)}\n\n{choices(rules, can_try, seen=dry_run is not None)}")
                continue
            kind = "once" if word.lower() in ("r", "run") and dry_run is not None else _KEYS.get(word.lower())
            if kind is None or (kind in ("session", "always") and rules is None):
                told = explain_answers(rules, can_try, seen=dry_run is not None)
                _write(writing, f"{told}\n\n{choices(rules, can_try, seen=dry_run is not None)}")
                continue
            # `y` applies the dry run that was shown last; `r` runs the call instead.
            meant = "" if dry_run is None or word.lower() in ("r", "run") else dry_run.id
            if kind == "always" and not await self._confirmed(rules or "", reading, writing):
                _write(writing, "Nothing was saved; it is allowed this once.\n")
                return Answer("once", dry_run=meant)
            if kind == "no":
                return Answer("no", rest.strip() or "the user said no")
            return Answer(kind, rule=rules if kind != "once" else None, dry_run=meant)

    async def _confirmed(self, rules: str, reading: int, writing: int) -> bool:
        """Show what would be saved before it is saved."""
        shown = "\n".join(f"  allow {one_line(line)}" for line in rules.splitlines())
        _write(writing, f"This will be added to your settings:\n{shown}\nSave it? [y/N] ")
        said = await _line(reading)
        return said is not None and said.strip().lower() in ("y", "yes")


async def _try_on_copy(question: Question) -> tuple[str, DryRun | None]:
    """Dry-run the call; return the text to show, and the dry run to apply, None if it failed."""
    assert question.try_first is not None
    try:
        shown = await question.try_first()
    except ToolFailure as failure:
        return f"A dry run was not possible: {printable(failure.message)}", None
    if shown is None:
        return "A dry run of it is not possible.", None
    return printable((shown.diff or shown.text).rstrip("\n")), shown.dry_run


def choices(rules: str | None, can_try: bool = False, *, seen: bool = False) -> str:
    """Return the line of possible answers; `rules` are those that "always" would save."""
    remembered = ""
    if rules is not None:
        shown = " and ".join(one_line(line) for line in rules.splitlines())
        remembered = f"[s] this session: {shown}   [a] always   "
    if seen:
        return (
            f"[y] apply exactly this   {remembered}[r] run it for real   [d] dry run again   [?] help   [n] discard > "
        )
    trying = "[d] dry run first   " if can_try else ""
    return f"[y] once   {remembered}{trying}[?] help   [n] no (n and a reason) > "


def explain_answers(rules: str | None, can_try: bool = False, *, seen: bool = False) -> str:
    """Explain each answer on a line of its own; shown for `?` and for invalid input."""
    covers = " and ".join(one_line(line) for line in (rules or "").splitlines())
    every = (
        ("y", True, "make real exactly what was shown" if seen else "let it run, this once"),
        ("s", rules is not None, f"let it run, and whatever {covers} covers until this session ends"),
        ("a", rules is not None, "the same for good; what would be added to your settings is shown first"),
        ("r", seen, "run it again for real, whatever it does this time"),
        ("d", can_try, "try it on a copy and show what it would change; nothing changes here"),
        ("n", True, "refuse it; the text after it goes to the model: n use the other file"),
    )
    lines = [f"  {key}  {what}" for key, applies, what in every if applies]
    return "\n".join([*lines, "  Enter alone refuses it too. `surehand policy check` says why a call asks."])


def _forget_typed(descriptor: int) -> None:
    """Discard input typed before the question appeared: it cannot have been meant as its answer."""
    if os.isatty(descriptor):
        import termios

        termios.tcflush(descriptor, termios.TCIFLUSH)


def _write(descriptor: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(descriptor, data) :]


async def _line(descriptor: int) -> str | None:
    """Read one line; None at the end of input. Waits on the event loop, so that a timeout or Ctrl-C ends it."""
    loop = asyncio.get_running_loop()
    gathered = b""
    while b"\n" not in gathered:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, lambda ready=ready: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        # One byte at a time: a pipe may hold several lines, and the rest must stay for the next question.
        chunk = os.read(descriptor, 1)
        if not chunk:
            return None
        gathered += chunk
    return gathered.decode("utf-8", "replace")
