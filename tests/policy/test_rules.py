"""The rule syntax, what rules match, and what is said of a rule that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.policy.policy_requests import judge, policy, request, verdict

from surehand.core.effects import Connect, DeletePath, ReadPath, RemoteCall, RunCommand, StartAgent, WritePath
from surehand.core.errors import RuleError
from surehand.policy.book import DEFAULT_RULES
from surehand.policy.rule_files import read_rules
from surehand.policy.rules import Origin, parse_line, parse_rule


def run(*words: str, read_only: bool = False) -> RunCommand:
    return RunCommand(words, read_only)


@pytest.mark.parametrize(
    ("rule", "words", "matches"),
    [
        ("Bash(git status:*)", ("git", "status", "-s"), True),
        ("Bash(git status:*)", ("git", "stash"), False),
        ("Bash(npm run *)", ("npm", "run", "build"), True),
        ("Bash(npm run *)", ("npm", "run"), True),
        ("Bash(npm run *)", ("npm", "runx"), False),
        ("Bash(npm run:*)", ("npm", "run", "test", "--", "-x"), True),
        ("Bash(make)", ("make",), True),
        ("Bash(make)", ("make", "install"), False),
        ("Bash(npm run test*)", ("npm", "run", "test:unit", "-v"), True),
        ("Bash(*)", ("anything", "at", "all"), True),
        ("Bash", ("anything",), True),
        ("Bash(ls:*)", ("/bin/ls", "-l"), True),
        ("Bash(ls:*)", ("./ls", "-l"), False),
        ("Bash(ls:*)", ("/tmp/ls",), False),
        ("Bash(echo 'a b':*)", ("echo", "a b", "c"), True),
        ("Bash(echo 'a b':*)", ("echo", "a", "b"), False),
    ],
)
def test_an_allow_rule_covers_a_command_word_by_word(
    tmp_path: Path, rule: str, words: tuple[str, ...], matches: bool
) -> None:
    decided = verdict([f"allow {rule}"], tmp_path, run(*words), tool="Bash")
    assert decided == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("Bash(rm:*)", ("rm", "-rf", "src")),
        ("Bash(rm:*)", ("/usr/bin/rm", "x")),
        ("Bash(rm:*)", ("./rm", "x")),
        ("Bash(rm)", ("rm", "x")),
        ("Bash(rm -rf:*)", ("rm", "-fr", "x")),
        ("Bash(rm -rf:*)", ("rm", "-r", "-f", "x")),
        ("Bash(rm -rf:*)", ("rm", "--recursive", "--force", "x")),
        ("Bash(rm -rf:*)", ("rm", "x", "-vrf")),
        ("Bash(git push:*)", ("git", "push", "origin")),
        ("Bash(git push:*)", ("git", "-C", "sub", "push")),
        ("Bash(git push:*)", ("git", "--no-pager", "-c", "a=b", "push")),
        ("Bash(git push --force:*)", ("git", "push", "origin", "main", "--force")),
        ("Bash(git push --force:*)", ("git", "push", "--forc", "origin")),
        ("Bash(docker run:*)", ("docker", "--context", "x", "run", "img")),
        ("Bash(/usr/bin/rm:*)", ("rm", "x")),
        ("Bash(*)", ("ls",)),
        ("bash(rm:*)", ("rm", "x")),
        ("Bash(rm:*)", ("Rm", "x")),
        ("Bash(rm:*)", ("/bin/RM.exe", "x")),
    ],
)
def test_a_deny_rule_sees_through_what_does_not_change_the_meaning(
    tmp_path: Path, rule: str, words: tuple[str, ...]
) -> None:
    assert verdict([f"deny {rule}", "allow Bash"], tmp_path, run(*words), tool="Bash") == "deny"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("Bash(rm:*)", ("rmdir", "x")),
        ("Bash(rm:*)", ("rm.sh", "x")),
        ("Bash(git push:*)", ("git", "log", "push")),
        ("Bash(git push:*)", ("git", "commit", "-m", "push")),
        ("Bash(rm -rf:*)", ("rm", "-r", "x")),
        ("Bash(git push --force:*)", ("git", "push", "origin")),
    ],
)
def test_a_deny_rule_leaves_other_commands_alone(tmp_path: Path, rule: str, words: tuple[str, ...]) -> None:
    assert verdict([f"deny {rule}", "allow Bash"], tmp_path, run(*words), tool="Bash") == "allow"


def test_an_unknown_wrapper_around_a_denied_command_asks_under_every_allow_rule(tmp_path: Path) -> None:
    rules = ["deny Bash(rm:*)", "allow Bash"]
    assert verdict(rules, tmp_path, run("mywrapper", "--fast", "rm", "-rf", "x"), tool="Bash") == "ask"
    assert verdict(rules, tmp_path, run("mywrapper", "/bin/rm", "x"), tool="Bash", mode="bypass") == "ask"
    assert verdict(rules, tmp_path, run("grep", "rm", "x", read_only=True), tool="Bash") == "allow"
    assert verdict(["allow Bash"], tmp_path, run("mywrapper", "rm"), tool="Bash") == "allow"
    code = run("python3", "-c", "import os; os.system('rm -rf src')")
    assert verdict(rules, tmp_path, code, tool="Bash") == "ask"
    assert verdict(rules, tmp_path, run("python3", "-c", "print('form')"), tool="Bash") == "allow"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        (".env.local", "a/b/.env.local", True),
        ("*.log", "deep/down/x.log", True),
        ("*.log", "x.log.txt", False),
        ("secrets/", "secrets/a/b", True),
        ("secrets/**", "secrets/a", True),
        ("secrets/**", "secrets", True),
        ("./docs/**", "docs/a.md", True),
        ("./docs/**", "sub/docs/a.md", False),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "a/z", True),
        ("**/x.py", "x.py", True),
        ("{a,b}.txt", "b.txt", True),
        ("[ab].txt", "c.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("docs", "docs/inner/file", True),
        ("docs", "docs2/file", False),
    ],
)
def test_a_path_rule_reads_as_in_gitignore(tmp_path: Path, pattern: str, path: str, matches: bool) -> None:
    decided = verdict([f"deny Read({pattern})"], tmp_path, ReadPath(str(tmp_path / path)), read_only=True)
    assert decided == ("deny" if matches else "allow")


def test_a_doubtful_path_rule_forbids_widely_and_allows_narrowly(tmp_path: Path) -> None:
    nested = str(tmp_path / "vendor" / "src" / "a.py")
    assert verdict(["allow Edit(src/**)"], tmp_path, WritePath(nested)) == "ask"
    assert verdict(["allow Edit(src/**)"], tmp_path, WritePath(str(tmp_path / "src/a.py"))) == "allow"
    assert verdict(["deny Edit(src/**)", "allow Edit"], tmp_path, WritePath(nested)) == "deny"
    assert verdict(["deny Edit(SRC/**)", "allow Edit"], tmp_path, WritePath(nested)) == "deny"
    assert verdict(["allow Edit(SRC/**)"], tmp_path, WritePath(str(tmp_path / "src/a.py"))) == "ask"


@pytest.mark.parametrize("name", ["Edit", "Write", "MultiEdit", "NotebookEdit", "FileEdit"])
def test_every_name_of_a_writing_tool_binds_every_write_and_delete(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "a")
    for effect in (WritePath(path), DeletePath(path)):
        assert verdict([f"deny {name}(a)", "allow Bash"], tmp_path, effect, tool="Bash") == "deny"
        assert verdict([f"allow {name}(a)"], tmp_path, effect, tool="Anything") == "allow"


def test_a_read_rule_binds_every_read_whichever_tool_has_it(tmp_path: Path) -> None:
    implied = RunCommand(("cat", "notes"), True, implies=(ReadPath(str(tmp_path / "notes")),))
    assert verdict(["deny Read(notes)"], tmp_path, implied, tool="Bash") == "deny"
    assert verdict(["deny Read"], tmp_path, ReadPath(str(tmp_path / "x")), tool="Grep", read_only=True) == "deny"


def test_a_home_and_an_absolute_rule_are_anchored(tmp_path: Path) -> None:
    kept = str(Path(os.environ["HOME"]) / "notes" / "a")
    assert verdict(["allow Read(~/notes/**)"], tmp_path, ReadPath(kept), read_only=True) == "allow"
    assert verdict(["allow Read(/etc/hosts)"], tmp_path, ReadPath("/etc/hosts"), read_only=True) == "allow"
    assert verdict(["allow Read(/etc/hosts)"], tmp_path, ReadPath("/etc/passwd"), read_only=True) == "ask"


@pytest.mark.spec("PERM-1")
@pytest.mark.parametrize(
    ("rule", "host", "matches"),
    [
        ("domain:example.com", "example.com", True),
        ("domain:example.com", "a.example.com", False),
        ("domain:example.com", "example.com.evil.test", False),
        ("domain:example.com", "notexample.com", False),
        ("domain:*.example.com", "a.b.example.com", True),
        ("domain:*.example.com", "example.com", True),
        ("domain:*.example.com", "badexample.com", False),
        ("domain:Example.COM.", "example.com", True),
        ("domain:example.com", "EXAMPLE.com.", True),
        ("domain:*", "anything.org", True),
    ],
)
def test_a_domain_rule_matches_on_label_boundaries(tmp_path: Path, rule: str, host: str, matches: bool) -> None:
    decided = verdict([f"allow WebFetch({rule})"], tmp_path, Connect(host), tool="WebFetch", read_only=True)
    assert decided == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("mcp__github", True),
        ("mcp__github__*", True),
        ("mcp__github__list_issues", True),
        ("mcp__github__list*", True),
        ("mcp__git", False),
        ("mcp__github__list", False),
        ("mcp__git__*", False),
    ],
)
def test_a_server_rule_matches_whole_names(tmp_path: Path, rule: str, allowed: bool) -> None:
    facts = {"tool": "mcp__github__list_issues", "module": "github"}
    decided = verdict([f"allow {rule}"], tmp_path, RemoteCall("github", "list_issues"), **facts)
    assert decided == ("allow" if allowed else "ask")


def test_a_module_rule_covers_custom_tools_by_their_full_name(tmp_path: Path) -> None:
    facts = {"tool": "add", "module": "calc"}
    for rule in ("mcp__calc", "mcp__calc__*", "mcp__calc__add", "add"):
        assert verdict([f"allow {rule}"], tmp_path, **facts) == "allow"
        assert verdict([f"deny {rule}", "allow add"], tmp_path, **facts) == "deny"
    assert verdict(["allow mcp__other"], tmp_path, **facts) == "ask"


def test_tools_are_named_by_glob_and_alias(tmp_path: Path) -> None:
    assert verdict(["deny fs.*"], tmp_path, tool="fs.read_file", read_only=True) == "deny"
    assert verdict(["deny FileGrep"], tmp_path, tool="Grep", aliases=("FileGrep",), read_only=True) == "deny"


def test_a_rule_with_brackets_on_another_tool_binds_the_paths_of_that_tool_alone(tmp_path: Path) -> None:
    path = ReadPath(str(tmp_path / "src" / "x"))
    assert verdict(["deny Grep(src/**)"], tmp_path, path, tool="Grep", read_only=True) == "deny"
    assert verdict(["deny Grep(src/**)"], tmp_path, path, tool="Read", read_only=True) == "allow"


def test_an_allow_rule_for_somebodys_own_tool_is_not_taken_for_a_built_in_one(tmp_path: Path) -> None:
    write = WritePath(str(tmp_path / "a"))
    assert verdict(["allow write"], tmp_path, write, tool="Edit") == "ask"
    assert verdict(["allow write"], tmp_path, write, tool="write") == "allow"
    assert verdict(["deny write"], tmp_path, tool="write") == "deny"
    assert verdict(["deny write", "allow Edit"], tmp_path, write, tool="Edit") == "deny"


def test_sub_agents_are_named_by_profile(tmp_path: Path) -> None:
    assert verdict([], tmp_path, StartAgent("reviewer"), tool="Agent") == "allow"
    assert verdict(["deny Agent(rev*)"], tmp_path, StartAgent("reviewer"), tool="Agent") == "deny"
    assert verdict(["ask Agent"], tmp_path, StartAgent("reviewer"), tool="Agent") == "ask"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("allow Bash(", "does not parse"),
        ("allow Bash()", "there is nothing between the brackets"),
        ("deny", "no tool"),
        ("allow WebFetch(example.com)", "WebFetch(domain:example.com)"),
        ("allow WebFetch(domain:exa*mple.com)", "not a host name"),
        ("allow mcp__a__b(x)", "takes no brackets"),
        ("deny Read([z-a])", "the pattern is wrong"),
        ("deny Bash(rm\x07:*)", "control character"),
        ("allow ", "does not parse"),
    ],
)
def test_a_rule_that_does_not_parse_says_what_is_wrong(line: str, says: str) -> None:
    if line == "deny":
        assert parse_line(line).name == "deny"  # a lone word is the name of a tool
        return
    with pytest.raises(RuleError, match=says.replace("(", r"\(").replace(")", r"\)")):
        parse_line(line)


def test_an_unknown_verdict_names_the_three() -> None:
    with pytest.raises(RuleError, match="allow, ask or deny"):
        parse_rule("permit", "Bash", Origin("user", "x.toml", 3))


def test_the_built_in_rules_keep_their_own_examples_and_are_all_about_writing() -> None:
    rules = read_rules(DEFAULT_RULES, "built-in", check=True)
    assert len(rules) > 50
    assert {(rule.kind, rule.verdict, rule.whole) for rule in rules} == {("write", "ask", False)}


def test_the_built_in_rules_are_listed_before_and_after_a_write(tmp_path: Path) -> None:
    plain = policy("deny Read(x)")
    before = plain.rules
    plain.judge(request(tmp_path, WritePath(str(tmp_path / "a"))))
    assert plain.rules == before
    assert len(before) > 50


def test_a_failing_example_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[[permissions.rules]]\ndeny = "Bash(git push:*)"\nmatch = ["git push", "git pull"]\n')
    with pytest.raises(RuleError, match=rf"{file}:2: .*does not match its own example 'git pull'"):
        read_rules(str(file), "user")
    file.write_text('\n\n[[permissions.rules]]\nallow = "Edit(./src/**)"\nnot_match = ["src/a.py"]\n')
    with pytest.raises(RuleError, match=rf"{file}:4: .*matches its own example 'src/a.py'"):
        read_rules(str(file), "user")


def test_rules_from_a_file_carry_line_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[permissions]\ndeny = [\n  "Bash(curl:*)",\n]\n[[permissions.rules]]\nask = "Read(x)"\nreason = "why"\n'
    )
    curl, read = read_rules(str(file), "user")
    assert (curl.origin.line, read.origin.line, read.reason) == (3, 6, "why")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[permissions]\ndeny = 3\n", "must be a list of rules"),
        ("permissions = 3\n", "must be a table"),
        ("[[permissions.rules]]\nreason = 'x'\n", "exactly one of allow, ask, deny"),
        ("[[permissions.rules]]\nallow = 'A'\ndeny = 'B'\n", "exactly one of allow, ask, deny"),
        ("[[permissions.rules]]\nallow = 'A'\nwhy = 'B'\n", "a rule has no 'why'"),
        ("[permissions\n", "not valid TOML"),
    ],
)
def test_a_wrong_policy_file_is_refused_clearly(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(RuleError, match=says):
        read_rules(str(file), "user")


def test_a_policy_file_that_is_a_link_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("")
    (tmp_path / "link.toml").symlink_to(tmp_path / "real.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(RuleError, match="is a link"):
        read_rules(str(tmp_path / "link.toml"), "project")
    with pytest.raises(RuleError, match="not a plain file"):
        read_rules(str(tmp_path / "folder.toml"), "project")
    assert read_rules(str(tmp_path / "absent.toml"), "project") == []


def test_a_decision_names_every_rule_that_matched_and_the_one_that_decided(tmp_path: Path) -> None:
    rules = ["allow Bash(git push:*)", "ask Bash(git:*)", "deny Bash(git push --force:*)"]
    decision = judge(rules, tmp_path, run("git", "push", "--force"), tool="Bash")
    assert decision.verdict == "deny"
    assert {each.rule.text: each.decided for each in decision.rules} == {
        "Bash(git push --force:*)": True,
        "Bash(git:*)": False,
        "Bash(git push:*)": False,
    }
