"""Read the text of PDF documents by page, in a child process with limited memory and time."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Final

from surehand.core import installation
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.installation import install_hint
from surehand.core.text import PDF_CHARACTERS

WALL_S: Final = 10.0
ALL: Final = 1_000_000_000
_RANGE: Final = re.compile(r"\s*(\d{1,9})?\s*(-)?\s*(\d{1,9})?\s*")


@frozen
class PdfPage:
    """One page: its number from 1, its text, and whether the text was truncated."""

    number: int
    text: str
    cut: bool


@frozen
class PdfText:
    """The number of pages in a document, and the text of some of them."""

    count: int
    pages: tuple[PdfPage, ...]
    title: str


def page_range(text: str) -> tuple[int, int]:
    """Parse `3`, `1-5`, `10-` or `-4` into (first, last), counted from 1."""
    match = _RANGE.fullmatch(text)
    first, dash, last = match.groups() if match else (None, None, None)
    if not first and not last:
        raise ToolFailure(f"pages {text!r} is not a range", code="invalid_args", hint='Write "3", "1-5" or "10-".')
    low = int(first or 1)
    high = int(last) if last else ALL if dash else low
    if low < 1 or high < low:
        raise ToolFailure(f"pages {text!r} holds no page", code="invalid_args", hint="Pages count from 1.")
    return low, high


def read_pdf(fd: int, path: str, first: int = 1, last: int = ALL, budget: int = PDF_CHARACTERS) -> PdfText:
    """Return the text of pages `first` to `last` of an open file; raise ToolFailure if it cannot be read."""
    found = _ask_child(fd, path, first, last, budget)
    if "error" in found:
        raise _failure(path, found)
    pages = tuple(PdfPage(each["page"], each["text"], each["cut"]) for each in found["pages"])
    if not pages and found["count"]:
        raise ToolFailure(
            f"{path} has {found['count']} pages; there is no page {first}",
            hint=f"Ask for pages from 1 to {found['count']}.",
            details={"path": path, "pages": found["count"]},
        )
    return PdfText(found["count"], pages, found["title"] or "")


def _ask_child(fd: int, path: str, first: int, last: int, budget: int) -> dict[str, Any]:
    import subprocess
    from importlib.util import find_spec

    spec = find_spec("pypdfium2")
    if spec is None or spec.origin is None:
        hint = install_hint("documents")
        raise ToolFailure(f"{path} is a PDF, and pypdfium2 is not installed", code="tool_unavailable", hint=hint)
    library = os.path.dirname(os.path.dirname(spec.origin))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pdf_child.py")
    command = [sys.executable, "-I", "-S", script, *map(str, (fd, library, first, last, budget))]
    try:
        done = subprocess.run(
            command,
            pass_fds=(fd,),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=WALL_S,
            env=installation.find_library_paths(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "time"}
    if done.returncode != 0 or not done.stdout:
        # Killed by a limit, or crashed in the decoder: the exit status does not tell them apart.
        return {"error": "crashed"}
    return json.loads(done.stdout)


_REASONS: Final = {
    "encrypted": ("is encrypted and needs a password", "Decrypt it first, for example with Bash `qpdf --decrypt`."),
    "memory": ("needs too much memory to be read", "Split it, or read fewer pages (`pages`)."),
    "time": ("takes too long to be read", "Read fewer pages (`pages`)."),
    "crashed": ("cannot be read within bounds of memory and time", "It may be damaged; try fewer pages (`pages`)."),
}


def _failure(path: str, found: dict[str, Any]) -> ToolFailure:
    reason = found["error"]
    damaged = (f"is a PDF that cannot be read: {found.get('message', '')}", "The file may be damaged or truncated.")
    what, hint = _REASONS.get(reason, damaged)
    return ToolFailure(f"{path} {what}", hint=hint, details={"path": path, "reason": f"pdf_{reason}"})
