"""The judgement: defaults, precedence, protected files, modes, per-tool settings, origin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.policy.policy_requests import judge, policy, request, verdict

from surehand.core.effects import (
    Connect,
    DeletePath,
    Effect,
    ReadPath,
    RemoteCall,
    RunCommand,
    StartAgent,
    Unreadable,
    WritePath,
)
from surehand.core.settings import Mode, ToolPermissionSettings
from surehand.policy.policy import Both, Policy, bypass_problem, narrower_mode
from surehand.policy.rules import parse_rule

MODES: tuple[Mode, ...] = ("default", "accept-edits", "plan", "bypass")


def test_what_touches_nothing_is_judged_by_what_the_tool_says_of_itself(tmp_path: Path) -> None:
    assert verdict([], tmp_path, read_only=True) == "allow"
    assert verdict([], tmp_path, needs_permission=False) == "allow"
    assert verdict([], tmp_path) == "ask"


def test_effects_nobody_thought_about_ask_unless_the_tool_is_read_only(tmp_path: Path) -> None:
    assert verdict([], tmp_path, effects=None, needs_permission=False) == "ask"
    assert verdict([], tmp_path, effects=None, read_only=True) == "allow"
    assert verdict(["allow Tool"], tmp_path, effects=None) == "allow"


def test_reads_inside_run_and_writes_ask(tmp_path: Path) -> None:
    inside = str(tmp_path / "a")
    assert verdict([], tmp_path, ReadPath(inside), read_only=True) == "allow"
    assert verdict([], tmp_path, WritePath(inside)) == "ask"
    assert verdict([], tmp_path, DeletePath(inside)) == "ask"


def test_a_custom_tool_that_asks_still_asks_when_it_only_reads(tmp_path: Path) -> None:
    assert verdict([], tmp_path, ReadPath(str(tmp_path / "a")), needs_permission=True) == "ask"


def test_what_is_outside_asks_whatever_the_tool_may(tmp_path: Path) -> None:
    assert verdict([], tmp_path, ReadPath("/etc/hosts"), read_only=True) == "ask"
    assert verdict(["allow Bash"], tmp_path, ReadPath("/etc/hosts"), tool="Bash") == "ask"
    assert verdict(["allow Edit"], tmp_path, WritePath("/opt/x"), tool="Edit") == "ask"
    assert verdict(["allow Read(**)"], tmp_path, ReadPath("/etc/hosts"), tool="Read", read_only=True) == "ask"


def test_a_sibling_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    assert verdict([], workspace, ReadPath(f"{workspace}-evil/x"), read_only=True) == "ask"


@pytest.mark.spec("PERM-5")
def test_a_link_is_judged_by_its_name_and_by_where_it_leads(tmp_path: Path) -> None:
    workspace, other = tmp_path / "ws", tmp_path / "other"
    workspace.mkdir()
    other.mkdir()
    (other / "x").write_text("x")
    (workspace / "out").symlink_to(other)
    (workspace / "in").symlink_to(workspace / "real")
    assert verdict([], workspace, ReadPath(str(workspace / "out" / "x")), read_only=True) == "ask"
    assert verdict(["allow Edit"], workspace, WritePath(str(workspace / "out" / "x"))) == "ask"
    assert verdict([], workspace, ReadPath(str(workspace / "in")), read_only=True) == "allow"
    denied = [f"deny Read({other}/**)"]
    assert verdict(denied, workspace, ReadPath(str(workspace / "out" / "x")), read_only=True) == "deny"
    by_name = ["deny Read(out/**)"]
    assert verdict(by_name, workspace, ReadPath(str(workspace / "out" / "x")), read_only=True) == "deny"


def test_a_path_that_was_judged_is_judged_anew_once_it_leads_elsewhere(tmp_path: Path) -> None:
    workspace, other = tmp_path / "ws", tmp_path / "other"
    workspace.mkdir()
    other.write_text("x")
    (workspace / "real").write_text("x")
    link, rules = workspace / "link", policy("allow Edit(./link)", "allow Edit(./real)")
    link.symlink_to(workspace / "real")
    for effect in (ReadPath(str(link)), WritePath(str(link))):
        assert rules.judge(request(workspace, effect, read_only=True)).verdict == "allow"
    link.unlink()
    link.symlink_to(other)
    for effect in (ReadPath(str(link)), WritePath(str(link))):
        assert rules.judge(request(workspace, effect, read_only=True)).verdict == "ask"


def test_a_file_that_was_judged_is_denied_once_it_is_a_secret_by_another_name(tmp_path: Path) -> None:
    notes, rules = tmp_path / "notes", policy()
    notes.write_text("x")
    assert rules.judge(request(tmp_path, ReadPath(str(notes)), read_only=True)).verdict == "allow"
    (tmp_path / ".env").hardlink_to(notes)
    assert rules.judge(request(tmp_path, ReadPath(str(notes)), read_only=True)).verdict == "deny"


def test_a_path_that_was_judged_is_judged_anew_in_another_mode_and_with_another_grant(tmp_path: Path) -> None:
    rules, effect = policy(), WritePath(str(tmp_path / "a"))
    asked = request(tmp_path, effect)
    assert rules.judge(asked).verdict == "ask"
    assert rules.judge(request(tmp_path, effect, mode="accept-edits")).verdict == "allow"
    assert rules.judge(request(tmp_path, effect, mode="plan")).verdict == "deny"
    assert rules.judge(request(tmp_path, effect, grants=["Edit(./a)"])).verdict == "allow"
    assert rules.judge(asked).verdict == "ask"


def test_dots_that_climb_through_a_link_are_judged_by_where_they_end(tmp_path: Path) -> None:
    workspace, other = tmp_path / "ws", tmp_path / "other"
    workspace.mkdir()
    (other / "deep").mkdir(parents=True)
    (workspace / "link").symlink_to(other / "deep")
    assert verdict([], workspace, ReadPath(f"{workspace}/link/../x"), read_only=True) == "ask"
    assert verdict([], workspace, ReadPath(f"{workspace}/a/../b"), read_only=True) == "allow"


def test_a_workspace_reached_through_a_link_is_inside(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "ws").symlink_to(tmp_path / "real")
    assert verdict([], tmp_path / "ws", ReadPath(str(tmp_path / "ws" / "a")), read_only=True) == "allow"
    assert verdict(["allow Edit(./a)"], tmp_path / "ws", WritePath(str(tmp_path / "ws" / "a"))) == "allow"


@pytest.mark.parametrize("name", [".env", "a/.env.local", "key.pem", ".ssh/id_rsa", ".ENV", "sub/credentials.json"])
def test_secrets_are_denied_to_every_reader_whatever_is_allowed(tmp_path: Path, name: str) -> None:
    effect = ReadPath(str(tmp_path / name))
    for rules in ([], ["allow Read"], ["allow Read(**)"], ["allow Bash"]):
        for tool in ("Read", "Bash", "Grep"):
            assert verdict(rules, tmp_path, effect, tool=tool, read_only=True) == "deny"
    assert verdict([], tmp_path, effect, mode="bypass", read_only=True) == "deny"


@pytest.mark.parametrize("name", [".env", ".envrc", "a/.env.local", "key.pem", ".ssh/id_rsa", ".ENV"])
def test_secrets_are_as_closed_to_writing_as_to_reading(tmp_path: Path, name: str) -> None:
    effect = WritePath(str(tmp_path / name))
    for rules in ([], ["allow Edit"], ["allow Edit(**)"], ["allow Bash"]):
        for tool in ("Edit", "Write", "Bash"):
            for mode in ("default", "accept-edits", "bypass"):
                assert verdict(rules, tmp_path, effect, tool=tool, mode=mode) == "deny"
    assert verdict([f"allow Edit({name})"], tmp_path, effect) == "ask"
    assert verdict([f"allow Edit(./{name})"], tmp_path, effect) == "allow"
    assert verdict([f"allow Read(./{name})"], tmp_path, ReadPath(str(tmp_path / name)), read_only=True) == "allow"
    assert verdict([f"allow Read(./x/../{name}/)"], tmp_path, effect) == "deny"


def test_a_rule_that_spells_a_secret_out_turns_the_refusal_into_a_question(tmp_path: Path) -> None:
    effect = ReadPath(str(tmp_path / ".env"))
    assert verdict(["allow Read(.env)"], tmp_path, effect, read_only=True) == "ask"


def test_a_name_that_only_resembles_a_secret_is_read(tmp_path: Path) -> None:
    for name in ("src/environment.ts", ".env.example", "docs/keys.md"):
        assert verdict([], tmp_path, ReadPath(str(tmp_path / name)), read_only=True) == "allow"


def test_a_recursive_read_runs_though_secrets_lie_below(tmp_path: Path) -> None:
    effect = ReadPath(str(tmp_path), recursive=True)
    assert verdict(["deny Read(secrets/**)"], tmp_path, effect, tool="Grep", read_only=True) == "allow"
    below = ReadPath(str(tmp_path / "secrets"), recursive=True)
    assert verdict(["deny Read(secrets/**)"], tmp_path, below, tool="Grep", read_only=True) == "deny"


def test_a_recursive_delete_is_denied_when_it_takes_a_denied_path_along(tmp_path: Path) -> None:
    effect = DeletePath(str(tmp_path / "src"), recursive=True)
    rules = ["deny Edit(./src/keep/**)", "allow Bash"]
    assert verdict(rules, tmp_path, effect, tool="Bash") == "deny"
    assert verdict(["allow Bash"], tmp_path, effect, tool="Bash") == "allow"


def test_read_only_commands_run_and_others_ask(tmp_path: Path) -> None:
    assert verdict([], tmp_path, RunCommand(("git", "status"), True), tool="Bash") == "allow"
    assert verdict([], tmp_path, RunCommand(("make",), False), tool="Bash") == "ask"


def test_the_strictest_effect_decides(tmp_path: Path) -> None:
    fine, asked = RunCommand(("ls",), True), RunCommand(("make",), False)
    assert verdict([], tmp_path, fine, asked, tool="Bash") == "ask"
    assert verdict(["deny Bash(make:*)"], tmp_path, fine, asked, tool="Bash") == "deny"
    assert verdict(["allow Bash(ls:*)"], tmp_path, fine, asked, tool="Bash") == "ask"


def test_an_allowed_command_covers_what_its_words_imply_inside_only(tmp_path: Path) -> None:
    inside = RunCommand(("touch", "a"), False, implies=(WritePath(str(tmp_path / "a")),))
    outside = RunCommand(("touch", "/opt/a"), False, implies=(WritePath("/opt/a"),))
    assert verdict(["allow Bash(touch:*)"], tmp_path, inside, tool="Bash") == "allow"
    assert verdict(["allow Bash(touch:*)"], tmp_path, outside, tool="Bash") == "ask"
    online = RunCommand(("curl", "x"), False, implies=(Connect("example.com"),))
    assert verdict(["allow Bash(curl:*)"], tmp_path, online, tool="Bash") == "allow"
    denied = ["allow Bash(curl:*)", "deny WebFetch(domain:example.com)"]
    assert verdict(denied, tmp_path, online, tool="Bash") == "deny"


def test_a_redirect_is_judged_beside_its_command(tmp_path: Path) -> None:
    effects = (RunCommand(("echo", "x"), True), WritePath(str(tmp_path / "o")))
    assert verdict(["allow Bash(echo:*)"], tmp_path, *effects, tool="Bash") == "ask"
    assert verdict(["allow Bash"], tmp_path, *effects, tool="Bash") == "allow"


def test_a_program_run_by_another_is_not_covered_by_its_rule(tmp_path: Path) -> None:
    inner = RunCommand(("rm", "x"), False)
    outer = RunCommand(("find", ".", "-name", "x", "-exec", "rm", "{}", ";"), False, implies=(inner,))
    assert verdict(["allow Bash(find:*)"], tmp_path, outer, tool="Bash") == "ask"
    assert verdict(["allow Bash(find:*)", "deny Bash(rm:*)"], tmp_path, outer, tool="Bash") == "deny"


def test_what_cannot_be_read_asks_under_every_allow_rule(tmp_path: Path) -> None:
    effect = Unreadable("a variable as command")
    for rules in ([], ["allow Bash"], ["allow Bash(*)"]):
        for mode in ("default", "accept-edits", "bypass"):
            assert verdict(rules, tmp_path, effect, tool="Bash", mode=mode) == "ask"
    assert verdict(["allow Bash"], tmp_path, effect, tool="Bash", mode="plan") == "deny"


def test_null_is_no_file(tmp_path: Path) -> None:
    effects = (RunCommand(("ls",), True), WritePath("/dev/null"), ReadPath("/dev/null"))
    assert verdict([], tmp_path, *effects, tool="Bash") == "allow"


@pytest.mark.parametrize(
    "name",
    [
        ".mcp.json",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        "proj.code-workspace",
        ".npmrc",
        ".bashrc",
        ".zshrc",
        ".gitmodules",
        ".husky/pre-commit",
        ".ripgreprc",
        ".github/workflows/ci.yml",
        ".pre-commit-config.yaml",
        ".devcontainer/devcontainer.json",
        "sub/.VSCODE/settings.json",
        ".helix/languages.toml",
        ".codex/config.toml",
        ".dir-locals.el",
        ".Rprofile",
        "sub/.ghci",
        ".pdbrc",
        ".mvn/extensions.xml",
        "tools/bazel",
        "mise.local.toml",
        ".venv/bin/activate",
        ".venv/lib/python3.12/site-packages/x.pth",
        "node_modules/.bin/eslint",
        ".config/git/config",
        "lefthook-local.yaml",
        ".forgejo/workflows/ci.yml",
    ],
)
def test_files_that_others_execute_ask_in_accept_edits_also_before_they_exist(tmp_path: Path, name: str) -> None:
    effect = WritePath(str(tmp_path / name))
    assert verdict([], tmp_path, effect, mode="accept-edits") == "ask"
    assert verdict(["allow Edit"], tmp_path, effect) == "ask"


def test_a_rule_that_spells_such_a_file_out_lifts_the_question(tmp_path: Path) -> None:
    effect = WritePath(str(tmp_path / ".vscode" / "settings.json"))
    assert verdict(["allow Edit(.vscode/settings.json)"], tmp_path, effect) == "allow"
    assert verdict(["allow Edit(.vscode/**)"], tmp_path, effect) == "ask"


@pytest.mark.parametrize("name", ["docs/new.md", ".gitignore", "src/a.py", ".editorconfig", ".github/CODEOWNERS"])
def test_accept_edits_writes_ordinary_files_inside(tmp_path: Path, name: str) -> None:
    assert verdict([], tmp_path, WritePath(str(tmp_path / name)), mode="accept-edits") == "allow"
    assert verdict([], tmp_path, WritePath("/etc/motd"), mode="accept-edits") == "ask"
    assert verdict([], tmp_path, RunCommand(("make",), False), tool="Bash", mode="accept-edits") == "ask"


@pytest.mark.spec("PERM-4")
@pytest.mark.parametrize(
    "effect",
    [
        WritePath("{ws}/a"),
        DeletePath("{ws}/a"),
        RunCommand(("make",), False),
        Unreadable("x"),
        RemoteCall("s", "t"),
    ],
)
def test_plan_mode_runs_nothing_that_is_not_proven_to_change_nothing(tmp_path: Path, effect: object) -> None:
    if isinstance(effect, WritePath | DeletePath):
        effect = type(effect)(effect.path.replace("{ws}", str(tmp_path)))
    for rules in ([], ["allow Tool"], ["allow Edit", "allow Bash", "allow mcp__s"]):
        assert verdict(rules, tmp_path, effect, mode="plan") == "deny"  # type: ignore[arg-type]
    assert verdict(["allow Tool"], tmp_path, mode="plan") == "deny"


def test_plan_mode_reads(tmp_path: Path) -> None:
    assert verdict([], tmp_path, ReadPath(str(tmp_path / "a")), mode="plan", read_only=True) == "allow"
    assert verdict([], tmp_path, RunCommand(("ls",), True), tool="Bash", mode="plan") == "allow"
    assert verdict([], tmp_path, StartAgent("x"), tool="Agent", mode="plan") == "allow"
    remote = RemoteCall("s", "t")
    facts = {"tool": "mcp__s__t", "module": "s", "mode": "plan"}
    assert verdict(["allow mcp__s"], tmp_path, remote, read_only=True, **facts) == "allow"
    assert verdict([], tmp_path, remote, read_only=True, **facts) == "deny"


def test_bypass_asks_nothing_but_keeps_deny_rules_floor_and_ask_rules(tmp_path: Path) -> None:
    assert verdict([], tmp_path, RunCommand(("make",), False), tool="Bash", mode="bypass") == "allow"
    assert verdict([], tmp_path, WritePath("/opt/x"), mode="bypass") == "allow"
    assert verdict(["deny Bash(make:*)"], tmp_path, RunCommand(("make",), False), tool="Bash", mode="bypass") == "deny"
    assert verdict(["ask Bash(make:*)"], tmp_path, RunCommand(("make",), False), tool="Bash", mode="bypass") == "ask"
    assert verdict([], tmp_path, WritePath(str(tmp_path / ".git/config")), mode="bypass") == "deny"


def test_bypass_is_refused_outside_a_sandbox_and_without_confirmation() -> None:
    assert "sandbox" in bypass_problem(sandboxed=False, confirmed=True)
    assert "confirmed" in bypass_problem(sandboxed=True, confirmed=False)
    assert bypass_problem(sandboxed=True, confirmed=True) == ""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "10.0.0.1", "metadata.google.internal"])
def test_web_tools_never_reach_private_addresses(tmp_path: Path, host: str) -> None:
    rules = [f"allow WebFetch(domain:{host})", "allow WebFetch"]
    assert verdict(rules, tmp_path, Connect(host), tool="WebFetch", read_only=True) == "deny"
    opened = Policy([], public_hosts=[host])
    assert opened.judge(request(tmp_path, Connect(host), tool="WebFetch")).verdict == "ask"


def test_a_command_may_be_asked_about_a_local_server_but_not_about_the_metadata_service(tmp_path: Path) -> None:
    local = RunCommand(("curl", "localhost:3000"), False, implies=(Connect("localhost", 3000),))
    cloud = RunCommand(("curl", "169.254.169.254"), False, implies=(Connect("169.254.169.254"),))
    assert verdict([], tmp_path, local, tool="Bash") == "ask"
    assert verdict(["allow Bash(curl:*)"], tmp_path, cloud, tool="Bash") == "deny"


def test_per_tool_paths_are_enforced_whatever_is_allowed(tmp_path: Path) -> None:
    only = ToolPermissionSettings(allowed_paths=("docs/**",))
    never = ToolPermissionSettings(forbidden_paths=("docs/private/**",))
    inside, outside = ReadPath(str(tmp_path / "docs/a")), ReadPath(str(tmp_path / "src/a"))
    assert verdict([], tmp_path, inside, tool_settings=only, read_only=True) == "allow"
    assert verdict(["allow Read"], tmp_path, outside, tool_settings=only, read_only=True) == "deny"
    secret = ReadPath(str(tmp_path / "docs/private/x"))
    decision = judge([], tmp_path, secret, tool_settings=never, read_only=True)
    assert decision.verdict == "deny"
    assert "forbidden_paths" in decision.reason


def test_a_tool_without_the_required_capability_is_refused_and_told_which_would_do(tmp_path: Path) -> None:
    able = Policy([], capable=lambda level: ["Write", "Edit"] if level == 2 else [])
    for settings in (
        ToolPermissionSettings(security_level=2),
        ToolPermissionSettings(required_capabilities=("dry_run",)),
    ):
        decision = able.judge(request(tmp_path, tool_settings=settings, level=1))
        assert decision.verdict == "deny"
        assert "Write, Edit" in decision.reason
        assert able.judge(request(tmp_path, tool_settings=settings, level=2, read_only=True)).verdict == "allow"


def test_a_rule_may_ask_more_once_untrusted_text_has_entered(tmp_path: Path) -> None:
    rule = parse_rule("ask", "Bash(git push:*)", untrusted=True)
    careful = Policy([rule, parse_rule("allow", "Bash(git push:*)")])
    push = RunCommand(("git", "push"), False)

    def asked(*origins: str) -> str:
        return careful.judge(request(tmp_path, push, tool="Bash", origins=frozenset(origins))).verdict

    assert asked() == "allow"
    assert asked("workspace") == "allow"
    assert asked("web") == "ask"
    assert asked("mcp:github") == "ask"


def test_a_session_grant_allows_and_a_deny_rule_still_wins(tmp_path: Path) -> None:
    push = RunCommand(("git", "push"), False)
    assert verdict([], tmp_path, push, tool="Bash", grants=["Bash(git push:*)"]) == "allow"
    assert verdict(["deny Bash(git:*)"], tmp_path, push, tool="Bash", grants=["Bash(git push:*)"]) == "deny"
    two = "Bash(git push:*)\nEdit(./a)"
    assert verdict([], tmp_path, push, WritePath(str(tmp_path / "a")), tool="Bash", grants=[two]) == "allow"


def test_a_grant_that_does_not_parse_grants_nothing(tmp_path: Path) -> None:
    make = RunCommand(("make",), False)
    assert verdict([], tmp_path, make, tool="Bash", grants=["Bash("]) == "ask"
    assert verdict([], tmp_path, make, tool="Bash", grants=["Bash(", "Bash(make)"]) == "allow"


def test_a_child_policy_never_permits_more_than_its_parent(tmp_path: Path) -> None:
    parent = policy("deny Bash(curl:*)", "ask Bash(make:*)")
    child = parent.narrow([parse_rule("allow", "Bash"), parse_rule("deny", "Edit")], ceiling="default")
    assert isinstance(child, Both)

    def judged(*words: str, mode: Mode = "default") -> str:
        return child.judge(request(tmp_path, RunCommand(words, False), tool="Bash", mode=mode)).verdict

    assert judged("curl", "x") == "deny"
    assert judged("make") == "ask"
    assert judged("touch", "x") == "ask"
    assert judged("touch", "x", mode="bypass") == "ask"
    assert child.judge(request(tmp_path, WritePath(str(tmp_path / "a")), mode="accept-edits")).verdict == "deny"


def test_the_mode_of_a_child_is_the_narrower_one() -> None:
    assert narrower_mode("default", "bypass") == "default"
    assert narrower_mode("accept-edits", "plan") == "plan"
    assert all(narrower_mode(mode, mode) == mode for mode in MODES)


@pytest.mark.parametrize(
    ("effect", "rule"),
    [
        (RunCommand(("git", "commit", "-m", "x"), False), "Bash(git commit:*)"),
        (RunCommand(("npm", "run", "build", "--x"), False), "Bash(npm run build:*)"),
        (RunCommand(("mkdir", "-p", "a"), False), "Bash(mkdir:*)"),
        (RunCommand(("rm", "-rf", "build"), False), "Bash(rm -rf build)"),
        (RunCommand(("frobnicate", "x"), False), "Bash(frobnicate x)"),
        (RunCommand(("direnv", "exec", ".", "make"), False), "Bash(direnv exec . make)"),
        (RunCommand(("tmux", "new", "x"), False), "Bash(tmux new x)"),
        (RunCommand(("java", "-jar", "x.jar"), False), "Bash(java -jar x.jar)"),
        (RunCommand(("docker", "run", "-it", "x"), False), "Bash(docker run -it x)"),
        (RunCommand(("docker", "compose", "exec", "web", "sh"), False), "Bash(docker compose exec web sh)"),
        (RunCommand(("docker", "compose", "up", "-d"), False), "Bash(docker compose up -d)"),
        (RunCommand(("docker", "compose", "logs", "web"), False), "Bash(docker compose logs:*)"),
        (RunCommand(("docker", "build", "."), False), "Bash(docker build .)"),
        (RunCommand(("git", "remote", "add", "x", "y"), False), "Bash(git remote add x y)"),
        (RunCommand(("git", "init", "x"), False), "Bash(git init x)"),
        (RunCommand(("mypy", "src"), False), "Bash(mypy src)"),
        (RunCommand(("pylint", "src"), False), "Bash(pylint src)"),
        (RunCommand(("terraform", "plan"), False), "Bash(terraform plan)"),
        (RunCommand(("watch", "make"), False), "Bash(watch make)"),
        (RunCommand(("node", "x.js"), False), "Bash(node x.js)"),
        (RunCommand(("kubectl", "exec", "x", "--", "sh"), False), "Bash(kubectl exec x -- sh)"),
        (RunCommand(("just", "test"), False), "Bash(just test)"),
        (RunCommand(("mvn", "test"), False), "Bash(mvn test)"),
        (RunCommand(("gradle", "build"), False), "Bash(gradle build)"),
        (RunCommand(("git", "config", "user.name", "x"), False), "Bash(git config user.name x)"),
        (RunCommand(("git", "rebase", "-i", "HEAD~2"), False), "Bash(git rebase -i 'HEAD~2')"),
        (RunCommand(("git", "submodule", "foreach", "x"), False), "Bash(git submodule foreach x)"),
        (RunCommand(("pkexec", "x"), False), "Bash(pkexec x)"),
        (RunCommand(("bwrap", "--dev-bind", "/", "/", "sh"), False), "Bash(bwrap --dev-bind / / sh)"),
        (RunCommand(("npm", "install", "left-pad"), False), "Bash(npm install left-pad)"),
        (RunCommand(("uv", "run", "pytest"), False), "Bash(uv run pytest)"),
        (RunCommand(("make", "test"), False), "Bash(make test)"),
        # Further words may name code, or print what a program was started with.
        (RunCommand(("uv", "lock"), False), "Bash(uv lock)"),
        (RunCommand(("apt", "update"), False), "Bash(apt update)"),
        (RunCommand(("dnf", "list", "x"), False), "Bash(dnf list x)"),
        (RunCommand(("brew", "info", "x"), False), "Bash(brew info x)"),
        (RunCommand(("flake8", "src"), False), "Bash(flake8 src)"),
        (RunCommand(("npm", "audit"), False), "Bash(npm audit)"),
        (RunCommand(("systemctl", "status", "x"), False), "Bash(systemctl status x)"),
        (RunCommand(("docker", "inspect", "x"), False), "Bash(docker inspect x)"),
        (RunCommand(("docker", "compose", "config"), False), "Bash(docker compose config)"),
        (RunCommand(("kubectl", "get", "pods", "-A"), False), "Bash(kubectl get pods:*)"),
        (RunCommand(("kubectl", "logs", "x"), False), "Bash(kubectl logs:*)"),
        (RunCommand(("/usr/bin/git", "commit", "-m", "x"), False), "Bash(git commit:*)"),
        (RunCommand(("python3", "-c", "print(1)"), False), "Bash(python3 -c 'print(1)')"),
        (RunCommand(("./run.sh", "--dev"), False), "Bash(./run.sh --dev)"),
        (WritePath("{ws}/src/a.py"), "Edit({ws}/src/a.py)"),
        (WritePath("{ws}/.vscode/settings.json"), "Edit({ws}/.vscode/settings.json)"),
        (WritePath("{ws}/a[1]*.py"), "Edit({ws}/a\\[1]\\*.py)"),
        (ReadPath("/etc/hosts"), "Read(/etc/hosts)"),
        (Connect("example.com", 443, "https://example.com/x"), "WebFetch(domain:example.com)"),
        (RemoteCall("github", "create"), "mcp__github__create"),
    ],
)
def test_the_suggested_rule_is_the_narrowest_sensible_one_and_answers_the_question(
    tmp_path: Path, effect: object, rule: str
) -> None:
    if isinstance(effect, WritePath):
        effect = WritePath(effect.path.replace("{ws}", str(tmp_path)))
        rule = rule.replace("{ws}", str(tmp_path))
    facts = {"read_only": isinstance(effect, ReadPath)}
    decision = judge([], tmp_path, effect, **facts)  # type: ignore[arg-type]
    assert (decision.verdict, decision.suggestion) == ("ask", rule)
    assert verdict([f"allow {rule}"], tmp_path, effect, **facts) == "allow"  # type: ignore[arg-type]


def test_the_suggestion_for_a_link_names_both_ends_and_answers_the_question(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    effect = WritePath(str(tmp_path / "link"))
    decision = judge([], tmp_path, effect)
    assert decision.suggestion == f"Edit({tmp_path}/link)\nEdit({tmp_path}/real)"
    assert verdict([], tmp_path, effect, grants=[decision.suggestion]) == "allow"
    assert verdict([], tmp_path, effect, grants=[f"Edit({tmp_path}/link)"]) == "ask"


def test_several_questions_suggest_several_rules_and_unreadable_ones_none(tmp_path: Path) -> None:
    effects = (RunCommand(("mkdir", "a"), False), RunCommand(("npm", "test"), False))
    decision = judge([], tmp_path, *effects, tool="Bash")
    assert decision.suggestion == "Bash(mkdir:*)\nBash(npm test:*)"
    assert verdict([], tmp_path, *effects, tool="Bash", grants=[decision.suggestion]) == "allow"
    assert judge([], tmp_path, effects[0], Unreadable("x"), tool="Bash").suggestion is None


def test_the_suggestion_for_a_custom_tool_is_its_name(tmp_path: Path) -> None:
    assert judge([], tmp_path, tool="deploy").suggestion == "deploy"


def test_a_plain_call_is_judged_once(tmp_path: Path) -> None:
    calm = policy()
    asked = request(tmp_path, read_only=True)
    assert calm.judge(asked) is calm.judge(asked)


def test_a_path_with_a_nul_is_denied(tmp_path: Path) -> None:
    assert verdict([], tmp_path, ReadPath(f"{tmp_path}/a\0b"), read_only=True) == "deny"


def test_searches_leave_out_secrets_and_what_a_rule_denies(tmp_path: Path) -> None:
    plain, careful = policy().keeps_out(str(tmp_path)), policy("deny Read(private/**)").keeps_out(str(tmp_path))
    assert plain(f"{tmp_path}/.env")
    assert not plain(f"{tmp_path}/private/a")
    assert careful(f"{tmp_path}/private/a")
    assert careful(f"{tmp_path}/private/")
    assert careful(f"{tmp_path}/.env")
    assert not careful(f"{tmp_path}/public/a")
    child = policy("deny Read(a)").narrow([parse_rule("deny", "Read(b)")], ceiling="default").keeps_out(str(tmp_path))
    assert child(f"{tmp_path}/a")
    assert child(f"{tmp_path}/b")


def test_what_a_rule_denies_to_write_is_known_by_its_path(tmp_path: Path) -> None:
    assert policy("ask Edit(a)", "deny Read(b)").keeps_as_is(str(tmp_path)) is None
    kept = policy("deny Edit(*.cfg)", "deny Write(./config/**)").keeps_as_is(str(tmp_path))
    assert kept is not None
    assert [kept(f"{tmp_path}/{name}") for name in ("deep/a.cfg", "config/", "config/x/y")] == [True] * 3
    assert not kept(f"{tmp_path}/other/config/x")
    whole = policy("deny Edit").keeps_as_is(str(tmp_path))
    assert whole is not None
    assert whole(str(tmp_path))
    child = policy("deny Edit(a)").narrow([parse_rule("deny", "Edit(b)")], ceiling="default")
    both = child.keeps_as_is(str(tmp_path))
    assert both is not None
    assert both(f"{tmp_path}/a")
    assert both(f"{tmp_path}/b")


def test_git_asks_before_it_looks_into_a_repository_that_runs_programs(tmp_path: Path) -> None:
    for folder in (tmp_path / "sub", tmp_path):
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_text("[core]\n\tbare = false\n")
    look = RunCommand(("git", "log", "-p"), True)
    assert verdict([], tmp_path, look, tool="Bash") == "allow"
    (tmp_path / "sub" / ".git" / "config").write_text('[diff "x"]\n\ttextconv = touch pwn\n')
    assert verdict([], tmp_path, look, tool="Bash") == "allow"
    assert verdict([], tmp_path, RunCommand(("git", "-C", "sub", "log"), True), tool="Bash") == "ask"
    assert verdict([], tmp_path, RunCommand(("cd", "sub"), True), look, tool="Bash") == "ask"
    (tmp_path / ".git" / "config").write_text("[core]\n\tfsmonitor = ./x\n")
    decision = judge([], tmp_path, look, tool="Bash")
    assert decision.verdict == "ask"
    assert "fsmonitor" in decision.reason
    assert verdict(["allow Bash(git log:*)"], tmp_path, look, tool="Bash") == "allow"
    assert verdict([], tmp_path, RunCommand(("ls",), True), tool="Bash") == "allow"


class CountedEffects(list[Effect]):
    """Effects that count how often somebody goes through all of them."""

    times = 0

    def __iter__(self) -> Iterator[Effect]:
        self.times += 1
        return super().__iter__()


def test_a_path_of_many_is_judged_without_going_through_all_of_them(tmp_path: Path) -> None:
    effects = CountedEffects(WritePath(str(tmp_path / "info" / f"{number}.txt")) for number in range(100))
    assert policy().judge(request(tmp_path, mode="accept-edits", effects=effects)).verdict == "allow"
    assert effects.times < 20
