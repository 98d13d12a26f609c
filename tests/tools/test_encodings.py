"""Encodings through the door: a weak guess is said and not written in, a named one is followed."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from surehand.testing import scratch_app

SHORT = "# 中文\nx = 1\n"


async def test_a_weak_guess_is_said_and_new_characters_are_not_written_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(SHORT.encode("gbk"))
    async with scratch_app(tmp_path) as app:
        assert "weak guess" in (await app.call("Read", {"file_path": "a.py"})).output
        for tool, args in (
            ("Edit", {"old_string": "x = 1", "new_string": "x = '好'"}),
            ("MultiEdit", {"edits": [{"old_string": "x = 1", "new_string": "x = '好'"}]}),
            ("Write", {"content": "# 好\n"}),
        ):
            refused = await app.call(tool, {"file_path": "a.py", **args})
            assert refused.error is not None
            assert (refused.error.details["layer"], refused.error.details["number"]) == (6, 5)
            assert "encoding" in refused.error.hint
            assert path.read_bytes() == SHORT.encode("gbk")
        plain = await app.call("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"})
        assert plain.ok, plain.output
        assert path.read_bytes() == SHORT.replace("1", "2").encode("gbk")


@pytest.mark.parametrize("text", ["# 한국어\nx = 1\n", "# привет\nx = 1\n"])
async def test_a_weak_guess_that_lacks_a_character_is_said_to_be_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.py"
    codec = "euc_kr" if "한" in text else "koi8-r"
    path.write_bytes(text.encode(codec))
    async with scratch_app(tmp_path) as app:
        await app.call("Read", {"file_path": "a.py"})
        for tool, args in (
            ("Edit", {"old_string": "x = 1", "new_string": f"x = '{text[2]}'"}),
            ("Write", {"content": f"{text}한 п\n"}),
        ):
            refused = await app.call(tool, {"file_path": "a.py", **args})
            assert refused.error is not None
            assert "weak guess" in refused.error.message, refused.output
            assert "encoding named" in refused.error.hint
        assert path.read_bytes() == text.encode(codec)


@pytest.mark.parametrize("bom", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE])
async def test_a_file_that_holds_a_bom_alone_is_empty_to_edit_too(tmp_path: Path, bom: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(bom)
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Read", {"file_path": "a.txt"})).output == "File exists but is empty"
        result = await app.call("Edit", {"file_path": "a.txt", "old_string": "", "new_string": "é\n"})
        assert result.ok, result.output
        assert path.read_bytes().startswith(bom)
        assert "é" in (await app.call("Read", {"file_path": "a.txt"})).output
        assert (await app.undo()).ok
        assert path.read_bytes() == bom


async def test_a_named_encoding_is_read_in_and_followed_by_edits(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(SHORT.encode("gbk"))
    async with scratch_app(tmp_path) as app:
        shown = await app.call("Read", {"file_path": "a.py", "encoding": "gbk"})
        assert "# 中文" in shown.output
        assert "weak" not in shown.output
        for old, new in (("x = 1", "x = '好'"), ("中文", "中国文字"), ("'好'", "'很好'")):
            result = await app.call("Edit", {"file_path": "a.py", "old_string": old, "new_string": new})
            assert result.ok, result.output
        assert path.read_bytes() == "# 中国文字\nx = '很好'\n".encode("gbk")
        assert "很好" in (await app.call("Read", {"file_path": "a.py"})).output
        assert (await app.call("Write", {"file_path": "a.py", "content": "# 再见\n"})).ok
        assert path.read_bytes() == "# 再见\n".encode("gbk")
        assert not (await app.call("Read", {"file_path": "a.py", "encoding": "iso2022_jp"})).ok


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        ("one two\n".encode("utf-16-le"), "one two\n", "onetwo"),
        ("one two\n".encode("utf-16-be"), " two\n", "\x01\x02"),
        (b"one\n", "one", "o\0ne"),
        (b"one\n", "one", "\x01\x02\x03"),
    ],
)
async def test_an_edit_never_makes_a_file_unreadable_for_ourselves(
    tmp_path: Path, content: bytes, old: str, new: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Read", {"file_path": "a"})).ok
        refused = await app.call("Edit", {"file_path": "a", "old_string": old, "new_string": new})
        assert refused.error is not None
        assert (refused.error.details["layer"], refused.error.details["number"]) == (6, 5)
        assert path.read_bytes() == content
        assert (await app.call("Edit", {"file_path": "a", "old_string": old, "new_string": f"{old} more"})).ok
        assert (await app.call("Read", {"file_path": "a"})).ok


@pytest.mark.parametrize(
    ("name", "codec", "head"),
    [
        ("pl.po", "iso8859-2", '"Content-Type: text/plain; charset=ISO-8859-2\\n"\n'),
        ("a.py", "cp1250", "#!/usr/bin/python\n# -*- coding: cp1250 -*-\n"),
        ("a.xml", "iso8859-2", '<?xml version="1.0" encoding="iso-8859-2"?>\n'),
        (
            "a.html",
            "cp1250",
            '<html><head>\n<meta http-equiv="Content-Type" content="text/html; charset=windows-1250">\n',
        ),
        ("menu.vim", "cp1250", '" Menu\n\nscriptencoding cp1250\n'),
        ("koi.css", "koi8-r", '@charset "KOI8-R";\n'),
    ],
)
async def test_the_encoding_that_a_file_names_is_followed(tmp_path: Path, name: str, codec: str, head: str) -> None:
    path = tmp_path / name
    text = f"{head}один\n" if codec == "koi8-r" else f"{head}zażółć gęślą jaźń\n"
    path.write_bytes(text.encode(codec))
    async with scratch_app(tmp_path) as app:
        shown = await app.call("Read", {"file_path": name})
        assert shown.data["encoding"] == codec
        assert text.splitlines()[-1] in shown.output
        assert "guess" not in shown.output
        old, new = text.split()[-1], "два" if codec == "koi8-r" else "šťastný"
        edited = await app.call("Edit", {"file_path": name, "old_string": old, "new_string": new})
        assert edited.ok, edited.output
        assert path.read_bytes() == text.replace(old, new).encode(codec)


async def test_an_encoding_named_in_vain_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes("# coding: cp1253\n# ª déjà vu\n".encode("cp1252"))  # the first sign is none in Greek
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Read", {"file_path": "a.py"})).data["encoding"] == "cp1252"
