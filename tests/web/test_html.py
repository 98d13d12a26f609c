"""Pages become what a person would have read: title, text and structure, and nothing that was not meant for eyes."""

from __future__ import annotations

import asyncio
import html as entities
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from surehand.web.documents import Converter
from surehand.web.pages import html_page, is_quick_html, title_of, words_page

PAGE = """<!doctype html><html lang=en><head><title>
  Tides &amp; Moons &mdash; a guide </title><meta charset=utf-8>
<script>var hidden = "SCRIPT<b>TEXT</b>";</script><style>.a { color: STYLETEXT }</style>
<script type="application/ld+json">{"headline": "JSONLD"}</script></head>
<body><nav><a href="/">Home</a> <a href="/menu">MENUTEXT</a></nav>
<header><h1>How tides work</h1><p>By A. Writer</p></header>
<div hidden>HIDDEN1</div><div style="display: none">HIDDEN2</div><template>HIDDEN3</template>
<noscript>HIDDEN4</noscript><main><article>
<p>Water is <b>pulled</b> by the <a href="../moon?a=1&amp;b=2">moon</a> &mdash; caf&eacute; &#8217; 1 &lt; 2.</p>
<h2>Numbers</h2><table><tr><th>Place</th><th>Range</th></tr><tr><td>Fundy</td><td>16 m</td></tr></table>
<ul><li>high<ul><li>spring</li></ul></li><li>low</li></ul><ol><li>first</li><li>second</li></ol>
<pre><code class="language-python">def tide(hour):
    return hour &lt; 6
</code></pre><blockquote>The sea waits.</blockquote><dl><dt>neap</dt><dd>small range</dd></dl>
<figure><img src="/p.jpg" alt="A harbour"><figcaption>The harbour</figcaption></figure>
<form><label>Your town</label><select><option>OPTION1<option>OPTION2</select></form>
<p><a href="javascript:alert('x')">Print</a></p></article></main><footer>Written in May.</footer></body></html>"""


@pytest_asyncio.fixture
async def converter() -> AsyncIterator[Converter]:
    made = Converter()
    yield made
    await made.close()


def test_structure_is_kept() -> None:
    page = html_page(PAGE, "https://sea.example/a/tides.html")
    assert page.title == "Tides & Moons — a guide"
    for part in (
        "# How tides work",
        "By A. Writer",
        "**pulled**",
        "[moon](https://sea.example/moon?a=1&b=2)",
        "café ’ 1 < 2.",
        "## Numbers",
        "| Place | Range |",
        "| Fundy | 16 m |",
        "- high",
        "spring",
        "1. first",
        "2. second",
        "```python\ndef tide(hour):\n    return hour < 6\n```",
        "> The sea waits.",
        "neap",
        "small range",
        "![A harbour](https://sea.example/p.jpg)",
        "The harbour",
        "Your town",
        "Written in May.",
    ):
        assert part in page.text


@pytest.mark.parametrize(
    "noise", ["SCRIPT", "STYLETEXT", "JSONLD", "MENUTEXT", "HIDDEN", "OPTION1", "alert(", "<p>", "&amp;", "Tides &amp;"]
)
def test_noise_is_gone(noise: str) -> None:
    assert noise not in html_page(PAGE).text


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>Plain</title><p>x", "Plain"),
        ("<TITLE lang=en>\n Upper \n case </TITLE>", "Upper case"),
        ("<!-- <title>No</title> --><script>'<title>No</title>'</script><title>Yes</title>", "Yes"),
        ("<svg><title>Icon</title></svg><title>Page</title>", "Page"),
        ("<head></head><body><svg><title>Icon</title></svg><p>x", ""),
        ('<meta property="og:title" content="Social &amp; co"><body>x', "Social & co"),
        ("<title></title><meta name='twitter:title' content='Bird'><body>", "Bird"),
        ("<title>never closed", ""),
        ("<p>none", ""),
        ("<title>&lt;b&gt; stays text</title>", "<b> stays text"),
    ],
)
def test_the_title_is_that_of_the_page(html: str, title: str) -> None:
    assert title_of(html) == title


@pytest.mark.parametrize(
    "html",
    [
        "<p>kept<script>LEAK",
        "<p>kept<style>LEAK",
        "<p>kept<SCRIPT>LEAK</SCRI",
        "<p>kept<!-- LEAK",
        "<p>kept<style>LEAK</style><script>LEAK",
        "<p>kept<div class='LEAK",
        "<p>kept<noscript>LEAK</noscript>",
        "<p>kept<svg><style>LEAK</style></svg>",
        "<p>kept<iframe srcdoc='LEAK'></iframe>",
    ],
)
def test_a_page_cut_anywhere_leaks_no_script_or_style(html: str) -> None:
    text = html_page(html).text
    assert "kept" in text
    assert "LEAK" not in text


def test_pages_that_hide_themselves_until_a_script_runs_are_still_read() -> None:
    assert "here" in html_page('<html style="opacity:0"><body class=x style="display:none"><p>here</p>').text
    assert "here" in html_page("<body hidden><p>here</p></body>").text
    assert "here" in html_page('<h1>Top</h1><div id="articleBody" style="display: none"><p>here</p></div>').text
    assert "here" in html_page('<div id=app style="display:none"><p>here</p></div>').text
    assert "here" in html_page("<nav><a href=/x>here</a></nav>").text
    assert "secret" not in html_page('<p>seen</p><div class=note style="display:none">secret</div>').text


def test_text_that_was_never_closed_is_kept() -> None:
    for tag in ("p", "li", "td", "dd", "h2", "font", "option"):
        html = "<table><tr>" * (tag == "td") + "".join(f"<{tag}>word{at}" for at in range(500))
        text = html_page(html).text
        assert all(f"word{at}" in text for at in range(500)), tag


@given(st.text(alphabet="<>/!-= \"'&;#abdilprstuv1\n", max_size=300))
@settings(max_examples=200)
def test_no_markup_makes_it_fail(html: str) -> None:
    html_page(html, "https://a.example/")
    words_page(html)
    title_of(html)


@given(
    st.lists(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1, max_size=12), min_size=1, max_size=30)
)
@settings(max_examples=60)
def test_words_come_through_in_any_script(words: list[str]) -> None:
    text = html_page("<article>" + "".join(f"<p>{entities.escape(word)}</p>" for word in words) + "</article>").text
    assert all(word in text for word in words)


def large_page(size: int = 1_000_000) -> tuple[str, int]:
    part = (
        "<h2>Part {0}</h2><p>Some <b>bold</b> text with <a href='/to/{0}'>link {0}</a> and more &amp; more words.</p>"
        "<table><tr><th>k</th><th>v</th></tr><tr><td>key{0}</td><td>{0}</td></tr></table><ul><li>one<li>two</ul>"
    )
    count = size // len(part)
    return "<html><title>Large</title><body>" + "".join(part.format(at) for at in range(count)), count


async def test_a_large_page_keeps_everything_and_never_holds_up_the_loop(converter: Converter) -> None:
    html, count = large_page()
    assert not is_quick_html(html)
    await converter.page("html", html)  # starts the child
    turns = 0
    work = asyncio.ensure_future(converter.page("html", html, "https://l.example/"))
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    page = work.result()
    assert page.title == "Large"
    assert len(re.findall(r"^## Part \d+$", page.text, re.M)) == count
    assert len(re.findall(r"\[link \d+\]\(https://l\.example/to/\d+\)", page.text)) == count
    assert len(re.findall(r"^\| key\d+ \| \d+ \|$", page.text, re.M)) == count
    assert turns > 10  # where the loop converts, it has two or three; how long a turn takes is the benchmarks' matter


BOMBS = {
    "nested": "<div>" * 200_000,
    "unclosed": "<font><p>" * 110_000 + "the end",
    "closed": "<div>" * 80_000 + "deep" + "</div>" * 80_000,
    "comments": "<!--" * 250_000,
    "attributes": "<p " + "a=b " * 250_000 + ">x",
    "rows": "<table><tr>" + "<td>x" * 2000 + "</tr>" + "<tr><td>y" * 100_000,
    "spans": "<table>" + "<tr><td cOlSpAn=99999 rowspan=99999>x</td></tr>" * 20_000,
    "titles": "<title>" * 140_000,
    "scripts": "<script>" * 120_000,
    "less-than": "<" * 1_000_000,
    "definitions": "<dl><dt>" * 120_000,
}


@pytest.mark.parametrize("name", BOMBS)
async def test_markup_made_to_hurt_costs_neither_time_nor_memory(name: str, converter: Converter) -> None:
    html = BOMBS[name][:1_048_576]
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _memory_kib("VmRSS"), time.perf_counter()
    await converter.page("html", html)
    assert time.perf_counter() - began < 60  # what hangs, hangs without end
    assert _memory_kib("VmHWM") - before < 32 * 1024


def _memory_kib(row: str) -> int:
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows[row].split()[0])


async def test_words_are_kept_where_the_converter_gives_up(converter: Converter) -> None:
    html = "<title>T</title>" + "<font><p>" * 110_000 + "the end &amp; all<script>LEAK</script>"
    page = await converter.page("html", html)
    assert (page.title, page.text) == ("T", "the end & all")
    assert words_page(html).text == "the end & all"


async def test_the_child_is_kept_and_replaced_when_it_died(converter: Converter) -> None:
    html, _ = large_page(150_000)
    await converter.page("html", html)
    child = converter._child  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    await converter.page("html", html)
    assert converter._child is child  # pyright: ignore[reportPrivateUsage]
    child.kill()
    await child.wait()
    assert (await converter.page("html", html)).title == "Large"


async def test_a_cancelled_page_leaves_no_child_busy(converter: Converter) -> None:
    work = asyncio.ensure_future(converter.page("html", "<font><p>" * 110_000))
    while converter._child is None:  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.005)
    child = converter._child  # pyright: ignore[reportPrivateUsage]
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert child.returncode is not None


def test_tables_that_lay_out_a_page_are_taken_apart_and_tables_of_data_kept() -> None:
    data = "<table><tr><th>k<th>v<tr><td>a<td>1</table>"
    html = (
        f"<table><tr><td>menu</td><td><TABLE><tr><td><h1>Head</h1>One<p>Two{data}</td></tr></TABLE></td></tr></table>"
    )
    text = html_page(html).text
    assert text == "menu\n\n# Head\n\nOne\n\nTwo\n\n| k | v |\n| --- | --- |\n| a | 1 |"
    plain = "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>"
    assert html_page(plain).text == "| a | b |\n| --- | --- |\n| 1 | 2 |"


TABLE_TAGS = [
    "<table>",
    "</table>",
    "<tr>",
    "</tr>",
    "<td>",
    "</td>",
    "<th>",
    "<h2>",
    "</h2>",
    "<p>",
    "<ul><li>",
    "</ul>",
]


@given(st.lists(st.sampled_from(TABLE_TAGS), min_size=1, max_size=25))
@settings(max_examples=200)
def test_no_word_is_lost_in_any_mess_of_tables(tags: list[str]) -> None:
    text = html_page("".join(f"{tag} word{at}x" for at, tag in enumerate(tags))).text
    assert all(f"word{at}x" in text for at in range(len(tags)))


UNFINISHED = ["<th ", "<td ", "<title ", "</title ", "<title></title ", "<!--", "<script ", "</script ", "<svg>"]
UNFINISHED += ["](javascript:", "<meta property=og:title ", "display:none", "<html ", "span=", "<!---->", "<item "]
UNFINISHED += ["<link ", "&amp", "<table>", "<table><h1>", "> ", "\xa0"]


@pytest.mark.parametrize("piece", UNFINISHED)
def test_no_pattern_of_ours_takes_more_than_linear_time(piece: str) -> None:
    from surehand.web.documents import decode
    from surehand.web.pages import make

    text = "<rss>" + piece * (60_000 // len(piece))
    began = time.perf_counter()
    for kind in ("html", "words", "xml", "json"):
        make(kind, text)  # pyright: ignore[reportArgumentType]
    decode(text.encode() + b"\xff", "text/html")
    assert time.perf_counter() - began < 60  # what hangs, hangs without end
