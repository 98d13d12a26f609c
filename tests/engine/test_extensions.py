"""Extensions and shell hooks: they see, change, wrap and veto; their failures stay theirs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surehand.app import Surehand
from surehand.core.call import ToolCall, ToolResult
from surehand.core.effects import WritePath
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.events import Event
from surehand.core.settings import HookSettings, Settings
from surehand.core.tool import Tool, ToolInfo, tool
from surehand.engine.extensions import Extension
from surehand.testing import scratch_app


@tool(read_only=True)
async def echo(text: str) -> str:
    "Says it back."
    return text


@tool(read_only=True)
async def other(text: str = "") -> str:
    "Another tool."
    return f"other {text}"


class Named(Extension):
    """An extension that only has a name, for tests to fill in."""

    def __init__(self, name: str = "test", **options: Any) -> None:
        self.name = name
        for key, value in options.items():
            setattr(self, key, value)


def opened(*extensions: Extension, **options: Any) -> Any:
    class Opened:
        async def __aenter__(self) -> Surehand:
            self.scratch = scratch_app(tools=[echo, other], builtin=False, **options)
            app = await self.scratch.__aenter__()
            for extension in extensions:
                app.extend(extension)
            return app

        async def __aexit__(self, *problem: Any) -> None:
            await self.scratch.__aexit__(*problem)

    return Opened()


def failures(app: Surehand) -> list[Event]:
    found: list[Event] = []
    app.bus.subscribe(lambda event: found.append(event) if event.kind == "extension_failed" else None)
    return found


class Shouting(Extension):
    """Changes arguments and results."""

    name = "shouting"

    async def before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any] | None:
        return {**call.args, "text": call.args["text"].upper()}

    async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
        return replace(result, output=result.output + "!")


async def test_arguments_and_results_can_be_changed() -> None:
    async with opened(Shouting()) as app:
        assert (await app.call("echo", {"text": "hello"})).output == "HELLO!"


async def test_registering_one_is_an_event_and_its_name_must_be_new() -> None:
    async with opened() as app:
        heard: list[Event] = []
        app.bus.subscribe(heard.append)
        app.extend(Shouting())
        assert [event.data["name"] for event in heard if event.kind == "extension_registered"] == ["shouting"]
        with pytest.raises(SurehandError, match="already registered"):
            app.extend(Shouting())
        with pytest.raises(SurehandError, match="needs a name"):
            app.extend(Extension())


async def test_higher_priority_is_further_outside_and_the_order_is_visible() -> None:
    log: list[str] = []

    class Logging(Extension):
        def __init__(self, name: str, priority: int) -> None:
            self.name, self.priority = name, priority

        async def before(self, tool: Tool, call: ToolCall) -> None:
            log.append(f"before {self.name}")

        async def around(self, tool: Tool, call: ToolCall, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
            log.append(f"in {self.name}")
            result = await proceed()
            log.append(f"out {self.name}")
            return result

        async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> None:
            log.append(f"after {self.name}")

    async with opened(Logging("inner", 1), Logging("outer", 9)) as app:
        await app.call("echo", {"text": "x"})
        assert log == [
            "before outer",
            "before inner",
            "in outer",
            "in inner",
            "out inner",
            "out outer",
            "after inner",
            "after outer",
        ]
        assert [each.name for each in app.extensions.order()] == ["outer", "inner"]


async def test_an_extension_applies_only_to_the_tools_it_names() -> None:
    extension = Shouting()
    extension.tools = ("ec*",)
    async with opened(extension) as app:
        assert (await app.call("echo", {"text": "a"})).output == "A!"
        assert (await app.call("other", {"text": "a"})).output == "other a"


async def test_a_veto_is_a_refusal_with_its_reason() -> None:
    class Veto(Extension):
        name = "veto"

        async def before(self, tool: Tool, call: ToolCall) -> None:
            raise ToolFailure("not today", code="permission_denied")

    async with opened(Veto()) as app:
        result = await app.call("echo", {"text": "a"})
        assert result.error is not None
        assert (result.error.code, result.error.message) == ("permission_denied", "not today")


async def test_changed_arguments_are_validated_and_judged_again() -> None:
    written: list[str] = []

    def effects(args: Any, ctx: Any) -> list[Any]:
        return [WritePath(ctx.resolve(args["path"]))]

    async def write(args: Any, ctx: Any) -> str:
        written.append(args["path"])
        return "written"

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    writer = Tool(name="writer", description="Writes", run=write, args=schema, effects=effects)

    class Redirect(Extension):
        name = "redirect"
        target: Any = "/etc/passwd"

        async def before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any]:
            return {"path": self.target}

    async with scratch_app(tools=[writer], builtin=False, approve=False, allow=["writer"]) as app:
        assert (await app.call("writer", {"path": "fine"})).ok
        redirect = Redirect()
        app.extend(redirect)
        outside = await app.call("writer", {"path": "fine"})
        assert outside.error is not None
        assert outside.error.code == "permission_denied"
        redirect.target = 5
        odd = await app.call("writer", {"path": "fine"})
        assert odd.ok or (odd.error is not None and odd.error.code == "invalid_args")
        redirect.target = {"no": "path"}
        wrong = await app.call("writer", {"path": "fine"})
        assert wrong.error is not None
        assert wrong.error.code == "invalid_args"
        assert "/etc/passwd" not in written


@pytest.mark.parametrize("hook", ["before", "around", "after"])
async def test_one_that_raises_is_reported_and_skipped(hook: str) -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("oops")

    hooks: dict[str, Any] = {hook: broken}
    async with opened(Named(**hooks)) as app:
        failed = failures(app)
        assert (await app.call("echo", {"text": "a"})).output == "a"
        assert [event.data["extension"] for event in failed] == ["test"]
        assert "oops" in failed[0].data["message"]


@pytest.mark.parametrize("hook", ["before", "around", "after"])
async def test_one_that_is_required_and_raises_fails_the_call(hook: str) -> None:
    async def broken(*args: Any) -> None:
        raise RuntimeError("oops")

    hooks: dict[str, Any] = {hook: broken}
    async with opened(Named(required=True, **hooks)) as app:
        result = await app.call("echo", {"text": "a"})
        assert result.error is not None
        assert "oops" in result.error.message
        assert "marked required" in result.error.hint


@pytest.mark.parametrize("hook", ["before", "around", "after"])
async def test_one_that_hangs_is_given_up(hook: str) -> None:
    async def hangs(*args: Any) -> None:
        await asyncio.Event().wait()

    hooks: dict[str, Any] = {hook: hangs}
    async with opened(Named(timeout_s=0.05, **hooks)) as app:
        failed = failures(app)
        assert (await asyncio.wait_for(app.call("echo", {"text": "a"}), 60)).output == "a"
        assert len(failed) == 1


async def test_a_layer_that_fails_after_the_call_does_not_run_it_twice() -> None:
    runs = 0

    @tool(read_only=True)
    async def once() -> str:
        "Counts."
        nonlocal runs
        runs += 1
        return "done"

    async def after_the_fact(tool: Tool, call: ToolCall, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        await proceed()
        await proceed()
        raise RuntimeError("too late")

    async with scratch_app(tools=[once], builtin=False) as app:
        app.extend(Named(around=after_the_fact))
        assert (await app.call("once")).output == "done"
        assert runs == 1


async def test_the_calls_own_failure_passes_through_a_layer_unreported() -> None:
    @tool(read_only=True)
    async def fails() -> str:
        "Fails."
        raise ToolFailure("the tool's own words")

    async def layer(tool: Tool, call: ToolCall, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        return await proceed()

    async with scratch_app(tools=[fails], builtin=False) as app:
        app.extend(Named(around=layer))
        failed = failures(app)
        result = await app.call("fails")
        assert result.error is not None
        assert result.error.message == "the tool's own words"
        assert failed == []


async def test_one_that_calls_tools_itself_does_not_recurse() -> None:
    class Curious(Extension):
        name = "curious"
        app: Surehand
        calls = 0

        async def before(self, tool: Tool, call: ToolCall) -> None:
            self.calls += 1
            await self.app.call("echo", {"text": "from inside"})

    curious = Curious()
    async with opened(curious) as app:
        curious.app = app
        assert (await asyncio.wait_for(app.call("echo", {"text": "a"}), 60)).ok
        assert curious.calls == 1


async def test_a_tool_can_be_replaced_by_an_extended_one() -> None:
    class Polite(Extension):
        name = "polite"

        def extend(self, tool: Tool) -> Tool:
            inner: Any = tool.run

            async def run(args: Any, ctx: Any) -> str:
                return f"please: {await inner(args, ctx)}"

            return replace(tool, run=run)

    async with opened(Polite()) as app:
        assert (await app.call("echo", {"text": "a"})).output == "please: a"
        app.extensions.unregister("polite")
        assert (await app.call("echo", {"text": "a"})).output == "a"


async def test_extensions_see_tools_come_and_go() -> None:
    class Watching(Extension):
        name = "watching"

        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_register(self, tool: Tool | ToolInfo) -> None:
            self.seen.append(f"+{tool.name}")

        def on_unregister(self, tool: Tool | ToolInfo) -> None:
            self.seen.append(f"-{tool.name}")

    watching = Watching()
    async with opened(watching) as app:
        assert watching.seen == ["+echo", "+other"]
        app.registry.unregister("other")
        assert watching.seen[-1] == "-other"


async def test_each_has_its_own_configuration_and_refuses_a_wrong_one() -> None:
    class Configured(Extension):
        name = "configured"
        level = 0

        def configure(self, config: Mapping[str, Any]) -> None:
            if config.get("level", 0) > 9:
                raise ValueError("level is at most 9")
            self.level = config.get("level", 0)

    extension = Configured()
    async with opened(settings=Settings(extensions={"configured": {"level": 3}})) as app:
        app.extend(extension)
        assert extension.level == 3
        app.extensions.unregister("configured")
        with pytest.raises(SurehandError, match="level is at most 9"):
            app.extensions.register(Configured(), {"level": 10})


# Shell hooks --------------------------------------------------------------------------------------------------------


def hook(folder: Path, body: str, event: str = "before", **options: Any) -> Settings:
    script = folder / "hook.py"
    script.write_text(f"import json, sys, os, time\nsaid = json.load(sys.stdin)\n{body}\n")
    settings = HookSettings(event=event, command=f"{sys.executable} {script}", **options)  # type: ignore[arg-type]
    return Settings(hooks=(settings,))


async def test_a_shell_hook_is_told_of_the_call_as_json(tmp_path: Path) -> None:
    settings = hook(tmp_path, f"open({str(tmp_path / 'told')!r}, 'w').write(json.dumps(said))")
    async with opened(settings=settings) as app:
        assert (await app.call("echo", {"text": "a"}, id="call_1")).ok
        told = json.loads((tmp_path / "told").read_text())
        assert (told["event"], told["tool"], told["args"], told["call_id"]) == (
            "before",
            "echo",
            {"text": "a"},
            "call_1",
        )
        assert told["cwd"] == app.session.workspace


async def test_a_shell_hook_may_change_arguments_and_output(tmp_path: Path) -> None:
    async with opened(settings=hook(tmp_path, "print(json.dumps({'args': {'text': 'changed'}}))")) as app:
        assert (await app.call("echo", {"text": "a"})).output == "changed"
    body = "print(json.dumps({'output': said['result']['output'] + ' seen'}))"
    async with opened(settings=hook(tmp_path, body, "after")) as app:
        assert (await app.call("echo", {"text": "a"})).output == "a seen"


@pytest.mark.parametrize(
    "body", ["print(json.dumps({'decision': 'deny', 'reason': 'no text'}))", "sys.stderr.write('no text'); sys.exit(2)"]
)
async def test_a_shell_hook_may_refuse_a_call(tmp_path: Path, body: str) -> None:
    async with opened(settings=hook(tmp_path, body)) as app:
        result = await app.call("echo", {"text": "a"})
        assert result.error is not None
        assert result.error.code == "permission_denied"
        assert "no text" in result.error.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('rubbish')", "printed no JSON"),
        ("print('[1]')", "not an object"),
        ("print(json.dumps({'args': 5}))", "not an object"),
        ("sys.exit(3)", "ended with 3"),
        ("os.write(1, b'x' * 3_000_000)", "printed no JSON"),
        ("time.sleep(60)", "did not end within"),
    ],
)
async def test_a_shell_hook_that_misbehaves_is_named_and_skipped(tmp_path: Path, body: str, said: str) -> None:
    async with opened(settings=hook(tmp_path, body, timeout=60.0 if "sleep" not in body else 0.5)) as app:
        failed = failures(app)
        assert (await app.call("echo", {"text": "a"})).output == "a"
        assert said in failed[0].data["message"]


async def test_a_required_shell_hook_that_fails_stops_the_call(tmp_path: Path) -> None:
    async with opened(settings=hook(tmp_path, "sys.exit(1)", required=True)) as app:
        result = await app.call("echo", {"text": "a"})
        assert result.error is not None
        assert result.error.code == "tool_unavailable"


async def test_what_a_hook_started_ends_with_it(tmp_path: Path) -> None:
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(child.pid))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r})\n"
        "time.sleep(600)"
    )
    for timeout_s in (2.0, 20.0, 200.0):  # whatever an interpreter takes to start here
        async with opened(settings=hook(tmp_path, body, timeout=timeout_s)) as app:
            await app.call("echo", {"text": "a"})
        if (tmp_path / "pid").exists():
            break
    child = Path("/proc", (tmp_path / "pid").read_text())
    async with asyncio.timeout(120):
        while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
            await asyncio.sleep(0.02)


async def test_hooks_name_their_tools_by_glob(tmp_path: Path) -> None:
    async with opened(settings=hook(tmp_path, "sys.exit(2)", tools=("oth*",))) as app:
        assert (await app.call("echo", {"text": "a"})).ok
        assert not (await app.call("other")).ok
