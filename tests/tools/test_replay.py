"""Real and made-up commits replayed as Edit calls: the commit's bytes come out, to the last one."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from tests.tools.replaying import Hunk, by_characters, by_lines, lines, replay_repository, steps
from tests.tools.workbench import Workbench

from surehand.files.text import detect

REPOSITORY = str(Path(__file__).parent.parent.parent)
OTHERS = [place for place in os.environ.get("REPLAY_REPOSITORIES", "").split(os.pathsep) if place]
"""Any git repositories; `python tests/tools/replaying.py REPOSITORY...` does the same and says more."""


@pytest.mark.parametrize(
    ("way", "how"),
    [
        ("lines", None),
        ("characters", None),
        ("together", None),
        ("shown", "crlf"),
        ("lines", "mixed"),
        ("characters", "utf-16"),
        ("together", "cp1252"),
    ],
)
def test_commits_of_this_repository_come_out_exactly(way: str, how: str | None) -> None:
    try:
        tally = replay_repository(REPOSITORY, 3, [way], how)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no repository here")
    assert tally.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("repository", [REPOSITORY, *OTHERS])
def test_hundreds_of_commits_come_out_exactly_and_go_back(repository: str) -> None:
    tally = replay_repository(repository, most=300)
    assert tally.wrong == []
    assert tally.counts["files"]


WORDS = {
    "utf-8": ["alpha", "naïve", "日本", "🙂", "def f(x):", "    return x", "\tif y:", "", "}", "x = 'é'"],
    "utf-8-sig": ["alpha", "naïve", "", "}", "using System;"],
    "utf-16": ["alpha", "愀慡", "日本語", "", "愀", "a", "x = 1"],
    "utf-16-le": ["alpha beta", "日本語 text", "", "x = 1", "plain words"],
    "latin-1": ["déjà vu", "français", "alpha", "", "ünïcödé words", "}", "x = 1"],
    "gbk": ["中文编辑测试", "乗乗\\乗", "alpha", "", "这是一个文件", "丂a丂b", "return x"],
    "shift_jis": ["日本語のテスト", "表示ソ能", "alpha", "", "ファイルを編集する", "return x"],
    "cp1251": ["первая строка", "вторая строка текста", "alpha", "", "ещё одна"],
}


def some_file(chance: random.Random, codec: str, style: str) -> str:
    ends = {"lf": ["\n"], "crlf": ["\r\n"], "mixed": ["\n", "\r\n"], "stray": ["\n", "\n", "\r\n", "\r\r\n"]}[style]
    rows = [chance.choice(WORDS[codec]) + chance.choice(["", " ", f" {n}"]) + chance.choice(ends) for n in range(40)]
    text = "".join(rows)
    return text if chance.random() < 0.6 else text.rstrip("\r\n")


def changed(chance: random.Random, text: str, codec: str, style: str) -> str:
    """Change, drop and add some lines; sometimes only a line end."""
    rows = lines(text)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(rows))
        match chance.randrange(4):
            case 0:
                del rows[at]
            case 1:
                rows.insert(at, chance.choice(lines(some_file(chance, codec, style))))
            case 2:
                rows[at] = rows[at].rstrip("\r\n") + chance.choice(["\n", "\r\n"])
            case _:
                rows[at] = chance.choice(WORDS[codec]) + "!" + rows[at][len(rows[at].rstrip("\r\n")) :]
        if not rows:
            return text
    return "".join(rows)


@pytest.mark.parametrize("style", ["lf", "crlf", "mixed", "stray"])
@pytest.mark.parametrize("codec", WORDS)
def test_made_up_commits_of_every_encoding_come_out_exactly(tmp_path: Path, codec: str, style: str) -> None:
    play(tmp_path, codec, style, rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["lf", "crlf", "mixed", "stray"])
@pytest.mark.parametrize("codec", WORDS)
def test_thousands_of_made_up_commits_come_out_exactly(tmp_path: Path, codec: str, style: str) -> None:
    play(tmp_path, codec, style, rounds=150)


def play(folder: Path, codec: str, style: str, rounds: int) -> None:
    chance = random.Random(f"{codec} {style}")
    bench = Workbench(folder, state=False)
    for _ in range(rounds):
        before = some_file(chance, codec, style)
        after = changed(chance, before, codec, style)
        first, second = before.encode(codec), after.encode(codec)
        # What a reader of the file gets: the encoding found, without its mark.
        found = detect(first)
        assert found is not None
        texts = found.decode(first), found.decode(second)
        path = bench.put("file", first)
        for old, new in steps(*texts, list(hunks(*texts)), chance.choice([by_lines, by_characters])):
            bench.edit("file", old, new)
        assert path.read_bytes() == second


def hunks(before: str, after: str) -> Iterator[Hunk]:
    matcher = SequenceMatcher(None, lines(before), lines(after), autojunk=False)
    return (Hunk(*place) for kind, *place in matcher.get_opcodes() if kind != "equal")
