"""Questions found before a call is made, for whoever can answer only later, and approvers for one call."""

from __future__ import annotations

from pathlib import Path

from surehand import Surehand, ToolCall
from surehand.policy.approval import Answer, Question
from surehand.testing import Says


async def test_what_would_be_asked_is_told_and_nothing_runs(tmp_path: Path) -> None:
    async with Surehand(tmp_path) as app:
        call = ToolCall("Bash", {"command": "touch made"}, source="model")
        question = await app.executor.find_question(call, app.session, app.selection)
        assert question is not None
        assert "touch made" in question.text()
        assert not (tmp_path / "made").exists()
        again = await app.executor.find_question(call, app.session, app.selection)
        assert again is not None
        assert again.digest == question.digest


async def test_a_question_about_an_edit_shows_its_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with Surehand(tmp_path) as app:
        await app.call("Read", {"file_path": "a.txt"})
        call = ToolCall("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
        question = await app.executor.find_question(call, app.session, app.selection)
        assert question is not None
        assert question.preview is not None
        assert "+two" in question.preview.diff


async def test_what_runs_or_fails_without_an_answer_has_no_question(tmp_path: Path) -> None:
    async with Surehand(tmp_path, allow=["Bash(touch *)"]) as app:
        for name, args in (
            ("Glob", {"pattern": "*"}),
            ("Bash", {"command": "touch made"}),
            ("Bash", {"nonsense": 1}),
            ("Edit", {"file_path": "missing.txt", "old_string": "a", "new_string": "b"}),
            ("Nothing", {}),
        ):
            assert await app.executor.find_question(ToolCall(name, args), app.session, app.selection) is None


async def test_an_approver_of_one_call_answers_for_that_call_alone(tmp_path: Path) -> None:
    async with Surehand(tmp_path) as app:
        call, yes = ToolCall("Bash", {"command": "touch made"}), Says("once")
        assert (await app.executor.run(call, app.session, app.selection, approver=yes)).ok
        assert [each.call.id for each in yes.asked] == [call.id]
        refused = await app.call("Bash", {"command": "touch other"})
        assert refused.error is not None
        assert refused.error.code == "permission_denied"


async def test_an_approver_of_one_call_cannot_allow_what_a_rule_denies(tmp_path: Path) -> None:
    from surehand import Settings
    from surehand.core.settings import PermissionSettings

    settings = Settings(permissions=PermissionSettings(deny=("Bash(touch *)",)))
    async with Surehand(tmp_path, settings=settings) as app:
        yes = Says("once")
        call = ToolCall("Bash", {"command": "touch made"})
        result = await app.executor.run(call, app.session, app.selection, approver=yes)
        assert not result.ok
        assert yes.asked == []


async def test_a_file_that_changes_while_an_edit_is_asked_about_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")

    class Meanwhile(Says):
        async def ask(self, question: Question) -> Answer:
            assert question.preview is not None
            assert "+two" in question.preview.diff
            path.write_text("one, and more\n")
            return await super().ask(question)

    async with Surehand(tmp_path, approver=Meanwhile()) as app:
        await app.call("Read", {"file_path": "a.txt"})
        result = await app.call("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
        assert result.error is not None
        assert result.error.details["number"] == 7
        assert path.read_text() == "one, and more\n"


async def test_an_edit_that_is_asked_about_is_shown_and_told_with_the_same_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "link.txt").symlink_to("a.txt")
    says = Says()
    async with Surehand(tmp_path, approver=says) as app:
        for name in ("a.txt", "link.txt"):
            await app.call("Read", {"file_path": name})
            old, new = ("one", "1") if name == "a.txt" else ("1", "one")
            result = await app.call("Edit", {"file_path": name, "old_string": old, "new_string": new})
            shown = says.asked[-1].preview
            assert shown is not None
            assert result.data["diff"] == shown.diff
            assert f"+++ {tmp_path / name}" in shown.diff
