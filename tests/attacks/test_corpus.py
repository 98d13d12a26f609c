"""Every case of the corpora, through the public door: judged, and run where only running tells.

A case passes with what it expects or with one of the answers it also takes. Cases about parts that are not tools
(servers, agents, start-up) are named in ELSEWHERE with the test that holds them; a case that is neither judged here
nor named there fails. What a case's own words ask to be looked at beside the verdict is in `special.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.attacks.cases import SLOW, Case, load
from tests.attacks.special import EARLIER, HARM, JUDGED, SESSIONS, SUGGESTS

from surehand import Surehand
from surehand.core.call import ToolResult
from surehand.engine.checking import MODES, Checker
from surehand.policy.policy import Policy

CASES = load()

# Where the cases that are no single call of a tool are held.
ELSEWHERE: dict[str, str] = {
    "agent-worktree-filter": "tests/commands/test_worktrees.py: what a repository names is asked about",
    "audit-tail-cut-then-call": "tests/engine/test_audit.py: an end that was cut off shows for ever",
    "mcp-server-name-ansi": "tests/cli/test_mcp.py: a server's own name steers no terminal",
    "mcp-config-swap": "tests/mcp/test_client.py: changed servers of a folder do not start",
    "mcp-project-autostart": "tests/mcp/test_client.py: a folder's own servers start only once it is trusted",
    "mcp-base-url": "tests/policy/test_trust.py and config: a project cannot redirect the model's traffic",
    "trust-yarn-plugin": "nothing of a folder is run at start-up: there is no probing of project tools at all",
    "trust-nested-repo": "tests/policy/test_trust.py: trust is for one folder and not for those inside it",
    "mcp-poisoned-desc": "tests/mcp/test_client.py: hidden characters are written out and warned of, changes ask again",
    "mcp-ansi-desc": "tests/mcp/test_client.py: escapes in descriptions never reach a terminal",
    "mcp-server-dns-rebind": "tests/mcp/test_serve.py: foreign hosts and origins are refused",
    "mcp-server-abrupt-close": "tests/mcp/test_serve.py: the server lives on when a client drops its stream",
    "mcp-server-bad-json": "tests/mcp/test_serve.py: -32700 on stdio and HTTP, and the next request is answered",
    "mcp-fs-roots": "tests/mcp/test_server.py: files outside the workspace are refused, links included",
    "mcp-client-stdout-noise": "tests/mcp/test_client.py: noise and wrong ids hurt no call",
    "mcp-client-id-spoof": "tests/mcp/test_client.py: noise and wrong ids hurt no call",
    "mcp-client-huge-result": "tests/mcp/test_client.py: a huge result is cut and marked",
    "mcp-sampling-injection": "tests/mcp/test_client.py: a server cannot use our model",
    "hook-updates-input": "tests/attacks/test_door.py",
    "approval-toctou": "tests/attacks/test_door.py",
    "subagent-tools": "tests/policy/test_judge.py: a child never permits more than its parent; agent tests",
    "subagent-mode-escalate": "tests/policy/test_judge.py: the mode of a child is the narrower one",
    "subagent-depth": "the agents' own tests",
    "subagent-worktree-symlink": "the agents' own tests",
    "registry-dup": "tests/attacks/test_door.py",
    "log-secret": "tests/attacks/test_door.py",
    "edit-stale": "the Edit tool's own tests: it needs a read before",
    "undo-path-race": "tests/faults/test_change_logs.py: a path swapped meanwhile is undone or named",
    "args-dup-keys": "tests/attacks/test_door.py: the text of the arguments itself",
    "args-nan-int": "tests/attacks/test_door.py: the text of the arguments itself",
}


def asked(case: Case) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments a case is about; cases about the executor name the tool inside."""
    inner = case.input.get("args")
    if isinstance(inner, dict) and "tool" in case.input:
        return str(case.input["tool"]), {"args": inner}
    return case.tool, {"args": case.input}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fixtures with a repository are kept for the cases that have the same one."""
    return tmp_path_factory.mktemp("fixtures")


@pytest.mark.parametrize("case", [case for case in CASES if case.id not in ELSEWHERE], ids=lambda case: case.id)
async def test_a_case_of_the_corpus(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    name, box = asked(case)
    args = Case.filled(Case(**{**_fields(case), "input": box}), workspace)["args"]
    runs = case.category != "hard-floor" and "allow-if-canary-absent" in case.also_ok
    if runs or case.corpus > 1 or not any(op[0] in SLOW for op in case.fixture):
        case.build(workspace, monkeypatch.setenv, made)
    session = SESSIONS.get(case.id)
    options = session(workspace, monkeypatch) if session else {}
    async with Surehand(workspace, keep_state=False, allow=(), **options) as app:
        if case.id in EARLIER:
            for command in EARLIER[case.id]:
                assert (await app.call("Bash", {"command": command})).ok
        policy = Policy.from_settings(app.settings, str(workspace), command_line=case.rules)
        answer = Checker(policy, app.session, app.registry).check(name, args, case.mode)
        decision = answer["decision"]
        if decision in case.passes and case.id in SUGGESTS:
            assert ":*" not in (answer["suggestion"] or ""), answer["suggestion"]
        if decision in case.passes:
            return
        assert decision == "allow", f"{decision}: {answer['reason']}"
        assert case.category != "hard-floor", "the floor is judged, never tried"
        assert case.corpus == 1 or case.category not in JUDGED, "it must not come to running it"
        app.executor.policy = app.executor.permissions.policy = policy
        app.session.mode = MODES[case.mode]
        result = await app.call(name, args)
    assert outcome(case, result, workspace) in case.passes, result.output


def outcome(case: Case, result: ToolResult, workspace: Path) -> str:
    """Return the answer that running a case for real came to; one that did no harm counts as kept from it."""
    if case.id in HARM:
        return "allow" if HARM[case.id](workspace, result) else "error"
    if "allow-if-canary-absent" in case.also_ok:
        left = [path for path in (workspace / "pwn", workspace / "o", workspace.parent / "o") if path.exists()]
        return "allow-if-canary-absent" if not left and "canary" not in result.output else "allow"
    if result.ok:
        return "allow"
    assert result.error is not None
    if result.error.code == "permission_denied":
        return str(result.error.details.get("verdict", "deny"))
    return "error"


def _fields(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in Case.__slots__}


def test_every_case_is_judged_here_or_named_elsewhere() -> None:
    ids = {case.id for case in CASES}
    assert len(ids) == len(CASES) == 431 + 262
    assert ids >= ELSEWHERE.keys()
