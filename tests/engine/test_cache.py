"""Results used again: only while nothing they depend on has changed, never for calls with effects."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surehand.core.call import ToolResult
from surehand.core.effects import ReadPath
from surehand.core.errors import RegistrationError, ToolFailure
from surehand.core.settings import EngineSettings, Settings
from surehand.core.tool import Tool, tool
from surehand.engine.cache import CACHE, ResultCache
from surehand.testing import scratch_app

CACHED = Settings(engine=EngineSettings(cache=True))


class Reader:
    """A tool that reads one file and counts how often it really did."""

    def __init__(self, **options: Any) -> None:
        self.runs = 0
        settings: dict[str, Any] = {
            "read_only": True,
            "effects": lambda args, ctx: [ReadPath(ctx.resolve(args["path"]))],
            **options,
        }
        self.tool = Tool(name="reader", description="Reads", run=self.run, args={"type": "object"}, **settings)

    async def run(self, args: Any, ctx: Any) -> str:
        self.runs += 1
        return Path(ctx.resolve(args["path"])).read_text()


def settled(path: Path, text: str) -> None:
    """Write a file and let its status grow old enough to prove something."""
    path.write_text(text)
    while time.time_ns() - path.stat().st_ctime_ns < 60_000_000:
        time.sleep(0.01)


async def test_the_same_read_of_an_unchanged_file_is_answered_from_the_cache(tmp_path: Path) -> None:
    reader = Reader()
    settled(tmp_path / "a", "one")
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        first, second = await app.call("reader", {"path": "a"}), await app.call("reader", {"path": "a"})
        assert (first.output, second.output, reader.runs) == ("one", "one", 1)
        assert (first.meta["cached"], second.meta["cached"]) == (False, True)
        assert first.meta["call_id"] != second.meta["call_id"]
        figures = app.metrics.of("reader")
        assert figures is not None
        assert (figures.cache_hits, figures.cache_misses) == (1, 1)


async def test_a_changed_file_is_read_again_even_with_its_old_times(tmp_path: Path) -> None:
    reader = Reader()
    settled(tmp_path / "a", "one")
    before = (tmp_path / "a").stat()
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        await app.call("reader", {"path": "a"})
        settled(tmp_path / "a", "two")
        os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await app.call("reader", {"path": "a"})).output == "two"


async def test_a_file_written_a_moment_ago_is_not_kept(tmp_path: Path) -> None:
    reader = Reader()
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        for text in ("one", "two", "six"):
            (tmp_path / "a").write_text(text)
            assert (await app.call("reader", {"path": "a"})).output == text


async def test_other_arguments_and_another_directory_are_other_results(tmp_path: Path) -> None:
    reader = Reader()
    (tmp_path / "sub").mkdir()
    settled(tmp_path / "a", "top")
    settled(tmp_path / "sub" / "a", "below")
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        assert (await app.call("reader", {"path": "a"})).output == "top"
        app.session.cwd = str(tmp_path / "sub")
        assert (await app.call("reader", {"path": "a"})).output == "below"
        assert (await app.call("reader", {"path": "../a"})).output == "top"


async def test_nothing_is_kept_of_calls_that_may_change_things_fail_or_depend_on_the_unknown(tmp_path: Path) -> None:
    settled(tmp_path / "a", "one")

    async def fails(args: Any, ctx: Any) -> str:
        reader.runs += 1
        raise ToolFailure("no")

    for options in (
        {"read_only": False},
        {"effects": None},
        {"effects": lambda args, ctx: []},
        {"effects": lambda args, ctx: [ReadPath(ctx.resolve("."), recursive=True)]},
        {"effects": lambda args, ctx: [ReadPath(ctx.resolve("."))]},
    ):
        reader = Reader(**options)
        async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
            await app.call("reader", {"path": "a"})
            await app.call("reader", {"path": "a"})
            assert reader.runs == 2, options
    reader = Reader()
    failing = Tool(
        name="f", description="Fails", run=fails, args={"type": "object"}, read_only=True, effects=reader.tool.effects
    )
    async with scratch_app(tmp_path, tools=[failing], builtin=False, settings=CACHED) as app:
        await app.call("f", {"path": "a"})
        await app.call("f", {"path": "a"})
        assert reader.runs == 2


async def test_a_tool_may_say_itself_what_its_results_depend_on(tmp_path: Path) -> None:
    state = {"version": 1}
    reader = Reader(depends_on=lambda args, ctx: state)
    settled(tmp_path / "a", "one")
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        await app.call("reader", {"path": "a"})
        await app.call("reader", {"path": "a"})
        assert reader.runs == 1
        state["version"] = 2
        await app.call("reader", {"path": "a"})
        assert reader.runs == 2


async def test_a_denied_call_is_not_answered_from_the_cache(tmp_path: Path) -> None:
    reader = Reader()
    settled(tmp_path / "a", "one")
    async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
        await app.call("reader", {"path": "a"})
        (tmp_path / ".env").write_text("SECRET=1")
        denied = await app.call("reader", {"path": ".env"})
        assert denied.error is not None
        assert denied.error.code == "permission_denied"


async def test_a_session_starts_with_an_empty_cache(tmp_path: Path) -> None:
    reader = Reader()
    settled(tmp_path / "a", "one")
    for runs in (1, 2):
        async with scratch_app(tmp_path, tools=[reader.tool], builtin=False, settings=CACHED) as app:
            await app.call("reader", {"path": "a"})
            assert reader.runs == runs
            assert len(app.session.keep(CACHE)) == 1


def test_the_cache_is_bounded_in_number_size_and_age() -> None:
    now = 0.0
    cache = ResultCache(entries=3, size_limit=100, age_limit_s=10, clock=lambda: now)
    for key in "abcd":
        cache.put(key, 1, ToolResult(output="x" * 20))
    assert [cache.get(key, 1) is not None for key in "abcd"] == [False, True, True, True]
    cache.get("b", 1)
    cache.put("e", 1, ToolResult(output="x" * 20))
    assert cache.get("b", 1) is not None, "what was used stays longer"
    assert cache.get("c", 1) is None
    cache.put("big", 1, ToolResult(output="x" * 60))
    assert cache.get("big", 1) is None
    now = 11.0
    assert cache.get("b", 1) is None
    assert cache.get("e", 2) is None, "what it depends on has changed"


@pytest.mark.spec("ENG-6")
async def test_a_pure_tool_says_so_and_is_cached_without_any_setting() -> None:
    runs: list[int] = []

    @tool(pure=True)
    async def square(number: int) -> int:
        "Squares."
        runs.append(number)
        return number * number

    async with scratch_app(tools=[square], builtin=False) as app:
        results = [await app.call("square", {"number": number}) for number in (3, 3, 4)]
        assert [result.data for result in results] == [9, 9, 16]
        assert [result.meta["cached"] for result in results] == [False, True, False]
        assert runs == [3, 4]
        with pytest.raises(RegistrationError, match="only reads"):
            app.register(replace(square, name="other", read_only=False))


@pytest.mark.spec("ENG-6")
async def test_the_next_process_of_a_session_uses_results_again_where_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    settled(tmp_path / "ws" / "a", "one")
    settled(tmp_path / "ws" / "b", "one")

    async def read(session: str) -> list[tuple[str, bool]]:
        reader = Reader()
        options: dict[str, Any] = {"tools": [reader.tool], "builtin": False, "settings": CACHED, "keep_state": True}
        async with scratch_app(tmp_path / "ws", session=session, **options) as app:
            results = [await app.call("reader", {"path": name}) for name in ("a", "b")]
        return [(result.output, result.meta["cached"]) for result in results]

    assert await read("work") == [("one", False), ("one", False)]
    settled(tmp_path / "ws" / "b", "two")
    assert await read("work") == [("one", True), ("two", False)]
    assert await read("other") == [("one", False), ("two", False)]
    (left,) = (tmp_path / "home").rglob("work.results")
    assert left.stat().st_mode & 0o077 == 0
    left.write_text("nonsense")
    assert await read("work") == [("one", False), ("two", False)]
