"""Tools made at run time: checked, tried, asked about with their source, contained, versioned, rolled back."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from surehand.app import Surehand
from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.history.history import HISTORY
from surehand.testing import Says, scratch_app
from surehand.tools.tool_create import TOOLS

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
COUNT = "def run(text):\n    return {'words': len(text.split())}\n"


READ = Tool(name="Read", description="A tool nobody made", run=lambda args, ctx: "", args={"type": "object"})


def opened(workspace: Path | None = None, **options: Any) -> AbstractAsyncContextManager[Surehand]:
    return scratch_app(workspace, tools=[*TOOLS, READ], builtin=False, **options)


def definition(**changes: Any) -> dict[str, Any]:
    made = {"name": "count_words", "description": "Counts words.", "input_schema": SCHEMA, "source": COUNT}
    return {**made, **changes}


async def create(app: Surehand, **changes: Any) -> ToolResult:
    return await app.call("ToolCreate", definition(**changes))


async def test_a_made_tool_is_called_like_any_other() -> None:
    async with opened() as app:
        made = await create(app, try_args={"text": "a b"})
        assert made.ok, made.output
        assert made.data["version"] == 1
        assert made.data["tried"] == {"words": 2}
        result = await app.call("count_words", {"text": "one two three"})
        assert result.data == {"words": 3}
        assert (await app.call("mcp__made__count_words", {"text": "x"})).data == {"words": 1}
        wrong = await app.call("count_words", {"more": 1})
        assert wrong.error is not None
        assert wrong.error.code == "invalid_args"


async def test_repaired_arguments_reach_the_tool_repaired() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "integer"}}, "required": ["text"]}
    async with opened() as app:
        await create(app, input_schema=schema, source="def run(text):\n    return text + 1\n")
        result = await app.call("count_words", {"text": "41"})
        assert result.data == 42, result.output
        assert result.meta["repaired"]


async def test_the_user_sees_the_source_and_may_say_no() -> None:
    approver = Says("no", "I do not like it")
    async with opened(approver=approver) as app:
        refused = await create(app)
        assert refused.error is not None
        assert refused.error.code == "permission_denied"
        assert app.registry.get("count_words") is None
        (question,) = approver.asked
        assert question.preview is not None
        assert COUNT in question.preview.text


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"source": "def run(text:\n"}, "source, line 1"),
        ({"source": "x = 1"}, "defines no function `run`"),
        ({"source": "def run(other):\n    pass"}, "`run` takes no parameter 'text'"),
        ({"source": "def run(text, more):\n    pass"}, "`run` needs 'more', but the schema does not require it"),
        ({"source": "def run(text, /):\n    pass"}, "positional-only"),
        ({"source": "def run(text):\n    pass\n" + "#" * 200_000}, "at most 200,000"),
        ({"input_schema": {"type": "array"}}, '"type": "object"'),
        ({"input_schema": {"type": "object", "properties": 5}}, "properties"),
        ({"name": "bad\u202ename"}, "invisible character"),
        ({"description": "   "}, "description is empty"),
    ],
)
async def test_every_fault_of_a_definition_is_named_and_nobody_is_asked(changes: dict[str, Any], fault: str) -> None:
    approver = Says("once")
    async with opened(approver=approver) as app:
        result = await create(app, **changes)
        assert result.error is not None
        assert fault in result.error.message
        assert approver.asked == []


async def test_a_taken_name_is_refused_with_what_to_do() -> None:
    async with opened() as app:
        result = await create(app, name="Read")
        assert result.error is not None
        assert "taken by 'Read'" in result.error.message
        assert (await create(app)).ok
        again = await create(app)
        assert again.error is not None
        assert "ToolUpdate" in again.error.hint


async def test_a_try_that_fails_registers_nothing() -> None:
    async with opened() as app:
        result = await create(app, source="def run(text):\n    return 1 / 0\n", try_args={"text": "a"})
        assert result.error is not None
        assert "ZeroDivisionError" in result.error.message
        assert "nothing was registered" in result.error.message
        assert app.registry.get("count_words") is None
        odd = await create(app, try_args={"text": 1})
        assert odd.error is not None
        assert odd.error.code == "invalid_args"


async def test_a_made_tool_that_raises_prints_or_exits_is_a_structured_error() -> None:
    async with opened() as app:
        source = (
            "import sys\ndef run(text):\n    print('noise')\n    sys.stderr.write('more')\n    raise KeyError(text)\n"
        )
        await create(app, source=source)
        result = await app.call("count_words", {"text": "key"})
        assert result.error is not None
        assert "KeyError: 'key'" in result.error.message
        assert "noise" in result.error.details["printed"]
        await app.call("ToolUpdate", {"name": "count_words", "source": "import os\ndef run(text):\n    os._exit(7)\n"})
        gone = await app.call("count_words", {"text": "x"})
        assert gone.error is not None
        assert "exit code 7 and no result" in gone.error.message


async def test_what_it_prints_is_not_its_result_and_async_works() -> None:
    async with opened() as app:
        source = "async def run(text):\n    print('{\"value\": 1}')\n    return text\n"
        await create(app, source=source)
        assert (await app.call("count_words", {"text": "real"})).output == "real"


async def test_it_runs_where_nothing_can_be_written_read_in_secret_or_reached(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("visible")
    (tmp_path / ".env").write_text("SECRET=1")
    source = """
import os, socket
def run(text):
    found = {"read": open("data.txt").read()}
    for name, act in {
        "write": lambda: open("new.txt", "w").write("x"),
        "change": lambda: open("data.txt", "a").write("x"),
        "secret": lambda: open(".env").read() or 1 / 0,
        "network": lambda: socket.create_connection(("127.0.0.1", 9), 1),
        "key": lambda: os.environ["OPENAI_API_KEY"],
    }.items():
        try:
            act()
            found[name] = "possible"
        except Exception as problem:
            found[name] = type(problem).__name__
    return found
"""
    async with opened(tmp_path) as app:
        await create(app, source=source)
        result = await app.call("count_words", {"text": ""})
        assert result.ok, result.output
        assert result.data["read"] == "visible"
        assert "possible" not in {name: said for name, said in result.data.items() if name != "read"}.values(), (
            result.data
        )
        assert not (tmp_path / "new.txt").exists()
        assert (tmp_path / "data.txt").read_text() == "visible"


async def test_one_that_changes_files_asks_at_every_call(tmp_path: Path) -> None:
    approver = Says("once")
    async with opened(tmp_path, approver=approver) as app:
        source = "def run(text):\n    open('out.txt', 'w').write(text)\n    return 'ok'\n"
        assert (await create(app, source=source, changes_files=True)).ok
        asked = len(approver.asked)
        assert (await app.call("count_words", {"text": "written"})).ok
        assert len(approver.asked) == asked + 1
        assert (tmp_path / "out.txt").read_text() == "written"


@pytest.mark.spec("REG-9")
async def test_updates_are_versions_and_can_be_rolled_back() -> None:
    async with opened() as app:
        await create(app)
        upper = "def run(text):\n    return text.upper()\n"
        updated = await app.call("ToolUpdate", {"name": "count_words", "source": upper, "description": "Shouts."})
        assert updated.data["versions"] == [1, 2]
        assert (await app.call("count_words", {"text": "a"})).output == "A"
        info = app.registry.info("count_words")
        assert info is not None
        assert (info.description, info.version) == ("Shouts.", "2.0.0")
        back = await app.call("ToolUpdate", {"name": "count_words", "to_version": 1})
        assert back.ok
        assert (await app.call("count_words", {"text": "a"})).data == {"words": 1}
        missing = await app.call("ToolUpdate", {"name": "count_words", "to_version": 9})
        assert missing.error is not None
        assert "There are 1, 2" in missing.error.hint


async def test_an_update_shows_its_diff_and_a_failing_one_leaves_the_old() -> None:
    approver = Says("once")
    async with opened(approver=approver) as app:
        await create(app)
        broken = await app.call(
            "ToolUpdate",
            {"name": "count_words", "source": "def run(text):\n    return nope\n", "try_args": {"text": "a"}},
        )
        assert not broken.ok
        assert approver.asked[-1].preview is not None
        assert "+    return nope" in approver.asked[-1].preview.diff
        assert (await app.call("count_words", {"text": "a"})).data == {"words": 1}


async def test_removed_tools_are_gone_and_can_be_brought_back() -> None:
    async with opened() as app:
        await create(app)
        assert (await app.call("ToolRemove", {"name": "count_words"})).ok
        assert app.registry.get("count_words") is None
        assert not (await app.call("ToolRemove", {"name": "count_words"})).ok
        assert (await app.call("ToolUpdate", {"name": "count_words", "to_version": 1})).ok
        assert (await app.call("count_words", {"text": "a"})).ok


@pytest.mark.parametrize("tool", ["ToolUpdate", "ToolRemove"])
async def test_only_made_tools_can_be_changed_or_removed(tool: str) -> None:
    async with opened() as app:
        result = await app.call(tool, {"name": "Read"})
        assert result.error is not None
        assert "was not made with ToolCreate" in result.error.message


async def test_made_tools_are_there_again_in_a_later_session(tmp_path: Path) -> None:
    async with opened(tmp_path, keep_state=True) as app:
        await create(app)
        await create(app, name="second")
        await app.call("ToolRemove", {"name": "second"})
    async with opened(tmp_path, keep_state=True) as app:
        assert (await app.call("count_words", {"text": "a b"})).data == {"words": 2}
        assert app.registry.get("second") is None
        assert (await app.call("ToolUpdate", {"name": "count_words", "description": "New words."})).data["version"] == 2


async def test_a_made_tool_outside_the_allow_list_cannot_be_called() -> None:
    async with opened(tool_allow=["ToolCreate"]) as app:
        result = await create(app)
        assert "outside this session's allow-list" in result.output
        refused = await app.call("count_words", {"text": "a"})
        assert refused.error is not None
        assert refused.error.code == "tool_unavailable"


async def test_a_record_that_was_damaged_is_no_end_of_the_application(tmp_path: Path) -> None:
    async with opened(tmp_path, keep_state=True) as app:
        await create(app)
        await create(app, name="second")
        folder = Path(str(app.session.state_dir)) / "made_tools"
    first, second = sorted(folder.iterdir())
    first.write_text("{ not json")
    second.write_text(second.read_text().replace('"current": 1', '"current": 9'))
    (folder / "stray.json").write_text('{"name": "x", "current": 1, "versions": [{"odd": 1}]}')
    async with opened(tmp_path, keep_state=True) as app:
        assert (await create(app, name="third")).ok
        assert app.registry.get("second") is None


async def test_what_a_made_tool_changed_can_be_taken_back(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("old")
    source = "def run(text):\n    open('notes.txt', 'w').write(text)\n    return 'written'\n"
    async with opened(tmp_path) as app:
        await create(app, source=source, changes_files=True)
        result = await app.call("count_words", {"text": "new"})
        assert result.output == "written"
        assert (tmp_path / "notes.txt").read_text() == "new"
        assert result.undo is not None
        [change] = app.session.keep(HISTORY).changes()
        assert (change.tool, [each.path for each in change.files]) == ("count_words", [str(tmp_path / "notes.txt")])


async def test_a_made_tool_is_held_to_what_a_rule_denies_to_write(tmp_path: Path) -> None:
    (tmp_path / "old.cfg").write_text("old")
    source = "def run(text):\n    return open(text, 'w').write('evil')\n"
    settings = Settings.parse({"permissions": {"deny": ["Edit(*.cfg)"]}})
    async with opened(tmp_path, settings=settings) as app:
        await create(app, source=source, changes_files=True)
        assert not (await app.call("count_words", {"text": "old" + ".cfg"})).ok
        made = await app.call("count_words", {"text": "new.cfg"})
        assert made.error is not None
        assert "no command may" in made.error.message
    assert (tmp_path / "old.cfg").read_text() == "old"
    assert not (tmp_path / "new.cfg").exists()


@pytest.mark.parametrize("name", ["mcp__github__push", "mcp__x", "github:push"])
async def test_a_made_tool_may_not_look_like_one_of_an_mcp_server(name: str) -> None:
    async with opened() as app:
        refused = await create(app, name=name)
        assert refused.error is not None
        assert refused.error.code == "invalid_args"
        assert "MCP server" in refused.output
        assert name not in app.registry
