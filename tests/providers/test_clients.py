"""Real clients against loopback stubs of the Anthropic and OpenAI APIs: streaming, tools, errors, interruptions."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from tests.providers.model_stub import Stub

from surehand import Image, Settings, Surehand, Text, ToolResult, tool
from surehand.core.model import Message, Model, ModelError, ModelRequest, Turn
from surehand.core.names import provider_safe
from surehand.testing import Says, scratch_app


@pytest.fixture(params=["anthropic", "openai"])
def model(request: pytest.FixtureRequest, stub: Stub) -> Model:
    if request.param == "anthropic":
        from surehand.providers.anthropic import AnthropicModel

        return AnthropicModel("claude-test", "dummy-key", stub.address)
    from surehand.providers.openai import OpenAIModel

    return OpenAIModel("gpt-test", "dummy-key", f"{stub.address}/v1")


@tool(read_only=True, name="math.double")
async def double(n: int) -> int:
    "Double a number."
    return 2 * n


@tool(read_only=True)
async def picture() -> ToolResult:
    "Return a picture."
    return ToolResult(output="a dot", content=(Text("a dot"), Image("aGk=", "image/png")))


@tool
async def launch() -> str:
    "Launch."
    return "launched"


SAFE = provider_safe("math.double")


@pytest.mark.spec("ASK-3")
async def test_text_streams_and_usage_is_counted(model: Model, stub: Stub) -> None:
    stub.script = [{"text": "hello there"}]
    pieces: list[str] = []
    async with scratch_app() as app:
        outcome = await app.conversation(model, on_text=pieces.append).ask("hi")
    assert pieces == ["hello", " there"]
    assert outcome.text == "hello there"
    assert outcome.usage.output_tokens == 5
    assert outcome.usage.cache_read_tokens == 7


@pytest.mark.spec("ASK-5")
async def test_a_picture_in_a_prompt_reaches_the_provider_in_its_own_shape(model: Model, stub: Stub) -> None:
    stub.script = [{"text": "a dot"}]
    async with scratch_app() as app:
        await app.conversation(model).ask(["what is it?", Image("aGk=", "image/png")])
    parts = next(each["content"] for each in stub.requests[0]["messages"] if each["role"] == "user")
    assert {part["type"] for part in parts} == {"text", "image" if model.provider == "anthropic" else "image_url"}
    assert "aGk=" in str(parts)
    assert "what is it?" in str(parts)


async def test_parallel_calls_with_mapped_names_come_back_right(model: Model, stub: Stub) -> None:
    stub.script = [
        {"text": "let me see", "calls": [("a", SAFE, '{"n": 2}'), ("b", SAFE, '{"n": 5}')]},
        {"text": "4 and 10"},
    ]
    async with scratch_app(tools=[double], builtin=False) as app:
        outcome = await app.conversation(model).ask("double 2 and 5")
    assert [call.name for call in outcome.calls] == ["math.double"] * 2
    assert [result.data for result in outcome.results] == [4, 10]
    assert outcome.text == "4 and 10"
    sent = str(stub.requests[1]["messages"])
    assert "'10'" in sent
    assert SAFE in str(stub.requests[0]["tools"])
    assert "math.double" not in str(stub.requests[0]["tools"]).replace("Double a number.", "")


async def test_an_error_is_told_and_the_model_recovers(model: Model, stub: Stub) -> None:
    stub.script = [
        {"calls": [("a", SAFE, '{"n": "x"}')]},
        {"calls": [("b", SAFE, '{"n": ')]},
        {"calls": [("c", SAFE, '{"n": 3}')]},
        {"text": "6"},
    ]
    async with scratch_app(tools=[double], builtin=False) as app:
        outcome = await app.conversation(model).ask("go")
    assert [result.ok for result in outcome.results] == [False, False, True]
    assert "invalid_args" in str(stub.requests[1]["messages"][-1])
    assert "not JSON" in str(stub.requests[2]["messages"][-1])
    assert outcome.text == "6"


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 200_000, '{"n": 1}{"n": 2}', "\ud800"])
async def test_arguments_that_are_no_object_are_told(model: Model, stub: Stub, text: str) -> None:
    stub.script = [{"calls": [("a", SAFE, text)]}, {"text": "I see"}]
    async with scratch_app(tools=[double], builtin=False) as app:
        outcome = await app.conversation(model).ask("go")
    assert [result.error.code for result in outcome.results if result.error] == ["invalid_args"]
    assert outcome.text == "I see"


@pytest.mark.parametrize("step", [{"text": "x" * 9000}, {"calls": [("a", SAFE, '{"n": ' + "1" * 9000)]}])
async def test_a_server_that_streams_on_for_ever_is_left(
    model: Model, stub: Stub, step: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.core.model.TURN_LIMIT", 8000)
    stub.script = [step]
    async with scratch_app(tools=[double], builtin=False) as app:
        with pytest.raises(ModelError, match="more than 8,000 characters"):
            await app.conversation(model).ask("go")


@pytest.mark.parametrize("step", [{"raw": repeat(": nothing\n\n")}, {"raw": repeat(" "), "kind": "text/plain"}])
async def test_a_server_that_sends_nothing_for_ever_is_left(
    model: Model, stub: Stub, step: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.providers.server.STREAM_BYTES", 20_000)
    monkeypatch.setattr("surehand.providers.server.BODY_BYTES", 20_000)
    stub.script = [step]
    async with scratch_app(tools=[double], builtin=False) as app:
        with pytest.raises(ModelError, match="more than 20,000 bytes"):
            await app.conversation(model).ask("go")


async def test_a_result_with_bytes_that_are_no_text_is_sent(model: Model, stub: Stub) -> None:
    @tool(read_only=True)
    async def odd() -> str:
        "Returns a name of odd bytes."
        return "na\udce9me"

    stub.script = [{"calls": [("a", "odd", "{}")]}, {"text": "I see"}]
    async with scratch_app(tools=[odd], builtin=False) as app:
        assert (await app.conversation(model).ask("what is na\udce9me?")).text == "I see"
    assert "na\ufffdme" in str(stub.requests[1]["messages"])


async def test_a_refusal_is_told(model: Model, stub: Stub) -> None:
    stub.script = [{"calls": [("a", "launch", "{}")]}, {"text": "ok, not"}]
    async with scratch_app(tools=[launch], builtin=False, approver=Says("no", "too windy")) as app:
        await app.conversation(model).ask("go")
    assert "too windy" in str(stub.requests[1]["messages"][-1])


async def test_a_picture_reaches_the_model(model: Model, stub: Stub) -> None:
    stub.script = [{"calls": [("a", "picture", "{}")]}, {"text": "a dot"}]
    async with scratch_app(tools=[picture], builtin=False) as app:
        await app.conversation(model).ask("go")
    assert "aGk=" in str(stub.requests[1]["messages"])


async def test_an_overloaded_server_is_tried_again(model: Model, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", (0.0, 0.0))
    stub.script = [{"status": 529 if model.provider == "anthropic" else 503}, {"status": 429}, {"text": "here"}]
    async with scratch_app() as app:
        assert (await app.conversation(model).ask("go")).text == "here"


async def test_a_server_that_says_how_long_to_wait_is_left_alone_so_long(
    model: Model, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", (0.0,))
    notes: list[str] = []
    stub.script = [{"status": 429, "after": "0.2"}, {"text": "here"}, {"status": 429, "after": "3600"}]
    async with scratch_app() as app:
        app.bus.subscribe(lambda event: notes.append(event.data["message"]) if event.kind == "note" else None)
        assert (await app.conversation(model).ask("go")).text == "here"
        with pytest.raises(ModelError) as caught:
            await app.conversation(model).ask("again")
    assert notes[0].endswith("trying again in 0.2 s")
    assert (caught.value.hint, len(notes)) == ("It may be asked again in 3600 s.", 1)


async def test_every_refusal_in_a_row_is_heeded_also_one_that_names_a_date(
    model: Model, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", (0.0, 0.0, 0.0))
    notes: list[str] = []
    sleep = asyncio.sleep

    def sleep_shortly(seconds: float) -> Awaitable[None]:  # nobody waits a minute for a date that cannot have passed
        return sleep(min(seconds, 0.01))

    monkeypatch.setattr("asyncio.sleep", sleep_shortly)
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=55), usegmt=True)
    stub.script = [{"status": 429, "after": after} for after in ("0.2", "0.3", until)] + [{"text": "here"}]
    async with scratch_app() as app:
        app.bus.subscribe(lambda event: notes.append(event.data["message"]) if event.kind == "note" else None)
        assert (await app.conversation(model).ask("go")).text == "here"
    waits = [float(note.split()[-2]) for note in notes]
    assert waits[:2] == [0.2, 0.3]
    assert 0 < waits[2] <= 55


@pytest.mark.parametrize(("status", "word"), [(401, "key"), (404, "no model")])
async def test_a_refused_key_and_a_missing_model_are_clear(model: Model, stub: Stub, status: int, word: str) -> None:
    stub.script = [{"status": status}]
    async with scratch_app() as app:
        with pytest.raises(ModelError, match=word) as caught:
            await app.conversation(model).ask("go")
    assert caught.value.hint
    assert not caught.value.retryable


async def test_a_stream_cut_in_the_middle_is_an_error_not_an_answer(model: Model, stub: Stub) -> None:
    stub.script = [{"text": "half of", "cut": True}]
    async with scratch_app() as app:
        with pytest.raises(ModelError):
            await app.conversation(model).ask("go")


async def test_a_connection_that_dies_within_an_answer_is_an_error_and_what_was_said_is_kept(
    model: Model, stub: Stub
) -> None:
    stub.script = [{"text": "half of", "torn": True}, {"text": "As I said."}]
    async with scratch_app() as app:
        loop = app.conversation(model)
        with pytest.raises(ModelError, match="stopped in the middle of its answer: peer closed") as caught:
            await loop.ask("go")
        assert caught.value.retryable
        assert loop.outcome.text == "half of"
        assert (await loop.ask("and?")).text == "As I said."
    assert "half of [broken off here]" in str(stub.requests[1]["messages"])


async def test_a_connection_that_dies_before_an_answer_is_tried_again(
    model: Model, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", (0.0,))
    stub.script = [{"torn": True}, {"text": "here"}]
    async with scratch_app() as app:
        assert (await app.conversation(model).ask("go")).text == "here"


async def test_an_overload_told_within_the_stream_is_tried_again(
    model: Model, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", (0.0,))
    told = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    stub.script = [{"raw": [f"event: error\ndata: {told}\n\n"]}, {"text": "here"}]
    async with scratch_app() as app:
        assert (await app.conversation(model).ask("go")).text == "here"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("event: message_start\ndata: {nonsense\n\n", "text/event-stream"),
        ("event: message_start\ndata: [1]\n\n", "text/event-stream"),
        ("<html>not found</html>", "text/html"),
    ],
)
async def test_what_is_no_answer_is_told_at_once(model: Model, stub: Stub, raw: str, kind: str) -> None:
    stub.script = [{"raw": [raw], "kind": kind}]
    async with scratch_app() as app:
        with pytest.raises(ModelError, match="sent an invalid response") as caught:
            await app.conversation(model).ask("go")
    assert caught.value.hint


async def test_a_server_error_is_told_in_its_own_words(model: Model, stub: Stub) -> None:
    stub.script = [{"status": 400}]
    async with scratch_app() as app:
        with pytest.raises(ModelError) as caught:
            await app.conversation(model).ask("go")
    assert (
        caught.value.message == f"{stub.address}{'/v1' if model.provider == 'openai' else ''} answered 400: status 400"
    )


async def test_repeated_ids_are_told_apart_when_the_conversation_is_sent_back(model: Model, stub: Stub) -> None:
    twice = {"calls": [("a", SAFE, '{"n": 1}'), ("a", SAFE, '{"n": 2}')]}
    stub.script = [twice, {"calls": [("a", SAFE, '{"n": 3}')]}, {"text": "done"}]
    async with scratch_app(tools=[double]) as app:
        outcome = await app.conversation(model).ask("go")
    assert [result.data for result in outcome.results] == [2, 4, 6]
    assert outcome.calls[0].id == "a"
    sent = str(stub.requests[2]["messages"])
    for call in outcome.calls:
        assert sent.count(f"'{call.id}'") == 2, "once where it is made, once where it is answered"


async def test_calls_that_all_have_the_same_index_are_told_apart_by_their_ids(stub: Stub) -> None:
    from surehand.providers.openai import OpenAIModel

    def chunk(delta: str, finish: str = "null") -> str:
        return f'data: {{"id": "c", "choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]}}\n\n'

    def part(id: str, n: int) -> str:
        arguments = f'"{{\\"n\\": {n}}}"'
        return f'{{"index": 0, "id": "{id}", "function": {{"name": "{SAFE}", "arguments": {arguments}}}}}'

    calls = [chunk(f'{{"tool_calls": [{part("a", 1)}]}}'), chunk(f'{{"tool_calls": [{part("b", 2)}]}}')]
    stub.script = [{"raw": [*calls, chunk("null", '"tool_calls"')]}, {"text": "done"}]
    async with scratch_app(tools=[double]) as app:
        outcome = await app.conversation(OpenAIModel("gpt-test", "dummy-key", f"{stub.address}/v1")).ask("go")
    assert [result.data for result in outcome.results] == [2, 4]


async def test_a_conversation_goes_on_with_a_model_of_another_vendor(tmp_path: Path, stub: Stub) -> None:
    from surehand.providers.anthropic import AnthropicModel
    from surehand.providers.openai import OpenAIModel

    stub.script = [{"calls": [("functions.double:0", SAFE, '{"n": 1}')]}, {"text": "two"}, {"text": "As it said."}]
    async with Surehand(tmp_path, tools=[double], session="s") as app:
        await app.conversation(OpenAIModel("gpt-test", "dummy-key", f"{stub.address}/v1")).ask("go")
        claude = AnthropicModel("claude-test", "dummy-key", stub.address)
        assert (await app.conversation(claude).ask("is that right?")).text == "As it said."
    made, answered = (message["content"][0] for message in stub.requests[2]["messages"][1:3])
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", made["id"])
    assert answered["tool_use_id"] == made["id"]


async def test_a_refusal_in_words_of_its_own_is_one(stub: Stub) -> None:
    from surehand.providers.openai import OpenAIModel

    delta = 'data: {"id": "c", "choices": [{"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}]}\n\n'
    stub.script = [{"raw": [delta]}]
    async with scratch_app() as app:
        outcome = await app.conversation(OpenAIModel("gpt-test", "dummy-key", f"{stub.address}/v1")).ask("go")
    assert (outcome.text, outcome.stop) == ("No.", "refusal")


STOPS = {
    "anthropic": {"max_tokens": "max_tokens", "model_context_window_exceeded": "max_tokens", "refusal": "refusal"},
    "openai": {"length": "max_tokens", "content_filter": "refusal"},
}


async def test_an_answer_that_ends_before_its_end_says_why(model: Model, stub: Stub) -> None:
    for said, meant in STOPS[model.provider].items():
        stub.script = [{"text": "so far", "stop": said}]
        async with scratch_app() as app:
            outcome = await app.conversation(model).ask("go")
        assert (outcome.text, outcome.stop, outcome.answered) == ("so far", meant, False)


async def test_an_interrupted_conversation_goes_on_and_is_taken_up_again(
    model: Model, stub: Stub, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    @tool(read_only=True)
    async def wait_for_ever() -> str:
        "Wait for ever."
        begun.set()
        await asyncio.Event().wait()
        return ""

    waits = {"text": "Let me see.", "calls": [("a", SAFE, '{"n": 1}'), ("b", "wait_for_ever", "{}")]}
    stub.script = [waits, {"text": "As you wish."}, {"text": "We spoke of that."}]
    async with Surehand(tmp_path, tools=[double, wait_for_ever], session="s") as app:
        loop = app.conversation(model)
        asking = asyncio.ensure_future(loop.ask("go"))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await loop.ask("something else")).text == "As you wish."
    async with Surehand(tmp_path, tools=[double, wait_for_ever], session="s") as app:
        assert (await app.conversation(model).ask("what was it?")).text == "We spoke of that."
    sent = stub.requests[2]["messages"]
    told = str(sent)
    assert "wait_for_ever was stopped before it ended" in told
    assert told.index("stopped before it ended") < told.index("something else") < told.index("As you wish.")


async def test_a_server_that_is_not_there_is_named(stub: Stub, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surehand.agent.loop.RETRY_WAITS_S", ())
    stub.close()
    async with scratch_app() as app:
        with pytest.raises(ModelError, match="cannot be reached"):
            await app.conversation(model).ask("go")


async def test_signed_thoughts_go_back_as_they_came(stub: Stub) -> None:
    from surehand.providers.anthropic import AnthropicModel

    stub.script = [{"thinking": "hm", "calls": [("a", SAFE, '{"n": 2}')]}, {"text": "4"}]
    async with scratch_app(tools=[double], builtin=False) as app:
        await app.conversation(AnthropicModel("claude-test", "k", stub.address)).ask("go")
    sent = stub.requests[1]["messages"][1]["content"]
    assert sent[0] == {"type": "thinking", "thinking": "hm", "signature": "signed"}


async def test_prompt_and_tools_are_marked_for_the_cache(stub: Stub) -> None:
    from surehand.providers.anthropic import AnthropicModel

    stub.script = [{"text": "x"}]
    async with scratch_app(tools=[double], builtin=False) as app:
        await app.conversation(AnthropicModel("claude-test", "dummy-key", stub.address)).ask("go")
    body = stub.requests[0]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert "dummy-key" in (stub.headers[0].get("x-api-key") or stub.headers[0]["authorization"])


async def test_a_message_without_words_is_still_one(model: Model, stub: Stub) -> None:
    stub.script = [{}]
    turns = [event async for event in model.stream(ModelRequest("s", [Message("user", "x"), Message("assistant", "")]))]
    assert isinstance(turns[-1], Turn)
    assert turns[-1].message.text == ""


def ask(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC", "OPENAI"))}
    return subprocess.run(
        [sys.executable, "-m", "surehand", *words],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_ask_speaks_with_the_configured_model_and_keeps_the_session(tmp_path: Path, stub: Stub) -> None:
    import json

    stub.script = [{"calls": [("a", provider_safe("time.now"), "{}")]}, {"text": "late"}, {"text": "again"}]
    environment = {
        "ANTHROPIC_API_KEY": "dummy",
        "SUREHAND_MODEL__BASE_URL": stub.address,
        "SUREHAND_MODEL__PROVIDER": "anthropic",
    }
    first = json.loads(ask("ask", "time?", "--session", "t", cwd=tmp_path, **environment).stdout)
    assert (first["answer"], first["toolError"], first["sessionContextUpdated"]) == ("late", None, True)
    assert first["toolCalls"][0]["name"] == "time.now"
    second = json.loads(ask("ask", "more", "--session", "t", cwd=tmp_path, **environment).stdout)
    assert second["answer"] == "again"
    assert len(stub.requests[2]["messages"]) == 5
    assert "dummy" not in "".join(
        path.read_text(errors="replace") for path in Path(os.environ["SUREHAND_HOME"]).rglob("*.jsonl")
    )


def test_a_missing_key_is_a_clear_message(tmp_path: Path) -> None:
    done = ask("ask", "hi", "--model", "claude-x", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert "no key for anthropic" in done.stdout


def test_an_unknown_provider_is_named_and_leaves_no_session(tmp_path: Path) -> None:
    import json

    for words in (("--model", "nosuch/model"), ("--model", "claude-x"), ("--model", "local/none.gguf")):
        done = ask("ask", "hi", *words, cwd=tmp_path)
        said = json.loads(done.stdout)
        assert (done.returncode, said["session"], said["error"]["code"]) == (1, "", "model_error")
        assert ask("chat", *words, cwd=tmp_path).returncode == 1
    assert "no provider 'nosuch'" in ask("ask", "hi", "--model", "nosuch/model", cwd=tmp_path).stdout
    assert json.loads(ask("sessions", "list", cwd=tmp_path).stdout) == []


def test_a_refused_key_leaves_no_session_and_a_cut_answer_leaves_what_was_said(tmp_path: Path, stub: Stub) -> None:
    import json

    server = stub.environment
    stub.script = [{"status": 401}, {"text": "Half an answer", "cut": True}]
    refused = json.loads(ask("ask", "hi", cwd=tmp_path, **server).stdout)
    assert (refused["session"], refused["stop"]) == ("", "model_error")
    assert "refused the key" in refused["error"]["message"]
    assert json.loads(ask("sessions", "list", cwd=tmp_path).stdout) == []
    cut = json.loads(ask("ask", "hi", cwd=tmp_path, **server).stdout)
    assert (cut["answer"], cut["error"]["code"]) == ("Half an answer", "model_error")
    assert [row["name"] for row in json.loads(ask("sessions", "list", cwd=tmp_path).stdout)] == [cut["session"]]


def test_models_says_which_and_why(tmp_path: Path) -> None:
    import json

    shown = json.loads(ask("models", cwd=tmp_path).stdout)
    assert shown["chosen"]["provider"] == "offline"
    shown = json.loads(ask("models", cwd=tmp_path, OPENAI_API_KEY="dummy").stdout)
    assert shown["chosen"]["provider"] == "openai"
    assert shown["chosen"]["why"] == "a key for openai is in OPENAI_API_KEY"
    assert {shown["clients"][name] for name in ("anthropic", "openai", "gemini", "ollama")} == {"installed"}
    for wanted in ("openai", "openai/"):
        shown = json.loads(ask("models", "--model", wanted, cwd=tmp_path).stdout)
        assert (shown["chosen"]["provider"], shown["chosen"]["name"]) == ("openai", "gpt-5-mini")


def test_a_key_is_kept_privately_and_never_shown(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "surehand", "auth"]

    def auth(*more: str, stdin: str = "") -> Any:
        return subprocess.run([*words, *more], input=stdin, capture_output=True, text=True, cwd=tmp_path, check=False)

    assert auth("set", "anthropic", stdin="sk-dummy-123\n").returncode == 0
    path = Path(os.environ["SUREHAND_HOME"]) / "keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "private file" in auth("status").stdout
    assert "sk-dummy" not in auth("status").stdout
    assert auth("status", "anthropic").stdout.strip() == '{"anthropic": "private file"}'
    path.chmod(0o644)
    assert "chmod 600" in auth("status").stderr
    path.chmod(0o600)
    assert auth("remove", "anthropic").returncode == 0
    assert "sk-dummy" not in path.read_text()
    assert auth("set", "anthropic", stdin="two words").returncode == 2


def test_a_key_in_a_variable_is_the_users_to_unset(tmp_path: Path) -> None:
    left = ask("auth", "remove", "openai", cwd=tmp_path, OPENAI_API_KEY="dummy").stdout
    assert left.strip() == '{"provider": "openai", "removed": [], "left": "OPENAI_API_KEY"}'


def test_the_window_of_a_model_may_be_set() -> None:
    from surehand.models import choose, open_model

    settings = Settings.parse({"model": {"base_url": "http://127.0.0.1:1/v1", "name": "small", "context_tokens": 8000}})
    assert open_model(settings, choose(settings)).context_tokens == 8000


def test_settings_without_a_key_may_name_a_local_server() -> None:
    from surehand.models import choose

    choice = choose(Settings.parse({"model": {"base_url": "http://127.0.0.1:11434/v1", "name": "llama3"}}))
    assert (choice.provider, choice.name) == ("openai", "llama3")
    assert choose(Settings(), "offline").provider == "offline"
    assert choose(Settings(), "openai/gpt-x").name == "gpt-x"


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_the_examples_of_own_loops_work_with_the_official_clients(tmp_path: Path, stub: Stub, vendor: str) -> None:
    (tmp_path / "notes.txt").write_text("the word is swordfish\n")
    look = [("a", "Grep", '{"pattern": "swordfish"}'), ("b", "Read", '{"file_path": "nope.txt"}')]
    stub.script = [{"text": "Let me see.", "calls": look}, {"text": "It is swordfish."}]
    example = Path(__file__).parents[2] / "examples" / f"own_loop_{vendor}.py"
    server = {
        "ANTHROPIC_BASE_URL": stub.address,
        "OPENAI_BASE_URL": f"{stub.address}/v1",
        "ANTHROPIC_API_KEY": "none",
        "OPENAI_API_KEY": "none",
    }
    done = subprocess.run(
        [sys.executable, str(example), "what is the word?"],
        cwd=tmp_path,
        env=os.environ | server,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "It is swordfish."), done.stderr
    sent = str(stub.requests[1]["messages"])
    assert ">>swordfish<<" in sent
    assert "File does not exist" in sent
    assert "Grep" in str(stub.requests[0]["tools"])
