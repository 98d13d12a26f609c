"""The sieve may ask about too many files, never about too few; and a walk leaves out the same with it as without."""

from __future__ import annotations

import random
from pathlib import Path

from surehand import Surehand
from surehand.core.secrets import SECRET_PATTERNS, may_be_secret
from surehand.search.gitignore import WORTHWHILE, Rules, Sieve
from surehand.search.ignore_files import Folder

STARS_AND_CLASSES = ["*", "?", "**", "[ab]", "[!a]", "[a-c]", "[[:upper:]]", "[A-C]", "[", "]"]
PIECES = [*STARS_AND_CLASSES, "a", "B", "b", "x", ".", ".log", "é", "\\*", "\\A"]
PATHS = ["{}", "/{}", "d/{}", "**/{}", "d/**/{}", "{}/x", "d/{}/**", "!{}", "{}/", "a**/{}", "d{}/b"]
LETTERS = ["a", "B", "b", "A", ".", "x", "log", ".log", "*", "é", "c", "C", "]", "["]


def _joined(chance: random.Random, parts: list[str]) -> str:
    return "".join(chance.choices(parts, k=chance.randint(1, 4)))


def _names(chance: random.Random) -> list[bytes]:
    made = {_joined(chance, LETTERS).encode() for _ in range(WORTHWHILE)}
    return [*made, *(b"plain%d.py" % number for number in range(WORTHWHILE))]


def test_every_file_that_a_rule_leaves_out_is_asked_about() -> None:
    chance = random.Random(7)
    names = _names(chance)
    for _ in range(150):
        lines = [chance.choice(PATHS).format(_joined(chance, PIECES)) for _ in range(chance.randint(1, 5))]
        rules = Rules("\n".join(lines).encode(), ".gitignore")
        sieve = Sieve(((rules, 0),))
        for prefix in (b"", b"d/", b"d/a/", b"ab/"):
            folder = Folder(b"/tree/" + prefix.rstrip(b"/"), prefix, ((rules, 0),), False)
            asked = sieve.find(names, folder)
            left_out = {name for name in names if folder.ignores(name, False)}
            assert left_out <= set(asked), (lines, prefix, left_out - set(asked))


def test_every_name_of_a_secret_is_asked_about_and_few_others() -> None:
    written = [each.lstrip("!").rstrip("/").rpartition("/")[2].replace("*", "x") for each in SECRET_PATTERNS]
    variants = [form for each in written for form in (each, each.upper(), f"{each}~", f"{each}.bak")]
    names = [each.encode() for each in variants] + [b"module_%dx.py" % number for number in range(WORTHWHILE)]
    asked = set(Sieve(()).find(names, Folder(b"/tree", b"", (), False)))
    assert {name for name in names if may_be_secret(name)} <= asked
    assert not any(name.startswith(b"module_") for name in asked)


async def test_a_glob_over_many_names_leaves_out_what_rules_and_secrets_say(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n/only/here*\n*~\nte?t.[oa]\n*middle*\n!kept.log\n")
    (tmp_path / "only").mkdir()
    for number in range(WORTHWHILE + 100):
        (tmp_path / f"{number}x.py").touch()
    out = ["a.log", "B.LOG~", "test.o", "one_middle_two", "server.pem", "only/here.txt", ".env"]
    kept = ["kept.log", "A.LOGS", "test.b", "there.txt", "only/there.txt", "server.pom", "here.txt"]
    for name in out + kept:
        (tmp_path / name).touch()
    async with Surehand(tmp_path) as app:
        for _ in range(2):  # before there are expressions, and with them
            result = await app.call("Glob", {"pattern": "**/*[!y]"})
            found = {file["path"] for file in result.data["files"]}
            assert found == {*kept, ".gitignore"}
            assert result.data["total"] == len(kept) + 1
