"""`@file` in a prompt gives the model that file, through the door."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from surehand.slash import add_mentioned, find_mentions
from surehand.testing import scratch_app

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("look at @a.txt, please", ["a.txt"]),
        ("@a.txt.", ["a.txt"]),
        ('(@"b c.txt")', ["b c.txt"]),
        ("mail me@a.txt or @nothing", []),
        ("@sub/d.txt and @sub/d.txt", ["sub/d.txt"]),
        ("@sub", []),
    ],
)
def test_what_is_a_mention(text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "b c.txt", "sub/d.txt"):
        (tmp_path / name).write_text(name)
    assert find_mentions(text, str(tmp_path)) == expected


async def test_files_pictures_and_refusals(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "p.png").write_bytes(base64.b64decode(DOT))
    (tmp_path / ".env").write_text("TOKEN=abc\n")
    notes: list[str] = []
    async with scratch_app(tmp_path, approve=False) as app:
        app.bus.subscribe(lambda event: notes.append(event.data["message"]) if event.kind == "note" else None)
        message = await add_mentioned(app, "compare @a.txt with @p.png and @.env")
        edited = await app.call("Edit", {"file_path": "a.txt", "old_string": "hello", "new_string": "bye"})
    assert "1\thello" in message.text
    assert base64.b64decode(message.images[0].data)
    assert "TOKEN=abc" not in message.text
    assert "@.env was not read" in notes[0]
    assert edited.error is not None
    assert edited.error.code == "permission_denied", "it counts as read, and was refused by the user alone"
