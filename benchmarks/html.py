"""HTML to text: ours against html-to-markdown alone, what it keeps, and how long the loop stands still meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from benchmarks.harness import Harness

PART = (
    "<h2>Part {0}</h2><p>Some <b>bold</b> text with <a href='/to/{0}'>link {0}</a> and more &amp; more words of an"
    " article, long enough to look like one.</p><table><tr><th>key</th><th>value</th></tr><tr><td>key {0}</td>"
    "<td>{0}</td></tr></table><ul><li>one</li><li>two</li></ul>"
)
BOMBS = {
    "nested": "<div>" * 200_000,
    "unclosed": "<font><p>" * 110_000,
    "wide table": "<table><tr>" + "<td>x" * 2000 + "</tr>" + "<tr><td>y" * 100_000,
    "less-than": "<" * 1_000_000,
}


def page(size: int = 1_000_000) -> tuple[str, int]:
    """Return an article of about `size` characters, and how many parts it has."""
    count = size // len(PART)
    return "<html><head><title>Large</title></head><body>" + "".join(PART.format(at) for at in range(count)), count


def rows(harness: Harness) -> None:
    from html_to_markdown import convert

    from surehand.web.documents import Converter
    from surehand.web.pages import html_page

    html, count = page()
    loop = asyncio.new_event_loop()
    converter = Converter()

    def whole_way() -> object:
        return loop.run_until_complete(converter.page("html", html, "https://a.example/"))

    job = "HTML to text, 1 MB"
    harness.compare(
        job,
        [
            ("html-to-markdown", lambda: convert(html)),
            ("ours, in the child, loop free", whole_way),
            ("ours, the conversion", lambda: html_page(html, "https://a.example/")),
        ],
        goal="<= 1.3",
    )
    text = html_page(html).text
    for name, pattern in (("headings", r"^## Part \d+$"), ("links", r"\[link \d+\]\("), ("tables", r"^\| key \d+ \|")):
        harness.fact(job, f"{name} kept", len(re.findall(pattern, text, re.M)) / count, "1")
    harness.fact(
        "event loop gap while converting", "ours", loop.run_until_complete(_gap(converter, html)), "<= 20", "ms"
    )
    for name, bomb in BOMBS.items():
        seconds, mib = loop.run_until_complete(_cost(converter, bomb[:1_048_576]))
        harness.fact("HTML bombs, seconds", name, seconds, "<= 2", "s")
        harness.fact("HTML bombs, memory of this process", name, mib, "<= 32", "MiB")
    loop.run_until_complete(converter.close())
    loop.close()


async def _gap(converter: object, html: str) -> float:
    """Return the longest time, in milliseconds, that another task had to wait."""
    from surehand.web.documents import Converter

    assert isinstance(converter, Converter)
    work = asyncio.ensure_future(converter.page("html", html))
    worst, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0.001)
        worst, last = max(worst, time.perf_counter() - last), time.perf_counter()
    return worst * 1000


async def _cost(converter: object, html: str) -> tuple[float, float]:
    from surehand.web.documents import Converter

    assert isinstance(converter, Converter)
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _memory_kib("VmRSS"), time.perf_counter()
    await converter.page("html", html)
    return time.perf_counter() - began, max(0, _memory_kib("VmHWM") - before) / 1024


def _memory_kib(row: str) -> int:
    table = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(table[row].split()[0])


if __name__ == "__main__":
    quick = Harness(quick=True)
    rows(quick)
    print(quick.table())
