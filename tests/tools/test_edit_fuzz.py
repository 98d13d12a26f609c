"""Edits at random, line breaks at the edges of old_string in every codec, against a plain model of the text."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from tests.tools.workbench import Workbench, failure

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure

WORDS: dict[str, list[str]] = {
    "utf-8": ["alpha", "naïve", "日本", "", "", "}", "x = 1"],
    "utf-8-sig": ["alpha", "naïve", "", "}", "using System;"],
    "utf-16": ["alpha", "愀慡", "日本語", "", "愀", "a", "x = 1"],
    "utf-16-le": ["alpha beta", "日本語 text", "", "x = 1"],
    "utf-16-be": ["alpha beta", "日本語 text", "", "x = 1"],
    "utf-32": ["alpha beta", "日本語 text", "", "x = 1"],
    "latin-1": ["déjà vu", "français", "", "ünïcödé words", "x = 1"],
    "gbk": ["中文编辑测试", "乗乗\\乗", "", "这是一个文件", "return x"],
    "big5": ["這是一個測試檔案", "檔案編輯列印結果", "", "return x"],
    "shift_jis": ["日本語のテスト", "表示ソ能", "", "ファイルを編集する", "return x"],
    "euc_jp": ["日本語のテスト", "表示と能力", "", "ファイルを編集する"],
    "cp1251": ["первая строка", "вторая строка текста", "", "ещё одна"],
}
ENDS = {"lf": ["\n"], "crlf": ["\r\n"], "mixed": ["\n", "\r\n"]}
_END = re.compile("\r\n|\n")


def some_text(chance: random.Random, codec: str, style: str) -> str:
    lines = [chance.choice(WORDS[codec]) + chance.choice(["", f" {at}"]) for at in range(chance.randrange(14, 30))]
    text = "".join(line + chance.choice(ENDS[style]) for line in lines)
    return text if chance.random() < 0.7 else text.rstrip("\r\n")


def some_wish(chance: random.Random, text: str, codec: str) -> tuple[str, str]:
    """Return a part of a text as a reader sees it, often with line breaks at its edges, and something for it."""
    read = text.replace("\r\n", "\n")
    breaks = [at for at, character in enumerate(read) if character == "\n"] or [0]
    start = chance.choice([chance.choice(breaks), chance.randrange(len(read))])
    ends = [at + 1 for at in breaks if at >= start] or [len(read)]
    end = chance.choice([chance.choice(ends[:3]), min(len(read), start + chance.randrange(1, 12))])
    old = read[start:end]
    inside = chance.choice(["", old.strip("\n"), chance.choice(WORDS[codec]), f"{old}\n{chance.choice(WORDS[codec])}"])
    return old, chance.choice(["", "\n", "\n\n"]) + inside + chance.choice(["", "\n"])


def model(text: str, old: str, new: str, every: bool) -> str | None:
    """Return a text edited as the documents say, by its logical lines; None where it must be refused.

    Only what the line ends of new lines are is left open: they come back as LF.
    """
    read = text.replace("\r\n", "\n")
    count = read.count(old)
    if old == new or not count or (count > 1 and not every):
        return None
    return read.replace(old, new)


def play(bench: Workbench, codec: str, style: str, operations: int) -> int:
    chance, done = random.Random(f"{codec} {style}"), 0
    text = ""
    for _ in range(operations):
        if not 150 <= len(text) <= 3000 or text.count("\n") < 3:
            text = some_text(chance, codec, style)
            path = bench.put("file", text.encode(codec))
        path = bench.root / "file"
        before = path.read_bytes()
        old, new = some_wish(chance, text, codec)
        every = chance.random() < 0.2
        wanted = model(text, old, new, every)
        tool = chance.choice(["Edit", "MultiEdit"])
        wish = {"old_string": old, "new_string": new, "replace_all": every}
        args = wish if tool == "Edit" else {"edits": [wish]}
        result: ToolResult | ToolFailure
        if wanted is None:
            result = failure(lambda tool=tool, args=args: bench.call(tool, file_path="file", **args))
            assert path.read_bytes() == before
            continue
        try:
            result = bench.call(tool, file_path="file", **args)
        except ToolFailure as refused:  # such as a text too short to tell its encoding by
            result = refused
        if isinstance(result, ToolFailure):
            assert result.details.get("reason") == "encoding", (text, old, new, result)
            assert path.read_bytes() == before
            continue
        after = path.read_bytes()
        got = after.decode(codec)
        assert got.replace("\r\n", "\n") == wanted, (text, old, new, got)
        assert "\r" not in got.replace("\r\n", ""), (text, old, new, got)
        assert set(_END.findall(got)) <= set(_END.findall(text)), (text, old, new, got)
        assert result.undo is not None
        if chance.random() < 0.1:
            bench.call("Undo")
            assert path.read_bytes() == before
        else:
            text = got
        done += 1
    return done


@pytest.mark.parametrize("style", ENDS)
@pytest.mark.parametrize("codec", WORDS)
def test_edits_at_random_keep_every_line_end_whole(tmp_path: Path, codec: str, style: str) -> None:
    assert play(Workbench(tmp_path, state=False), codec, style, 14) > 0  # 504 in all


@pytest.mark.slow
@pytest.mark.parametrize("style", ENDS)
@pytest.mark.parametrize("codec", WORDS)
def test_thousands_of_edits_at_random_keep_every_line_end_whole(tmp_path: Path, codec: str, style: str) -> None:
    assert play(Workbench(tmp_path, state=False), codec, style, 560) > 100  # 20,160 in all
