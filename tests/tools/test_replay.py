"""Real and made-up commits replayed as Edit calls: the commit's bytes come out, to the last one."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from workbench import Workbench

from holdfast.host.text import detect

REPOSITORY = Path(__file__).parent.parent.parent


def hunks(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (old, new) for each change, last first, with as many lines around as make the old text unique."""
    text = "".join(before)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    changed = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    for _, i1, i2, j1, j2 in reversed(changed):
        # A last line without its end says nothing of line ends: the one before it does.
        around = 0 if i1 < i2 and before[i2 - 1].endswith("\n") else 1
        while True:
            head, tail = before[max(0, i1 - around) : i1], before[i2 : i2 + around]
            old = "".join([*head, *before[i1:i2], *tail])
            place = sum(map(len, before[: max(0, i1 - around)]))
            if old and text.find(old) == place and text.find(old, place + 1) < 0:
                break
            around += 1
            if around > len(before):
                raise LookupError("nothing unique")
        yield old, "".join([*head, *after[j1:j2], *tail])
        text = text.replace(old, "".join([*head, *after[j1:j2], *tail]), 1)
        before = [*before[:i1], *after[j1:j2], *before[i2:]]


def lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def replay(bench: Workbench, before: bytes, after: bytes, codec: str) -> int:
    """Bring `before` to `after` by Edit calls; return how many there were."""
    path = bench.put("file", before)
    count = 0
    for old, new in hunks(lines(before.decode(codec)), lines(after.decode(codec))):
        bench.edit("file", old, new)
        count += 1
    assert path.read_bytes() == after
    return count


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(REPOSITORY), *words], capture_output=True, check=True).stdout


def commits(most: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (before, after) of files that commits of this repository changed."""
    listed = git("log", f"-{most}", "--diff-filter=M", "--raw", "--no-abbrev", "--no-renames", "--format=").decode()
    for line in listed.splitlines():
        words = line.split()
        if len(words) > 5 and words[0] == ":100644" and words[1] == "100644":
            yield git("cat-file", "blob", words[2]), git("cat-file", "blob", words[3])


def test_commits_of_this_repository_come_out_exactly(tmp_path: Path) -> None:
    try:
        pairs = list(commits(40))[:40]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no repository here")
    bench = Workbench(tmp_path, state=False)
    done = 0
    for before, after in pairs:
        if before and after and detect(before) and before.isascii() and after.isascii():
            done += replay(bench, before, after, "utf-8")
    if pairs:
        assert done


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
        shown = [lines(found.decode(data)) for data in (first, second)]
        path = bench.put("file", first)
        for old, new in hunks(*shown):
            if old != new:
                bench.edit("file", old, new)
        assert path.read_bytes() == second
