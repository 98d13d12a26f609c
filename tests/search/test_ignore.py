"""Ignore rules: every decision the same as git's, on its own cases, on templates, on random trees."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.git.repositories import git, put, random_pattern, random_tree, repository

from surehand.search.gitignore import Rules, parse, rg_agrees
from surehand.search.ignore_files import Folder, explain
from surehand.search.walk import Walk


def asked_git(top: Path, paths: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return git's source, line and pattern for each path."""
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    fields = git(top, "check-ignore", "-v", "-n", "--no-index", "--stdin", "-z", stdin=stdin).split(b"\0")
    rows = (map(os.fsdecode, fields[at : at + 4]) for at in range(0, len(fields) - 3, 4))
    return {path: (source, line, pattern) for source, line, pattern, path in rows}


def ours(top: Path, path: str) -> tuple[str, str, str]:
    rule = explain(os.fsencode(top / path)).rule
    if rule is None:
        return "", "", ""
    return rule.source.removeprefix(f"{top}/"), str(rule.line), os.fsdecode(rule.text)


def assert_agrees(top: Path, paths: list[str]) -> None:
    wanted = asked_git(top, paths)
    assert {path: ours(top, path) for path in paths} == wanted


# One line each: the rules, and paths about which git is asked too.
CASES: list[tuple[str, str]] = [
    ("*.log\n!keep.log\n", "a.log keep.log d/keep.log d/a.log"),
    ("build/\n", "build build/x d/build d/build/y"),
    ("/build\n", "build d/build build/x"),
    ("doc/*.txt\n", "doc/a.txt doc/s/a.txt x/doc/a.txt"),
    ("doc/**/*.txt\n", "doc/a.txt doc/s/a.txt doc/s/t/a.txt"),
    ("**/foo\n", "foo a/foo a/b/foo foo/x"),
    ("foo/**\n", "foo foo/x foo/y/z a/foo/x"),
    ("a/**/b\n", "a/b a/x/b a/x/y/b a/xb"),
    ("a**/b\n", "ab a/b ax/b a/x/b"),
    ("a**b\n", "ab axb a/b"),
    ("d/a**/foo\n/**/d/foo\n", "d/afoo d/foo d/a/foo d/ax/foo x/d/foo foo"),
    ("**foo\n", "foo xfoo a/xfoo"),
    ("foo**\n", "foo foox foo/x"),
    ("d/\n!d/keep\n", "d d/keep d/x"),
    ("d/*\n!d/keep\n", "d d/keep d/x d/keep/x"),
    ("*\n!*/\n!*.c\n", "a.c d/a.c d/a.h x"),
    ("foo \nbar\\ \n", "foo bar"),
    ("foo\t\n", "foo"),
    ("\\#x\n\\!y\n#z\n", "#x !y #z z"),
    ("[a-c].txt\n[!a-c].md\n[]x]\n[[:digit:]]\n", "a.txt d.txt a.md d.md ] x 5"),
    ("[\n[a\na\\\n", "[ [a a a\\"),
    ("*.{a,b}\n", "x.a x.{a,b}"),
    ("\ufefffoo\n", "foo"),
    ("foo\r\nbar\r\n", "foo bar"),
    ("/\n//\n!\n \n", "a /a"),
    ("é?\n??\n", "é éa aé ab"),
    ("a?b\na/?/b\n", "axb a/b a/x/b a//b"),
    ("**//\na//\n/**//\n", "a foo foo/x d d/x d/foo"),
    (".*\n!.gitignore\n", ".x .gitignore a"),
    ("/*\n!/src\n/src/*\n!/src/app\n", "x src/x src/app src/app/y"),
]


@pytest.mark.parametrize(("rules", "paths"), CASES)
def test_one_file_of_rules_decides_as_git_does(tmp_path: Path, rules: str, paths: str) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", rules)
    for name in ("build", "foo", "d"):
        (top / name).mkdir()
    assert_agrees(top, [path for path in paths.split() if "//" not in path and not path.startswith("/")])


def test_deeper_files_come_first_then_the_private_one_then_the_users(tmp_path: Path) -> None:
    top, home = repository(tmp_path / "r"), Path(os.environ["HOME"])
    put(home, ".config/git/ignore", "*.user\n*.log\n!*.deep\n")
    put(top, ".git/info/exclude", "*.private\n!*.user\n")
    put(top, ".gitignore", "*.log\n!*.private\n")
    put(top, "a/.gitignore", "!*.log\nx\n")
    put(top, "a/b/.gitignore", "*.log\n!x\n/y\n")
    names = ["f.log", "f.user", "f.private", "x", "y", "f.deep"]
    assert_agrees(top, [f"{folder}{name}" for folder in ("", "a/", "a/b/", "a/b/c/") for name in names])


def test_the_users_file_is_the_one_the_configuration_names(tmp_path: Path) -> None:
    top, home = repository(tmp_path / "r"), Path(os.environ["HOME"])
    put(home, "my ignores", "*.mine\n")
    put(home, "included", '[core]\n\texcludesFile = "~/my ignores" ; a comment\n')
    put(home, ".gitconfig", "[user]\n\tname = x\n[include]\n\tpath = included\n")
    assert_agrees(top, ["a.mine", "a.yours"])
    theirs = put(tmp_path, "theirs", "*.yours\n")
    git(top, "config", "core.excludesFile", str(theirs))
    assert_agrees(top, ["a.mine", "a.yours"])


CONFIGURATIONS = {
    "the place of the repository": '[includeIf "gitdir:{above}/"]\n path = included\n',
    "another place": '[includeIf "gitdir:/elsewhere/"]\n path = included\n',
    "a place by its end": '[includeIf "gitdir:r/"]\n path = included\n',
    "a place by wildcards": '[includeIf "gitdir:**/r/.git"]\n path = included\n',
    "a place in any case": '[includeIf "gitdir/i:R/"]\n path = included\n',
    "the branch": '[includeIf "onbranch:wo*"]\n path = included\n',
    "another branch": '[includeIf "onbranch:main"]\n path = included\n',
    "the address of a remote": '[includeIf "hasconfig:remote.*.url:https://*.example.com/**"]\n path = included\n',
    "another address": '[includeIf "hasconfig:remote.*.url:https://*.example.org/**"]\n path = included\n',
    "an address with too few folders": '[includeIf "hasconfig:remote.*.url:https://*/*"]\n path = included\n',
    "the address of the user's own remote": (
        '[includeIf "hasconfig:remote.*.url:mine"]\n path = included\n[remote "own"]\n url = mine\n'
    ),
    "a comment that ends in a backslash": "# comment \\\n[core]\n excludesFile = ~/my ignores\n",
    "a comment after the value": "[core]\n excludesFile = ~/my ignores ; comment \\\n bare = false\n",
    "a value over two lines": "[core]\n excludesFile = ~/my\\\n ignores\n",
    "a value in parts": '[core]\n excludesFile = ~"/my ignores"\n',
    "on the line of its section": "[CORE] EXCLUDESFILE = ~/my ignores\n",
    "in a section of the same name": '[core "x"]\n excludesFile = ~/my ignores\n',
    "the last one": "[core]\n excludesFile = ~/my ignores\n excludesFile =\n",
    "a number for yes": "[core]\n excludesFile = ~/my ignores\n ignoreCase = 2\n",
    "a key alone for yes": "[core]\n ignoreCase\n excludesFile = ~/my ignores\n",
    "line ends of Windows": "[core]\r\n excludesFile = ~/my ignores\r\n",
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_the_users_configuration_is_read_as_git_reads_it(configuration: str) -> None:
    home = Path(os.environ["HOME"])
    top = repository(home.parent / "r")
    git(top, "symbolic-ref", "HEAD", "refs/heads/work")
    git(top, "config", "remote.origin.url", "https://code.example.com/a/b.git")
    put(home, "my ignores", "*.mine\n")
    put(home, "included", "[core]\n\texcludesFile = ~/my ignores\n")
    put(home, ".gitconfig", configuration.replace("{above}", str(home.parent)))
    assert_agrees(top, ["a.mine", "A.MINE", "a.yours"])


def test_what_the_environment_sets_counts_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = repository(tmp_path / "r")
    put(tmp_path, "theirs", "*.yours\n")
    git(top, "config", "core.excludesFile", str(put(tmp_path, "mine", "*.mine\n")))
    settings = {"CORE.excludesFILE": str(tmp_path / "theirs"), "core.Ignorecase": "yes"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for at, (key, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{at}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{at}", value)
    assert explain(os.fsencode(top / "a.YOURS")).ignored
    assert_agrees(top, ["a.mine", "a.yours", "a.YOURS"])
    monkeypatch.setenv("GIT_CONFIG_COUNT", "many")
    assert explain(os.fsencode(top / "a.mine")).ignored


def test_a_worktree_has_settings_of_its_own_where_the_repository_says_so(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    theirs = put(tmp_path, "theirs", "*.yours\n")
    git(top, "config", "extensions.worktreeConfig", "true")
    git(top, "config", "--worktree", "core.excludesFile", str(theirs))
    assert_agrees(top, ["a.mine", "a.yours"])


def test_a_path_asked_about_with_a_slash_at_its_end_is_compared_with_it(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "data/**\nbuild/\n/a/**/\n")
    for path in ("data/", "build/", "a/", "a/b/", "other/"):
        _, line, pattern = asked_git(top, [path])[path]
        rule = explain(os.fsencode(top / path.rstrip("/")), is_dir=True).rule
        assert (line, pattern) == (("", "") if rule is None else (str(rule.line), os.fsdecode(rule.text)))


def test_a_folder_that_a_rule_takes_back_is_told_from_one_that_no_rule_fits(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "/*\n!/keep/\n")
    kept = explain(os.fsencode(top / "keep"), is_dir=True)
    assert (kept.ignored, kept.rule and kept.rule.line) == (False, 2)


def test_a_line_with_nothing_to_compare_ignores_no_folder(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "*.log\r\n\r\n  \n/\n!\n")
    put(top, "src/a.c")
    assert b"src/a.c" in git(top, "ls-files", "-o", "--exclude-standard")
    assert not explain(os.fsencode(top / "src"), is_dir=True).ignored


def test_the_top_of_a_repository_is_not_ignored_by_its_own_rules(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "*/\n/*\n**\n")
    for is_dir in (None, True):
        assert not explain(os.fsencode(top), is_dir=is_dir, stop=os.fsencode(top)).ignored
    inner = repository(top / "inner")
    put(inner, ".gitignore", "*\n")
    put(top, ".gitignore", "*.log\n")
    assert not explain(os.fsencode(inner), is_dir=True).ignored


def test_a_folder_called_git_that_is_no_repository_bounds_no_rules(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, ".gitignore", "*.log\n")
    head = "ref: refs/heads/main\n"
    for name, content in {
        "part/.git/HEAD": head,
        "odd/.git/HEAD": "nothing",
        "odd/.git/objects/x": "",
        "odd/.git/refs/x": "",
        "lost/.git": "gitdir: /nowhere/at/all\n",
        "text/.git": "no pointer\n",
        "real/.git/HEAD": head,
        "real/.git/objects/x": "",
        "real/.git/refs/x": "",
        "apart/.git": "gitdir: ../elsewhere\n",
        "elsewhere/objects/x.log": "",
        "elsewhere/refs/x.log": "",
    }.items():
        put(top, name, content)
    (top / "elsewhere" / "HEAD").symlink_to("refs/heads/main")
    for folder in ("part", "odd", "lost", "text", "real", "apart"):
        put(top, f"{folder}/a.log")
        put(top, f"{folder}/b")
    listed = set(filter(None, git(top, "ls-files", "-z", "-o", "--exclude-standard").split(b"\0")))
    inside = {b"real/": {b"real/a.log", b"real/b"}, b"apart/": {b"apart/a.log", b"apart/b"}}
    assert inside.keys() <= listed
    listed = (listed - inside.keys()).union(*inside.values())
    assert {path for path, _ in Walk(os.fsencode(top)).files()} == listed


def test_case_does_not_matter_where_the_configuration_says_so(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    git(top, "config", "core.ignorecase", "true")
    put(top, ".gitignore", "*.LOG\nFoo/Bar\n[A-C]x\n[D]y\n[[:upper:]]z\n\\Wide\n\\near*\n")
    assert_agrees(top, ["a.log", "A.Log", "foo/bar", "bx", "BX", "dy", "Dy", "qz", "wide", "Wide", "near", "NEARER"])


def test_a_worktree_uses_the_rules_of_its_repository(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, "f", "x")
    git(top, "add", "f")
    git(top, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x")
    put(top, ".git/info/exclude", "*.private\n")
    git(top, "worktree", "add", "-q", str(tmp_path / "w"))
    assert explain(os.fsencode(tmp_path / "w" / "a.private")).ignored
    assert not explain(os.fsencode(tmp_path / "w" / "b")).ignored


def test_a_gitignore_that_is_a_link_a_folder_or_a_fifo_counts_for_nothing(tmp_path: Path) -> None:
    top = repository(tmp_path / "r")
    put(top, "elsewhere", "*\n")
    (top / "link").mkdir()
    (top / "link" / ".gitignore").symlink_to(top / "elsewhere")
    (top / "folder" / ".gitignore").mkdir(parents=True)
    (top / "fifo").mkdir()
    os.mkfifo(top / "fifo" / ".gitignore")
    for name in ("link/x", "folder/x", "fifo/x"):
        assert not explain(os.fsencode(top / name)).ignored


def test_a_repository_inside_another_follows_its_own_rules(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer")
    put(outer, ".gitignore", "*.log\nhidden/\n")
    inner = repository(outer / "inner")
    put(inner, ".gitignore", "*.txt\n")
    for name in ("a.log", "inner/a.log", "inner/a.txt", "hidden/x"):
        put(outer, name)
    found = [path for path, _ in Walk(os.fsencode(outer)).files()]
    assert found == [b".gitignore", b"inner/.gitignore", b"inner/a.log"]


def test_without_a_repository_rules_count_from_the_workspace_down(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "*.above\n")
    top = tmp_path / "ws"
    put(top, ".gitignore", "*.log\n")
    put(top, "d/x.log")
    put(top, "d/x.above")
    found = [path for path, _ in Walk(os.fsencode(top / "d"), stop=os.fsencode(top)).files()]
    assert found == [b"x.above"]


def test_a_git_folder_that_is_not_finished_shows_where_rules_begin_when_there_is_no_repository(tmp_path: Path) -> None:
    put(tmp_path, "top/.git/info/exclude", "*.private\n")
    put(tmp_path, "top/.gitignore", "*.log\n")
    put(tmp_path, "top/work/a.log", "")
    stop = os.fsencode(tmp_path / "top/work")
    for name, ignored in (("a.log", True), ("a.private", True), ("a.txt", False)):
        assert explain(stop + b"/" + name.encode(), stop=stop).ignored is ignored


def test_a_rule_says_where_it_stands() -> None:
    rules = parse(b"# c\n\n*.log\n!/keep/\n", ".gitignore")
    assert [(rule.line, rule.text, rule.negated, rule.only_folders) for rule in rules] == [
        (3, b"*.log", False, False),
        (4, b"!/keep/", True, True),
    ]


def test_many_stars_take_no_time() -> None:
    hard = b"*a" * 60 + b"b\n" + b"/".join([b"**/a*a"] * 20) + b"/x\n"
    rules = Rules(hard, "x")
    name = b"a" * 250
    path = b"/".join([b"aaaaaaaa"] * 200)
    began = time.process_time()
    assert rules.decide(name, path, False) is None
    assert time.process_time() - began < 60  # what hangs, hangs without end


@pytest.mark.parametrize(
    "line",
    [
        b"*.{a,b}",
        b"a\\b",
        b"[a-[A-Z]",
        b"[a\\]]",
        b"[a-c-e]",
        b"[z-a]",
        b"!",
        b"/",
        b"[[:alpha:]]",
        b"[a",
        b"a**",
        b"\xe9",
        b"foo\t",
        b"!a\0b",
        b"x\\  ",
        b"x[/]",
        b"x[ -~]y",
        b"x[!a]y",
        b"*[^a].c",
    ],
)
def test_what_rg_reads_otherwise_is_known(line: bytes) -> None:
    assert not rg_agrees(line)


@pytest.mark.parametrize(
    "line",
    [
        b"*.log",
        b"/build/",
        b"!keep",
        b"a/**/b",
        b"**/x",
        b"x/**",
        b"[a-c]?",
        b"# {}",
        b"\\#*#",
        b"[!a]*",
        b"a/[^b]c",
        b"*.[!o]",
        b"*.sw[a-p]",
    ],
)
def test_what_rg_reads_alike_is_trusted(line: bytes) -> None:
    assert rg_agrees(line)


def random_repository(folder: Path, chance: random.Random) -> tuple[Path, list[str]]:
    top = repository(folder)
    if chance.random() < 0.2:
        git(top, "config", "core.ignorecase", "true")
    folders = random_tree(top, chance, 12)
    for each in folders:
        if not each or chance.random() < 0.4:
            end = chance.choice(["\n", "\n", "\r\n"])
            lines = end.join(random_pattern(chance) for _ in range(chance.randint(1, 5)))
            put(
                top,
                os.path.join(each, ".gitignore"),
                chance.choice(["", "", "\ufeff"]) + lines + chance.choice(["", end]),
            )
    there = [str(path.relative_to(top)) for path in top.rglob("*") if ".git" not in path.relative_to(top).parts]
    other = [os.path.join(chance.choice(folders), random_tree_name(chance)) for _ in range(8)]
    return top, list(dict.fromkeys(there + other))


def random_tree_name(chance: random.Random) -> str:
    return chance.choice(["a", "foo", "a.log", "b d", "é", "x{a,b}", "new/a", "A"])


def compare_random_repositories(folder: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        top, paths = random_repository(folder / str(number), chance)
        paths = [path for path in paths if not (top / path).parent.is_file()]
        assert_agrees(top, paths)
        listed = git(top, "ls-files", "-z", "-o", "--exclude-standard").split(b"\0")
        assert sorted(path for path, _ in Walk(os.fsencode(top)).files()) == sorted(filter(None, listed))


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_and_rules_are_decided_as_git_does(tmp_path: Path, seed: int) -> None:
    compare_random_repositories(tmp_path, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_random_trees_and_rules_are_decided_as_git_does(tmp_path: Path, seed: int) -> None:
    compare_random_repositories(tmp_path, seed, 150)


def test_a_folder_without_rules_ignores_nothing() -> None:
    assert not Folder(b"/", b"", (), False).ignores(b"x", True)
