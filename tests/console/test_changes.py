"""The undo history through the API: listed, shown, previewed, taken back and brought back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.console.served import Served, serve_console

from surehand import Surehand

pytestmark = pytest.mark.spec("CON-1")


async def write(folder: Path, *contents: str, session: str = "one") -> None:
    """Write contents to a.txt one after the other, each a change."""
    async with Surehand(folder, session=session, allow=["Write"]) as app:
        for content in contents:
            if (folder / "a.txt").exists():
                await app.call("Read", {"file_path": "a.txt"})
            result = await app.call("Write", {"file_path": "a.txt", "content": content})
            assert result.ok, result.output


async def listed(served: Served, folder: Path, query: str = "") -> list[dict[str, Any]]:
    return (await served.get(f"/api/changes?workspace={folder}{query}"))["changes"]


async def carry_out(served: Served, folder: Path, verb: str, **what: Any) -> dict[str, Any]:
    wanted = {"workspace": str(folder), **what}
    shown = await served.post(f"/api/{verb}", wanted | {"dry_run": True})
    assert shown["ok"], shown
    return await served.post(f"/api/{verb}", wanted | {"digest": shown["digest"]})


async def test_a_change_is_listed_shown_undone_and_redone(tmp_path: Path) -> None:
    await write(tmp_path, "one\n", "two\n")
    async with serve_console() as served:
        (workspace,) = (await served.get("/api/workspaces"))["workspaces"]
        newest, oldest = await listed(served, tmp_path)
        whole = await served.get(f"/api/changes/{newest['id']}?workspace={tmp_path}")
        await carry_out(served, tmp_path, "undo", change_id=newest["id"])
        undone = (tmp_path / "a.txt").read_text()
        states = {each["id"]: each["state"] for each in await listed(served, tmp_path)}
        await carry_out(served, tmp_path, "redo", change_id=newest["id"])
    assert workspace == {"path": str(tmp_path), "running": False}
    assert oldest["files"][0]["action"] == "created"
    assert "-one\n+two" in whole["diff"]
    assert undone == "one\n"
    assert states[newest["id"]] == "undone"
    assert (tmp_path / "a.txt").read_text() == "two\n"


async def test_a_whole_session_and_everything_after_a_point_are_taken_back(tmp_path: Path) -> None:
    await write(tmp_path, "one\n", "two\n", "three\n")
    async with serve_console() as served:
        changes = await listed(served, tmp_path)
        await carry_out(served, tmp_path, "undo", to=changes[-1]["id"], all_sessions=True)
        after_point = (tmp_path / "a.txt").read_text()
        await carry_out(served, tmp_path, "undo", session="session_one")
    assert after_point == "one\n"
    assert not (tmp_path / "a.txt").exists()


async def test_nothing_is_written_before_a_preview_or_when_it_would_look_different_by_now(tmp_path: Path) -> None:
    await write(tmp_path, "one\n", "two\n")
    async with serve_console() as served:
        wanted = {"workspace": str(tmp_path), "session": "session_one"}
        shown = await served.post("/api/undo", wanted | {"dry_run": True})
        assert (tmp_path / "a.txt").read_text() == "two\n"
        await served.post("/api/undo", wanted, status=400)
        await write(tmp_path, "three\n")
        refused = await served.post("/api/undo", wanted | {"digest": shown["digest"]}, status=409)
        await served.post("/api/undo", {"workspace": str(tmp_path), "force": True, "digest": ""}, status=400)
    assert "something has changed" in refused["error"]
    assert refused["preview"]["ok"]
    assert (tmp_path / "a.txt").read_text() == "three\n"


async def test_a_conflict_is_shown_before_anything_is_written_and_can_be_merged_or_forced(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(20)]
    await write(tmp_path, "".join(lines), "".join(["FIRST\n", *lines[1:]]))
    async with serve_console() as served:
        newest = (await listed(served, tmp_path))[0]
        mine = "".join(["FIRST\n", *lines[1:-1], "mine\n"])
        (tmp_path / "a.txt").write_text(mine)
        wanted = {"workspace": str(tmp_path), "change_id": newest["id"], "dry_run": True}
        conflict = await served.post("/api/undo", wanted)
        merged = await served.post("/api/undo", wanted | {"merge": True})
        assert (tmp_path / "a.txt").read_text() == mine
        await carry_out(served, tmp_path, "undo", change_id=newest["id"], merge=True)
    assert not conflict["ok"]
    assert "mine" in conflict["error"]["details"]["diff"]
    assert merged["ok"]
    assert (tmp_path / "a.txt").read_text() == "".join([*lines[:-1], "mine\n"])


async def test_a_deny_rule_holds_for_the_console_too(tmp_path: Path) -> None:
    await write(tmp_path, "one\n")
    from surehand.state import locations

    settings = Path(locations.user_settings())
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[permissions]\ndeny = ["Undo"]\n')
    async with serve_console() as served:
        shown = await served.post("/api/undo", {"workspace": str(tmp_path), "change_id": "1", "dry_run": True})
    assert not shown["ok"]
    assert shown["error"]["code"] == "permission_denied"
    assert (tmp_path / "a.txt").exists()


async def test_only_folders_that_have_state_can_be_named(tmp_path: Path) -> None:
    async with serve_console() as served:
        assert (await served.client.get(f"/api/changes?workspace={tmp_path}")).status_code == 404
        await served.post("/api/undo", {"workspace": str(tmp_path), "change_id": "1", "dry_run": True}, status=404)
        assert (await served.client.get("/api/changes")).status_code == 404


async def test_the_history_is_pruned_to_a_size(tmp_path: Path) -> None:
    await write(tmp_path, *(f"{number}" * 50_000 for number in range(4)))
    async with serve_console() as served:
        before = await served.get(f"/api/changes?workspace={tmp_path}")
        done = await served.post("/api/history/prune", {"workspace": str(tmp_path), "keep_bytes": 0})
        after = await served.get(f"/api/changes?workspace={tmp_path}")
    assert done["dropped"] > 0
    assert after["size_bytes"] < before["size_bytes"]
    assert len(after["changes"]) < len(before["changes"])
    assert after["dropped"].endswith("dropped: the history was pruned to 0 MB")
