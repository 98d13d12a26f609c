"""The dry run of a command: all it does is seen, nothing of it happens, and exactly that can be made real."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tools.changing import COMMANDS, furnish, snapshot
from tests.users import somebody

from surehand import Settings, Surehand
from surehand.commands.session import SHELLS
from surehand.core.events import Event
from surehand.policy.approval import Answer, Nobody, Question
from surehand.sandbox.command import Abilities
from surehand.sandbox.linux import probe
from surehand.testing import Says, scratch_app

PLACES = ("layer", "copy", "copy beside")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make dry runs on each kind of copy, whatever this system would choose."""
    force(request.param, monkeypatch)
    return request.param


def force(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = probe.abilities()
    if kind == "layer":
        if not real.overlay:
            pytest.skip(f"no layers here: {real.why_not}")
        return
    if kind == "copy":
        if not real.private_view:
            pytest.skip(f"no namespaces here: {real.why_not}")
        forced = replace(real, overlay=False)
    else:
        if not (real.landlock and real.seccomp):
            pytest.skip("no Landlock here")
        forced = Abilities(real.landlock, real.seccomp, why_not="for a test")
    monkeypatch.setattr(probe, "abilities", lambda: forced)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return furnish(tmp_path / "ws")


class Applies:
    """An approver that wants a dry run of every call, looks at what that shows, and answers with it."""

    def __init__(self, then: Callable[[], object] = lambda: None, dry_run: str | None = None) -> None:
        self.then = then
        self.dry_run = dry_run
        self.shown: list[Any] = []

    async def ask(self, question: Question) -> Answer:
        assert question.try_first is not None
        shown = await question.try_first()
        assert shown is not None
        self.shown.append(shown)
        self.then()
        return Answer("once", dry_run=shown.dry_run.id if shown.dry_run and self.dry_run is None else self.dry_run)


@asynccontextmanager
async def opened(workspace: Path, approver: Any = None, **options: Any) -> AsyncGenerator[tuple[Surehand, list[Event]]]:
    events: list[Event] = []
    async with scratch_app(workspace, approver=approver or Applies(), **options) as app:
        app.bus.subscribe(events.append)
        yield app, events
        dry_runs = Path(app.session.keep(SHELLS).private_dir, "dry_runs")
        assert not dry_runs.exists() or list(dry_runs.iterdir()) == []


def twin_of(workspace: Path, command: str) -> str:
    """Return what a workspace like this looks like after the command ran in it for real."""
    twin = workspace.parent / "twin"
    subprocess.run(["cp", "-a", workspace, twin], check=True)
    subprocess.run(["bash", "-c", command], cwd=twin, check=True, env={**os.environ, "TMPDIR": str(workspace.parent)})
    return snapshot(twin)


@pytest.mark.spec("SHELL-11")
@pytest.mark.parametrize("case", COMMANDS)
async def test_what_was_shown_is_applied_undone_and_redone_exactly(place: str, case: str, workspace: Path) -> None:
    command, expected = COMMANDS[case]
    before = snapshot(workspace)
    meanwhile: list[str] = []
    approver = Applies(then=lambda: meanwhile.append(snapshot(workspace)))
    async with opened(workspace, approver) as (app, events):
        done = await app.call("Bash", {"command": command})
        assert done.ok, done.output
        (shown,) = approver.shown
        assert shown.data["dry_run"]["on"] == place
        assert {str(each["path"]): each["action"] for each in shown.data["changes"]} == expected
        assert meanwhile == [before]
        after = twin_of(Path(_untouched(workspace)), command)
        assert snapshot(workspace) == after
        assert done.meta["applied_from_dry_run"] == shown.dry_run.id
        assert [each.kind for each in events if each.kind.startswith("dry_run")] == ["dry_run_made", "dry_run_applied"]
        assert (done.undo is not None) == bool(expected)
        if done.undo is None:
            return
        app.approver = Says("once")
        assert (await app.call("Undo", {})).ok
        assert snapshot(workspace) == before
        assert (await app.call("Redo", {})).ok
        assert snapshot(workspace) == after


def _untouched(workspace: Path) -> str:
    """Return a fresh workspace of the same kind."""
    return str(furnish(workspace.parent / "fresh"))


async def test_a_dry_run_shows_lines_notes_what_is_binary_and_changes_nothing(place: str, workspace: Path) -> None:
    before = snapshot(workspace)
    command = "sed -i s/two/zwei/ a.txt; head -c 100 /dev/zero > blob; chmod +x run.sh; echo done"
    async with opened(workspace) as (app, events):
        shown = await app.dry_run("Bash", {"command": command})
    assert "-two\n+zwei\n" in shown.data["diff"]
    assert "created blob: binary or large, not shown" in shown.data["diff"]
    assert "mode changed run.sh: mode 644 -> 755" in shown.data["diff"]
    assert "done" in shown.output
    assert shown.output.count("3 paths would change") == 1
    assert shown.data["dry_run"]["on"] == place
    assert snapshot(workspace) == before
    assert [each.kind for each in events if each.kind.startswith("dry_run")] == ["dry_run_made", "dry_run_discarded"]


async def test_a_mode_is_shown_where_the_content_changed_too(workspace: Path) -> None:
    command = "echo more >> a.txt; chmod 600 a.txt; printf '#!/bin/sh\n' > new.sh; chmod 700 new.sh"
    async with opened(workspace) as (app, _events):
        shown = await app.dry_run("Bash", {"command": command})
    assert "+more\n" in shown.data["diff"]
    assert "mode changed a.txt: mode 644 -> 600\n" in shown.data["diff"]
    assert "executable new.sh: mode 700\n" in shown.data["diff"]


async def test_a_failing_and_an_endless_command_are_tried_and_applied_too(place: str, workspace: Path) -> None:
    async with opened(workspace) as (app, _):
        failed = await app.call("Bash", {"command": "echo partial > a.txt; exit 4"})
        ended = await app.call("Bash", {"command": "echo partial > b.txt; sleep 600", "timeout": 300})
    assert failed.error is not None
    assert failed.data["exit_code"] == 4
    assert (workspace / "a.txt").read_text() == "partial\n"
    assert ended.error is not None
    assert ended.error.code == "timeout"
    assert ended.undo is not None
    assert (workspace / "b.txt").read_text() == "partial\n"


async def test_the_command_does_not_run_again(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    force("layer", monkeypatch)
    async with opened(workspace) as (app, _):
        done = await app.call("Bash", {"command": "echo $$ $RANDOM $(date +%N) | tee stamp"})
    assert done.data["stdout"] == (workspace / "stamp").read_text()
    assert "the command did not run again" in done.output
    assert "stamp" in done.data["diff"]


async def test_a_no_drops_the_dry_run_and_an_empty_name_runs_it_anew(workspace: Path) -> None:
    before = snapshot(workspace)
    async with opened(workspace, _Refuses()) as (app, events):
        refused = await app.call("Bash", {"command": "rm a.txt"})
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert snapshot(workspace) == before
        assert [each.kind for each in events if each.kind.startswith("dry_run")] == [
            "dry_run_made",
            "dry_run_discarded",
        ]
        app.approver = Applies(dry_run="")
        anew = await app.call("Bash", {"command": "rm a.txt"})
        assert anew.ok
        assert "applied_from_dry_run" not in anew.meta
        assert not (workspace / "a.txt").exists()


class _Refuses:
    async def ask(self, question: Question) -> Answer:
        assert question.try_first is not None
        await question.try_first()
        return Answer("no", "I do not like it")


async def test_only_the_dry_run_that_was_seen_can_be_applied(workspace: Path) -> None:
    class Twice:
        async def ask(self, question: Question) -> Answer:
            assert question.try_first is not None
            first, _ = await question.try_first(), await question.try_first()
            assert first is not None
            assert first.dry_run is not None
            return Answer("once", dry_run=first.dry_run.id)

    async with opened(workspace, Twice()) as (app, _):
        done = await app.call("Bash", {"command": "rm a.txt"})
        app.approver = Applies(dry_run="dry_run_of_somebody_else")
        other = await app.call("Bash", {"command": "rm a.txt"})
    for each in (done, other):
        assert each.error is not None
        assert "is gone" in each.error.message
    assert (workspace / "a.txt").exists()


CHANGED_SINCE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "edited": ("rm a.txt", lambda ws: (ws / "a.txt").write_text("one\nmine\n"), "+mine"),
    "deleted": ("sed -i s/two/2/ a.txt", lambda ws: (ws / "a.txt").unlink(), "-two"),
    "made": ("echo x > new", lambda ws: (ws / "new").write_text("mine\n"), "+mine"),
    "mode": ("echo x >> run.sh; chmod 700 run.sh", lambda ws: (ws / "run.sh").chmod(0o640), "644 → 640"),
    "in a folder that goes": ("rm -r d", lambda ws: (ws / "d/e/mine").write_text("mine\n"), "d/e/mine"),
    "link": ("ln -sfn d link", lambda ws: ((ws / "link").unlink(), (ws / "link").symlink_to("mine")), "mine"),
    "folder made a link": ("rm -r d/e", lambda ws: ((ws / "d").rename(ws / "was"), (ws / "d").symlink_to("was")), "d"),
}


@pytest.mark.parametrize("case", CHANGED_SINCE)
async def test_what_somebody_changed_since_is_not_overwritten(place: str, case: str, workspace: Path) -> None:
    command, change, told = CHANGED_SINCE[case]
    states: list[str] = []
    approver = Applies(then=lambda: (change(workspace), states.append(snapshot(workspace))))
    async with opened(workspace, approver) as (app, events):
        done = await app.call("Bash", {"command": f"echo also > other; {command}"})
    assert done.error is not None, done.output
    assert told in done.error.message
    assert snapshot(workspace) == states[0]
    assert [each.kind for each in events if each.kind.startswith("dry_run")] == ["dry_run_made", "dry_run_discarded"]


async def test_what_changes_while_the_dry_run_runs_is_not_overwritten_either(place: str, workspace: Path) -> None:
    async with opened(workspace) as (app, _):

        def disturb(event: Event) -> None:
            if event.kind == "call_progress":
                (workspace / "a.txt").write_text("one\nmine\n")

        app.bus.subscribe(disturb)
        # Long enough for the line to be heard, and for the clock of the file system to go on.
        done = await app.call("Bash", {"command": "echo begun; sleep 0.3; echo its >> a.txt"})
    assert done.error is not None, done.output
    assert "a.txt changed since the dry run began" in done.error.message
    assert (workspace / "a.txt").read_text() == "one\nmine\n"


async def test_secrets_and_hooks_are_kept_from_a_dry_run(place: str, workspace: Path) -> None:
    if place == "copy beside":
        pytest.skip("Landlock alone covers no secrets")
    (workspace / ".env").write_text("canary")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    command = (
        "cat .env; echo evil > .git/hooks/pre-commit; git add -A . 2>&1; touch $HOME/x; cat $TMPDIR/dry_runs/*/*/*"
    )
    (workspace / "script").write_text(command)
    async with opened(workspace) as (app, _):
        shown = await app.dry_run("Bash", {"command": "bash script"})
    assert "canary" not in shown.data["diff"] + shown.output
    assert not any("hooks" in str(each["path"]) for each in shown.data["changes"])


async def test_no_dry_run_makes_a_hook_real(place: str, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    hook = workspace / ".git/hooks/pre-commit"
    # By its name, and through whatever way there may be to the copy itself.
    command = (
        "echo evil > .git/hooks/pre-commit; "
        "for d in $TMPDIR/dry_runs/*/0/upper $TMPDIR/../copy $TMPDIR/dry_runs/*/copy; do "
        "mkdir -p $d/.git/hooks && echo evil > $d/.git/hooks/pre-commit; done; echo x > new; true"
    )
    (workspace / "script").write_text(command)
    async with opened(workspace) as (app, _):
        done = await app.call("Bash", {"command": "bash script"})
    assert not hook.exists()
    if place == "copy beside":
        assert done.error is not None
        assert ".git/hooks" in done.error.message
        assert not (workspace / "new").exists()
    else:
        assert (workspace / "new").exists()


async def test_a_commit_is_applied_and_git_takes_it_back(place: str, workspace: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=workspace, check=True)
    command = "echo more >> a.txt; git -c user.name=a -c user.email=a@b commit -qam second"
    async with opened(workspace) as (app, _):
        done = await app.call("Bash", {"command": command})
        assert done.ok, done.output
        log = subprocess.run(["git", "log", "--format=%s"], cwd=workspace, capture_output=True, text=True, check=True)
        assert log.stdout.split() == ["second", "first"]
        assert not subprocess.run(["git", "status", "--short"], cwd=workspace, capture_output=True, check=True).stdout
        subprocess.run(["git", "fsck", "--strict"], cwd=workspace, check=True, capture_output=True)
        app.approver = Says("once")
        undone = await app.call("Undo", {})
    assert undone.ok, undone.output
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


async def test_a_dry_run_has_no_network_even_where_commands_have_it(place: str, workspace: Path) -> None:
    settings = Settings.parse({"sandbox": {"network": True}})
    command = "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 9), 1)\""
    async with opened(workspace, settings=settings) as (app, _):
        shown = await app.dry_run("Bash", {"command": command})
    assert "unreachable" in shown.data["stderr"] or "not supported" in shown.data["stderr"]


async def test_a_dry_run_writes_no_other_folder_that_commands_may_write(
    place: str, workspace: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "old").write_text("old\n")
    settings = Settings.parse({"sandbox": {"writable": [str(cache)]}})
    command = f"echo x > new; echo x > {cache}/made; echo y >> {cache}/old; rm -f {cache}/old"
    async with opened(workspace, settings=settings) as (app, _):
        shown = await app.dry_run("Bash", {"command": command})
        assert [each.name for each in cache.iterdir()] == ["old"]
        assert (cache / "old").read_text() == "old\n"
        if place != "layer":
            return
        assert {str(each["path"]) for each in shown.data["changes"]} == {"new", f"{cache}/made", f"{cache}/old"}
        done = await app.call("Bash", {"command": command})
    assert done.ok, done.output
    assert [each.name for each in cache.iterdir()] == ["made"]
    assert (workspace / "new").exists()


REFUSED = {
    "a pipe": ("mkfifo pipe", "pipe: it is not a file, link or folder"),
    "an owner": ("chown 12345 a.txt", "a.txt: its owner would change"),
    "a rule": ("echo x >> b.txt", "b.txt"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_could_not_be_undone_or_is_denied_is_not_applied(place: str, case: str, workspace: Path) -> None:
    if case == "an owner" and (os.geteuid() != 0 or place == "copy beside"):
        pytest.skip("only root gives files away, and not without a user namespace")
    command, told = REFUSED[case]
    before = snapshot(workspace)
    settings = Settings.parse({"permissions": {"deny": ["Edit(b.txt)"]}})
    async with opened(workspace, settings=settings) as (app, _):
        command = command if case != "a rule" else "f=b; python3 -c \"open('$f' + '.txt', 'a').write('x')\""
        done = await app.call("Bash", {"command": f"echo x > other; {command}; true"})
    if case == "a rule" and place != "copy beside":
        assert not (workspace / "b.txt").read_text().endswith("x")  # it could not even have a dry run
        return
    assert done.error is not None, done.output
    assert told in done.error.message
    assert snapshot(workspace) == before


async def test_two_dry_runs_at_once_keep_to_their_own_copies(place: str, workspace: Path) -> None:
    async with opened(workspace) as (app, _):
        commands = [f"sleep 0.0{9 - n}; echo {n} > made{n}; ls" for n in range(6)]
        results = await asyncio.gather(*(app.dry_run("Bash", {"command": each}) for each in commands))
    for n, shown in enumerate(results):
        assert [each["path"] for each in shown.data["changes"]] == [f"made{n}"]


async def test_where_nothing_contains_a_command_none_is_tried(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "abilities", lambda: Abilities(why_not="for a test"))
    before = snapshot(workspace)
    async with opened(workspace) as (app, _):
        shown = await app.dry_run("Bash", {"command": "rm a.txt"})
    assert shown.error is not None
    assert "nothing would keep it off the workspace (for a test)" in shown.error.message
    assert snapshot(workspace) == before


@pytest.mark.parametrize(("limit", "told"), [("files", "more than 5 files"), ("bytes", "more than 0 MB")])
async def test_a_workspace_too_large_for_a_plain_copy_is_refused_by_the_limit(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, limit: str, told: str
) -> None:
    from surehand.commands import dry_run_copies

    force("copy", monkeypatch)
    small = dry_run_copies.Limits(**{limit: 5})
    monkeypatch.setattr(dry_run_copies, "Limits", lambda: small)
    async with opened(workspace) as (app, _):
        shown = await app.dry_run("Bash", {"command": "rm a.txt"})
    assert shown.error is not None
    assert told in shown.error.message


async def test_beside_the_workspace_a_full_path_reaches_nothing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    force("copy beside", monkeypatch)
    before = snapshot(workspace)
    async with opened(workspace) as (app, _):
        written = await app.dry_run("Bash", {"command": f"echo x > {workspace}/a.txt"})
        others = await app.dry_run(
            "Bash",
            {
                "command": f"rm -f {workspace}/b.txt; mv {workspace}/d {workspace}/moved; ln -s x {workspace}/l;"
                f" truncate -s 0 {workspace}/a.txt; chmod 777 {workspace}/run.sh {workspace}/d; pwd"
            },
        )
    assert snapshot(workspace) == before
    assert written.data["exit_code"] != 0
    assert "cannot change. Name files from the working directory" in written.output
    assert written.data["changes"] == []
    assert "put back as it was" in others.output
    assert str(workspace / "run.sh") in others.output


async def test_a_dry_run_runs_in_the_directory_of_the_session(place: str, workspace: Path) -> None:
    async with opened(workspace) as (app, _):
        app.session.cwd = str(workspace / "d")
        done = await app.call("Bash", {"command": "echo x > here; echo y > ../there"})
    assert done.ok, done.output
    assert (workspace / "d/here").exists()
    assert (workspace / "there").exists()


async def test_settings_may_want_a_class_of_commands_tried_also_where_a_rule_allows_them(workspace: Path) -> None:
    settings = Settings.parse({"tools": {"Bash": {"custom": {"must_try": ["silent", "write"]}}}})
    approver = Says("once")
    rules = ["Bash(mv:*)", "Bash(make:*)", "Bash(cp:*)"]
    async with opened(workspace, approver, settings=settings, allow=rules) as (app, _):
        moved = await app.call("Bash", {"command": "mv a.txt c.txt"})
        await app.call("Bash", {"command": "ls"})
        app.approver = Nobody()
        alone = await app.call("Bash", {"command": "mv b.txt e.txt"})
    (question,) = approver.asked
    assert "the settings require a dry run" in question.decision.reason
    assert "c.txt" in question.text()
    assert moved.ok
    assert moved.meta["applied_from_dry_run"]
    assert (workspace / "c.txt").exists()
    assert alone.error is not None
    assert alone.error.code == "permission_denied"
    assert (workspace / "b.txt").exists()


async def test_what_must_be_tried_and_cannot_be_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "abilities", lambda: Abilities(why_not="for a test"))
    settings = Settings.parse({"tools": {"Bash": {"custom": {"must_try": ["silent"]}}}})
    async with opened(workspace, Says("once"), settings=settings) as (app, _):
        done = await app.call("Bash", {"command": "rm a.txt"})
    assert done.error is not None
    assert done.error.code == "tool_unavailable"
    assert (workspace / "a.txt").exists()


async def test_a_call_that_is_to_be_shown_first_is_asked_about_or_left_to_the_rules(workspace: Path) -> None:
    approver = Says("once")
    async with opened(workspace, approver, allow=["Bash(mv:*)"]) as (app, _):
        asked = await app.call("Bash", {"command": "mv a.txt c.txt"}, shown_first=True)
        assert len(approver.asked) == 1
        written = await app.call("Write", {"file_path": "new.txt", "content": "x\n"}, shown_first=True)
        assert len(approver.asked) == 2
        assert approver.asked[1].preview is not None
        app.approver = Nobody()
        allowed = await app.call("Bash", {"command": "mv b.txt e.txt"}, shown_first=True)
        refused = await app.call("Bash", {"command": "rm run.sh"}, shown_first=True)
    for each in (asked, allowed):
        assert each.ok
        assert each.meta["applied_from_dry_run"]
    assert written.ok
    assert (workspace / "new.txt").exists()
    assert refused.error is not None
    assert refused.error.code == "permission_denied"
    assert (workspace / "run.sh").exists()


async def test_a_cancelled_dry_run_leaves_nothing(place: str, workspace: Path) -> None:
    before = snapshot(workspace)
    async with opened(workspace) as (app, events):
        trying = asyncio.create_task(app.dry_run("Bash", {"command": "echo begun; echo x > a.txt; sleep 600"}))
        while not any(each.kind == "call_progress" for each in events):
            await asyncio.sleep(0.01)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
    assert snapshot(workspace) == before


async def test_no_command_can_put_itself_where_copies_lie(place: str, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "script").write_text(
        f"rm -rf $TMPDIR/dry_runs; mv $TMPDIR/dry_runs $TMPDIR/t; ln -sfn {outside} $TMPDIR/dry_runs"
    )
    async with scratch_app(workspace) as app:
        await app.call("Bash", {"command": "bash script"})
        shown = await app.dry_run("Bash", {"command": "echo x > made; echo $TMPDIR; ls -a $TMPDIR/dry_runs; true"})
        assert [each["path"] for each in shown.data["changes"]] == ["made"]
        assert list(outside.iterdir()) == []


AS_SOMEBODY = """
import asyncio, json, os, sys
from dataclasses import replace
from pathlib import Path
from changing import COMMANDS, furnish, snapshot
from surehand.sandbox.command import Abilities
from surehand.sandbox.linux import probe
from surehand.policy.approval import Nobody
from surehand.testing import scratch_app

real = probe.abilities()
places = {
    "layer": real,
    "copy": replace(real, overlay=False),
    "copy beside": Abilities(real.landlock, real.seccomp, why_not="for a test"),
}
shut = ("mkdir -p n/m; echo x > n/m/f; chmod 0 n/m/f n/m; echo y > seen; chmod 0 n", {})
cases = {name: COMMANDS[name] for name in json.loads(sys.argv[2])} | {"shut": shut}

async def main():
    found = []
    for place, abilities in places.items():
        probe.abilities = lambda: abilities
        for name, (command, _) in cases.items():
            folder = Path(sys.argv[1], f"{place} {name}")
            workspace, twin = furnish(folder / "ws"), furnish(folder / "twin")
            before = snapshot(workspace)
            async with scratch_app(workspace, allow=["Bash", "Edit"], approver=Nobody()) as app:
                done = await app.call("Bash", {"command": command}, shown_first=True)
                if done.data is None or not done.meta.get("applied_from_dry_run"):
                    found.append((place, name, done.output))
                    continue
                os.system(f"cd '{twin}' && {command}")
                if snapshot(workspace) != snapshot(twin):
                    found.append((place, name, "applied", snapshot(workspace), snapshot(twin)))
                undone = await app.call("Undo", {}) if name != "shut" else None
                if undone is not None and not undone.ok:
                    found.append((place, name, undone.output))
                if undone is not None and snapshot(workspace) != before:
                    found.append((place, name, "undone"))
                if name == "shut":
                    os.chmod(workspace / "n", 0o700)
                    os.chmod(workspace / "n/m", 0o700)
                    os.chmod(workspace / "n/m/f", 0o600)
                    if (workspace / "n/m/f").read_text() != "x\\n":
                        found.append((place, name, "content"))
    print(json.dumps(found))

asyncio.run(main())
"""


def test_an_ordinary_user_applies_and_undoes_the_same() -> None:
    if not (probe.abilities().overlay and probe.abilities().landlock):
        pytest.skip(f"not every kind of copy is to be had here: {probe.abilities().why_not}")
    chosen = ["change", "mode of a folder", "folder that cannot be written", "remove a folder", "folder becomes a link"]
    with somebody("ordinary user") as user:
        (user.folder / "work").mkdir()
        shutil.copy(Path(__file__).with_name("changing.py"), user.folder)
        user.give()
        words = (f"import sys; sys.path.insert(0, {str(user.folder)!r})\n{AS_SOMEBODY}", str(user.folder / "work"))
        path = {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}  # there is shfmt
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = user.start(*words, json.dumps(chosen), env=path, text=True, **pipes)
        said, problems = program.communicate(timeout=90)
    assert program.returncode == 0, problems[-3000:]
    assert json.loads(said.splitlines()[-1]) == []


async def test_what_a_dry_run_shows_holds_no_secret(workspace: Path) -> None:
    make = "git init -q && echo KEY=canary > .env && git add -f .env && git -c user.name=n -c user.email=e commit -qm m"
    subprocess.run(["bash", "-c", make], cwd=workspace, check=True)
    approver = Applies()
    async with opened(workspace, approver) as (app, _):
        done = await app.call("Bash", {"command": "git worktree add w HEAD && echo plain > w/b"})
    assert "+plain" in done.data["diff"]
    assert "canary" not in f"{approver.shown}{done.output}{done.data}"
