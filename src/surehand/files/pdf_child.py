"""The child process that reads a PDF: `python -I -S pdf_child.py FD LIBRARY FIRST LAST BUDGET` prints one JSON object.

PDFs are untrusted and their decoder is a large C++ library: a decompression bomb or a crash must end only this process.
Memory and CPU time are limited before the document is read.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

MEMORY_BYTES = 32 * 1024 * 1024
INTERPRETER_BYTES = 32 * 1024 * 1024
CPU_S = 2
SOFT_S = 1.5
PASSWORD_ERROR = 4


def main() -> None:
    """Read the pages given on the command line and print them as JSON."""
    fd, library, first, last, budget = sys.argv[1:]
    sys.path.append(library)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    import pypdfium2

    limit = _count_held_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        document: Any = pypdfium2.PdfDocument(os.fdopen(int(fd), "rb"))
        found = _read(document, int(first), int(last), int(budget))
    except pypdfium2.PdfiumError as problem:
        code: Any = getattr(problem, "err_code", None)
        found = {"error": "encrypted" if code == PASSWORD_ERROR else "broken", "message": str(problem)}
    except MemoryError:
        found = {"error": "memory"}
    sys.stdout.write(json.dumps(found))


def _count_held_bytes() -> int:
    """Return the data memory (bytes) of this process before it opens the document."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return INTERPRETER_BYTES


def _read(document: Any, first: int, last: int, budget: int) -> dict[str, Any]:
    """Return the text of pages `first` to `last` (from 1), until the budget or the time is used up."""
    deadline = time.monotonic() + SOFT_S
    count = len(document)
    pages: list[dict[str, Any]] = []
    for number in range(first, min(last, count) + 1):
        text = _text(document, number)
        pages.append({"page": number, "text": text[:budget], "cut": len(text) > budget})
        budget -= len(text)
        if budget <= 0 or time.monotonic() > deadline:
            break
    return {"count": count, "pages": pages, "title": document.get_metadata_value("Title")[:300]}


def _text(document: Any, number: int) -> str:
    page = document[number - 1]
    try:
        text_page = page.get_textpage()
        try:
            text = text_page.get_text_bounded()
        finally:
            text_page.close()
    finally:
        page.close()
    return text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode().strip("\n")


if __name__ == "__main__":
    main()
