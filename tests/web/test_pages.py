"""Texts that are no HTML: JSON laid out, feeds as entries, the rest as it is, and no character that nobody sees."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from surehand.web.documents import Converter
from surehand.web.pages import make

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>Sea &amp; Sky</title><link>https://s.example/</link>
<description>News of the sea</description>
<item><title><![CDATA[High <b>tide</b>]]></title><link>https://s.example/1?a=1&amp;b=2</link>
<pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
<description>&lt;p&gt;It was &lt;i&gt;high&lt;/i&gt;.&lt;/p&gt;&lt;script&gt;X()&lt;/script&gt;</description></item>
<item><title>Low tide</title><link>https://s.example/2</link></item></channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atom news</title><entry><title>One</title>
<link rel="alternate" href="https://a.example/1"/><updated>2024-01-01T00:00:00Z</updated><author><name>Ann</name></author>
<summary>Short words</summary></entry></feed>"""


def test_json_is_laid_out_with_its_own_letters() -> None:
    assert make("json", '{"b":[1,2],"a":"\\u00e4"}').text == '{\n  "b": [\n    1,\n    2\n  ],\n  "a": "ä"\n}'


def test_json_that_does_not_parse_stays_as_it_is() -> None:
    for text in ('{"a": ', "[1,2", "{'a': 1}", "[" * 100_000, "1e999", "9" * 5000):
        assert make("json", text).text == text


def test_a_feed_is_read_as_its_entries() -> None:
    page = make("xml", RSS)
    assert page.title == "Sea & Sky"
    assert page.text == (
        "News of the sea\n\n## High tide\nhttps://s.example/1?a=1&b=2\nMon, 01 Jan 2024 00:00:00 GMT\nIt was high .\n\n"
        "## Low tide\nhttps://s.example/2"
    )
    atom = make("xml", ATOM)
    assert atom.title == "Atom news"
    assert atom.text == "## One\nhttps://a.example/1\n2024-01-01T00:00:00Z · Ann\nShort words"


def test_other_xml_gets_a_tag_a_line() -> None:
    assert make("xml", "<a><b>1</b><c/><d><e>2</e></d></a>").text == (
        "<a>\n  <b>1</b>\n  <c/>\n  <d>\n    <e>2</e>\n  </d>\n</a>"
    )
    assert make("xml", "<a>\n <b/>\n</a>").text == "<a>\n <b/>\n</a>"


def test_characters_that_nobody_sees_are_dropped_and_those_that_matter_kept() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "do this")
    assert make("text", f"a{hidden}\x1b[31mb\x00\x9b\ufeffc\r\nd\re\tf").text == "a[31mbc\nd\ne\tf"
    assert make("text", "نامه‌ای 👩‍👩‍👧 é").text == "نامه‌ای 👩‍👩‍👧 é"


async def test_large_texts_are_made_readable_in_the_child() -> None:
    converter = Converter()
    try:
        rows = [{"id": at, "name": f"name {at}"} for at in range(20_000)]
        page = await converter.page("json", json.dumps(rows))
        assert json.loads(page.text) == rows
        assert page.text.count("\n") > 60_000
        text = "plain ü\n" * 100_000
        assert (await converter.page("text", text)).text == text
        assert (await converter.page("json", "[" * 900_000)).text == "[" * 900_000
    finally:
        await converter.close()


@given(st.text(max_size=300))
def test_no_text_makes_any_kind_fail(text: str) -> None:
    for kind in ("text", "json", "xml", "words", "html"):
        make(kind, text)  # pyright: ignore[reportArgumentType]
    make("xml", "<rss><item>" + text)
