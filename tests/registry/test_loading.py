"""Tools from packages, modules and folders: loaded, reloaded, kept when the new file is broken."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand.core.tool import Tool
from surehand.policy import trust
from surehand.policy.approval import Answer, Question
from surehand.registry.loading import Loaded, Loader, entry_points
from surehand.registry.registry import Registry
from surehand.testing import scratch_app

GREET = """
from surehand.core.tool import tool

@tool(read_only=True)
def greet(name: str) -> str:
    "Greets somebody."
    return f"{word} {{name}}"
"""


def greeting(word: str) -> str:
    return GREET.replace("{word}", word).replace("{{name}}", "{name}")


def loader() -> tuple[Loader, Registry, list[Loaded]]:
    registry, reports = Registry(), list[Loaded]()
    return Loader(registry, reports.append), registry, reports


def run(registry: Registry, name: str, text: str) -> str:
    found = registry.get(name)
    assert isinstance(found, Tool)
    return found("x") if callable(found) else ""  # type: ignore[operator]


def test_a_file_gives_every_tool_in_it(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(greeting("hello"))
    (tmp_path / "_private.py").write_text("raise RuntimeError('not looked at')")
    (tmp_path / "notes.txt").write_text("not Python")
    load, registry, _ = loader()
    (found,) = load.load_folder(str(tmp_path))
    assert found.ok
    assert found.tools == ("greet",)
    assert run(registry, "greet", "x") == "hello x"


def test_a_list_named_tools_says_which(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(greeting("hi") + greeting("ho").replace("greet", "other") + "\nTOOLS = [other]\n")
    load, registry, _ = loader()
    load.load_folder(str(tmp_path))
    assert list(registry) == ["other"]


def test_a_changed_file_takes_the_place_of_the_old_and_an_unchanged_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "greet.py"
    path.write_text(greeting("hello"))
    load, registry, reports = loader()
    load.load_folder(str(tmp_path))
    before = registry.get("greet")
    assert load.load_folder(str(tmp_path)) == []
    path.write_text(greeting("goodbye"))
    load.load_folder(str(tmp_path))
    assert run(registry, "greet", "x") == "goodbye x"
    assert registry.get("greet") is not before
    assert len(reports) == 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("def greet(:\n", "greet.py:1: "),
        ("import nothing_of_this_name\n", "greet.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1\n", "it contains no tools"),
        ("raise SystemExit(3)\n", "greet.py:1: SystemExit: 3"),
        ("TOOLS = [1, 2]\n", "not a tool: 1, 2"),
        (greeting("x").replace('"Greets somebody."', ""), "description is missing"),
        ("\x00", "greet.py"),
    ],
)
def test_a_broken_file_keeps_the_old_tools_and_says_one_clear_thing(tmp_path: Path, broken: str, said: str) -> None:
    path = tmp_path / "greet.py"
    path.write_text(greeting("hello"))
    load, registry, reports = loader()
    load.load_folder(str(tmp_path))
    path.write_text(broken)
    (found,) = load.load_folder(str(tmp_path))
    assert said in found.problem
    assert "\n" not in found.problem
    assert found.tools == ("greet",)
    assert run(registry, "greet", "x") == "hello x"
    assert load.load_folder(str(tmp_path)) == [], "said once, not with every look"
    path.write_text(greeting("mended"))
    load.load_folder(str(tmp_path))
    assert run(registry, "greet", "x") == "mended x"
    assert [report.ok for report in reports] == [True, False, True]


def test_a_clash_with_another_tool_names_both_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(greeting("first"))
    (tmp_path / "b.py").write_text(greeting("second"))
    load, registry, _ = loader()
    first, second = load.load_folder(str(tmp_path))
    assert first.ok
    assert "the name 'greet' (of 'greet') is already the tool 'greet'" in second.problem
    assert run(registry, "greet", "x") == "first x"


def test_a_file_that_is_gone_takes_its_tools_along(tmp_path: Path) -> None:
    path = tmp_path / "greet.py"
    path.write_text(greeting("hello"))
    load, registry, _ = loader()
    load.load_folder(str(tmp_path))
    path.unlink()
    load.load_folder(str(tmp_path))
    assert list(registry) == []


def test_a_tool_taken_out_of_its_file_goes_while_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(greeting("hi") + greeting("ho").replace("greet", "other"))
    load, registry, _ = loader()
    load.load_folder(str(tmp_path))
    path.write_text(greeting("hi"))
    load.load_folder(str(tmp_path))
    assert list(registry) == ["greet"]


def test_an_unreadable_or_missing_folder_is_no_folder(tmp_path: Path) -> None:
    load, _, _ = loader()
    assert load.load_folder(str(tmp_path / "missing")) == []
    (tmp_path / "huge.py").write_text("#" * (1024 * 1024 + 1))
    (found,) = load.load_folder(str(tmp_path))
    assert "larger than" in found.problem


def test_a_module_path_gives_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_tool_module.py").write_text(greeting("hello") + "\ndef make():\n    return [greet]\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for path in ("sample_tool_module", "sample_tool_module:greet", "sample_tool_module:make"):
        load, registry, _ = loader()
        assert load.load_module(path).tools == ("greet",), path
    load, registry, _ = loader()
    assert "AttributeError" in load.load_module("sample_tool_module:nothing").problem
    assert "No module named" in load.load_module("no.such.module").problem
    assert list(registry) == []


@pytest.mark.spec("REG-6")
def test_installed_packages_offer_tools_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_plugin.py").write_text(greeting("plugged"))
    info = tmp_path / "sample_plugin-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nx = y:z\n\n[surehand.tools]\n# remark\nsample = sample_plugin\nbroken = no_such_module:x\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert list(entry_points("surehand.tools")) == [("sample", "sample_plugin"), ("broken", "no_such_module:x")]
    load, registry, _ = loader()
    good, bad = load.load_entry_points()
    assert good.tools == ("greet",)
    assert "no_such_module" in bad.problem
    assert "mcp__sample__greet" in registry


async def test_calls_under_way_finish_on_the_tool_they_started_with(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    source = """
import asyncio
from surehand.core.tool import tool
BEGAN, GO = asyncio.Event(), asyncio.Event()

@tool(read_only=True)
async def slow() -> str:
    "Waits."
    BEGAN.set()
    await GO.wait()
    return "old"
"""
    path.write_text(source)
    async with scratch_app(builtin=False) as app:
        app.loader.load_folder(str(tmp_path))
        old: Any = app.registry.get("slow")
        assert old is not None
        namespace = old.function.__globals__
        running = asyncio.create_task(app.call("slow"))
        await namespace["BEGAN"].wait()
        path.write_text(source.replace("    BEGAN.set()\n    await GO.wait()\n", "").replace('"old"', '"new"'))
        app.loader.load_folder(str(tmp_path))
        assert (await app.call("slow")).output == "new"
        namespace["GO"].set()
        assert (await running).output == "old"


async def test_a_call_that_waits_for_an_answer_runs_on_the_tool_it_started_with(tmp_path: Path) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow:
        async def ask(self, question: Question) -> Answer:
            asked.set()
            await answer.wait()
            return Answer("once")

    source = "from surehand.core.tool import tool\n\n@tool\ndef act() -> str:\n    'Acts.'\n    return 'old'\n"
    (tmp_path / "act.py").write_text(source)
    async with scratch_app(builtin=False, approver=Slow()) as app:
        app.loader.load_folder(str(tmp_path))
        running = asyncio.create_task(app.call("act"))
        await asked.wait()
        (tmp_path / "act.py").write_text(source.replace("'old'", "'new'"))
        app.loader.load_folder(str(tmp_path))
        answer.set()
        assert (await running).output == "old"
        assert (await app.call("act")).output == "new"
        assert app.registry.lifecycle.state("act") == "ready"


@pytest.mark.spec("REG-6")
async def test_a_watched_folder_is_reloaded_on_the_fly(tmp_path: Path) -> None:
    changed = asyncio.Event()
    registry = Registry()
    load = Loader(registry, lambda loaded: changed.set())
    (tmp_path / "greet.py").write_text(greeting("hello"))
    watching = asyncio.create_task(load.watch(str(tmp_path)))
    try:
        await asyncio.wait_for(changed.wait(), 60)
        changed.clear()
        (tmp_path / "greet.py").write_text(greeting("changed"))
        await asyncio.wait_for(changed.wait(), 60)
        assert run(registry, "greet", "x") == "changed x"
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_workspace_s_own_tools_load_only_once_it_is_trusted(tmp_path: Path) -> None:
    folder = tmp_path / ".surehand" / "tools"
    folder.mkdir(parents=True)
    (folder / "greet.py").write_text(greeting("hello"))
    async with scratch_app(tmp_path, builtin=False) as app:
        assert list(app.registry) == []
    trust.add_trust(str(tmp_path))
    async with scratch_app(tmp_path, builtin=False) as app:
        assert (await app.call("greet", {"name": "you"})).output == "hello you"
    (folder / "greet.py").write_text(greeting("changed behind your back"))
    async with scratch_app(tmp_path, builtin=False) as app:
        assert list(app.registry) == [], "other content is not what was trusted"


async def test_a_broken_tool_of_a_trusted_workspace_is_a_warning_and_no_end(tmp_path: Path) -> None:
    folder = tmp_path / ".surehand" / "tools"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("def x(:\n")
    (folder / "greet.py").write_text(greeting("hello"))
    trust.add_trust(str(tmp_path))
    async with scratch_app(tmp_path, builtin=False) as app:
        assert list(app.registry) == ["greet"]
        assert len(app.warnings) == 1
        assert "broken.py:1" in app.warnings[0]


async def test_a_tool_of_a_file_may_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "apart.py").write_text(
        "import os\nfrom surehand.core.tool import tool\n\n"
        '@tool(read_only=True, where="process")\ndef apart() -> int:\n    "Says its process."\n    return os.getpid()\n'
    )
    async with scratch_app(builtin=False) as app:
        app.loader.load_folder(str(tmp_path))
        result = await app.call("apart")
        assert result.ok, result.output
        assert result.data != os.getpid()
        figures = app.metrics.of("apart")
        assert figures is not None
        assert figures.resources.measured_calls == 1
        assert figures.resources.peak_memory_bytes > 1_000_000
