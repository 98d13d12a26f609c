"""Providers by name, each against a stub on loopback: address, key, quirks; thinking; the Responses API; prices."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel
from tests.providers.model_stub import Stub

from surehand import Image, Settings, Text, ToolResult, tool
from surehand.agent.loop import Limits
from surehand.core.errors import SettingsError
from surehand.core.model import Message, ModelError, ModelRequest, ThoughtDelta, Turn, Usage
from surehand.core.settings import ModelSettings, ProviderName
from surehand.models import choose, estimate_cost, make_limits, open_model, server_address
from surehand.providers.table import PROVIDERS
from surehand.testing import Says, ScriptedModel, scratch_app

Setup = pytest.MonkeyPatch
COMPATIBLE = tuple(name for name, row in PROVIDERS.items() if row.package == "openai")


@tool(read_only=True)
async def look() -> ToolResult:
    "Look."
    return ToolResult(output="a dot", content=(Text("a dot"), Image("aGk=", "image/png")))


def test_the_settings_and_the_table_name_the_same_providers() -> None:
    assert set(get_args(ProviderName)) == set(PROVIDERS)


def test_the_documentation_has_each_provider_as_its_row_has_it() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "models.md").read_text().splitlines()
    for name, row in PROVIDERS.items():
        if not row.server:
            continue
        (line,) = [line for line in lines if line.startswith(f"| `{name}` | ")]
        server = urlsplit(row.server).netloc if "{" not in row.server else ""
        facts = [
            server,
            *re.findall(r"\{(\w+)\}", row.server),
            row.default,
            "" if row.key_optional else row.variables[0],
        ]
        assert [fact for fact in facts if fact not in line] == [], line


def test_an_address_takes_what_it_lacks_from_the_environment(monkeypatch: Setup) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east1")
    clouds = {
        "azure": "https://mine.openai.azure.com/openai/v1",
        "bedrock": "https://bedrock-mantle.eu-west-1.api.aws/v1",
        "vertex": "https://us-east1-aiplatform.googleapis.com/v1/projects/p/locations/us-east1/endpoints/openapi",
    }
    assert {name: server_address(Settings(), choose(Settings(), f"{name}/m")) for name in clouds} == clouds


def test_what_a_provider_lacks_is_named(monkeypatch: Setup) -> None:
    with pytest.raises(ModelError, match="AZURE_OPENAI_ENDPOINT"):
        open_model(Settings(), choose(Settings(), "azure/gpt"))
    with pytest.raises(ModelError, match="no key for mistral"):
        open_model(Settings(), choose(Settings(), "mistral"))
    with pytest.raises(ModelError, match="ollama has no model of its own choice"):
        choose(Settings(), "ollama")
    with pytest.raises(ModelError, match="there is no provider 'nonsense'"):
        choose(Settings(), "nonsense/model")
    with pytest.raises(ModelError, match="no provider has a model 'nonsense'"):
        choose(Settings(), "nonsense")
    with pytest.raises(ModelError, match="no key for openai"):
        open_model(Settings(), choose(Settings(), "gpt-5"))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert choose(Settings(), "a-name-of-tomorrow").provider == "openai"


def test_a_key_in_its_variable_chooses_a_provider(monkeypatch: Setup) -> None:
    monkeypatch.setenv("XAI_API_KEY", "k")
    assert choose(Settings()).provider == "xai"
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert choose(Settings()).provider == "gemini"


def test_an_address_that_was_set_for_one_provider_is_not_used_for_another() -> None:
    settings = Settings(model=ModelSettings(provider="ollama", base_url="http://127.0.0.1:1/v1", name="m"))
    assert server_address(settings, choose(settings)) == "http://127.0.0.1:1/v1"
    assert server_address(settings, choose(settings, "xai")) == "https://api.x.ai/v1"
    settings = Settings(model=ModelSettings(base_url="http://127.0.0.1:1/v1"))
    assert server_address(settings, choose(settings)) == "http://127.0.0.1:1/v1"
    assert server_address(settings, choose(settings, "gemini")).startswith("https://generativelanguage")


@pytest.mark.parametrize("name", COMPATIBLE)
async def test_every_compatible_provider_answers_and_calls_tools(name: str, stub: Stub, monkeypatch: Setup) -> None:
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", f"{stub.address}/v1")
    monkeypatch.setenv(PROVIDERS[name].variables[0], "the-key")
    stub.script = [{"calls": [("call_one", "look", "{}")]}, {"text": "done"}]
    async with scratch_app(tools=[look]) as app:
        outcome = await app.ask("look", model=f"{name}/some-model")
    assert outcome.text == "done"
    assert stub.headers[0]["authorization"] == "Bearer the-key"
    sent, quirks = stub.requests[1], PROVIDERS[name].quirks
    assert sent["model"] == "some-model"
    assert sent[quirks.max_tokens] == 8192
    assert ("stream_options" in sent) == quirks.asks_for_usage
    call, result = (next(each for each in sent["messages"] if key in each) for key in ("tool_calls", "tool_call_id"))
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    assert (len(result["tool_call_id"]) == 9) == quirks.short_ids


@pytest.mark.parametrize("name", ["bedrock", "vertex"])
async def test_claude_in_a_cloud_is_asked_by_anthropics_own_client(name: str, stub: Stub, monkeypatch: Setup) -> None:
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", stub.address)
    monkeypatch.setenv(PROVIDERS[name].variables[0], "the-token")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east1")
    stub.script = [{"calls": [("toolu_1", "look", "{}")]}, {"text": "done"}]
    async with scratch_app(tools=[look]) as app:
        outcome = await app.ask("look", model=f"{name}/claude-sonnet-5-5")
    assert outcome.text == "done"
    assert stub.headers[0]["authorization"] == "Bearer the-token"
    assert stub.requests[1]["messages"][-1]["content"][0]["type"] == "tool_result"


# -- thinking ----------------------------------------------------------------------------------------------------------


async def body_for(stub: Stub, monkeypatch: Setup, model: str, **own: Any) -> dict[str, Any]:
    provider = model.partition("/")[0]
    version = "" if provider == "anthropic" else "/v1"
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", f"{stub.address}{version}")
    monkeypatch.setenv(PROVIDERS[provider].variables[0], "k")
    settings = Settings(model=ModelSettings(**own))
    opened = open_model(settings, choose(settings, model))
    stub.script = [{"text": "ok"}]
    async for _ in opened.stream(ModelRequest("s", (Message("user", "q"),), max_tokens=1000)):
        pass
    await opened.close()
    return stub.requests[-1]


async def test_effort_and_budgets_are_told_in_each_providers_way(stub: Stub, monkeypatch: Setup) -> None:
    sent = await body_for(stub, monkeypatch, "openai/gpt-5", effort="high")
    assert sent["reasoning_effort"] == "high"
    sent = await body_for(stub, monkeypatch, "openrouter/x", thinking_tokens=2000)
    assert sent["reasoning"] == {"max_tokens": 2000}
    sent = await body_for(stub, monkeypatch, "anthropic/claude", thinking_tokens=4000)
    assert (sent["thinking"], sent["max_tokens"]) == ({"type": "enabled", "budget_tokens": 4000}, 5000)
    sent = await body_for(stub, monkeypatch, "anthropic/claude-haiku-4-5", effort="low")
    assert sent["thinking"]["budget_tokens"] == 2048
    sent = await body_for(stub, monkeypatch, "anthropic/claude-sonnet-4-20250514", effort="none")
    assert "thinking" not in sent
    sent = await body_for(stub, monkeypatch, "anthropic/claude-opus-4-6", effort="high")
    assert (sent["thinking"]["type"], sent["output_config"]) == ("adaptive", {"effort": "high"})
    sent = await body_for(stub, monkeypatch, "anthropic/claude-sonnet-5-5", effort="none")
    assert sent["thinking"] == {"type": "disabled"}
    sent = await body_for(stub, monkeypatch, "mistral/m", effort="high")
    assert "reasoning_effort" not in sent


@pytest.mark.parametrize("model", ["anthropic/claude", "deepseek/deepseek-reasoner"])
async def test_thoughts_come_as_pieces_of_their_own(model: str, stub: Stub, monkeypatch: Setup) -> None:
    provider = model.partition("/")[0]
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", f"{stub.address}{'' if provider == 'anthropic' else '/v1'}")
    monkeypatch.setenv(PROVIDERS[provider].variables[0], "k")
    stub.script = [{"thinking": "hm", "thought": "hm", "text": "yes"}]
    opened = open_model(Settings(), choose(Settings(), model))
    events = [event async for event in opened.stream(ModelRequest("s", (Message("user", "q"),)))]
    await opened.close()
    assert [each.text for each in events if isinstance(each, ThoughtDelta)] == ["hm"]
    assert isinstance(events[-1], Turn)
    assert events[-1].message.text == "yes"


# -- the Responses API -------------------------------------------------------------------------------------------------


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **data})}\n\n"


def _response(status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 21,
        "input_tokens_details": {"cached_tokens": 7},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 26,
    }
    told = {"id": "r", "object": "response", "created_at": 1, "model": "x", "output": [], "parallel_tool_calls": True}
    return {**told, "tool_choice": "auto", "tools": [], "status": status, "usage": usage, **more}


async def test_the_responses_api_streams_thinks_calls_and_gets_its_thoughts_back(stub: Stub) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
    place = {"item_id": "i", "output_index": 0, "content_index": 0, "logprobs": []}
    stub.script = [
        {
            "raw": [
                _event(
                    "response.reasoning_summary_text.delta", delta="hm", summary_index=0, item_id="i", output_index=0
                ),
                _event("response.output_item.done", item=thought, output_index=0),
                _event("response.output_text.delta", delta="Looking.", **place),
                _event("response.output_item.done", item={**call, "status": "completed"}, output_index=1),
                _event("response.completed", response=_response()),
            ]
        },
        {
            "raw": [
                _event("response.output_text.delta", delta="A dot.", **place),
                _event("response.completed", response=_response()),
            ]
        },
    ]
    own = ModelSettings(provider="openai", api="responses", effort="low", base_url=f"{stub.address}/v1", name="gpt-5")
    thoughts: list[str] = []
    async with scratch_app(tools=[look], settings=Settings(model=own)) as app:
        model = open_model(app.settings, choose(app.settings))
        loop = app.conversation(model, on_thought=thoughts.append)
        outcome = await loop.ask("look")
        await model.close()
    assert outcome.text == "A dot."
    assert thoughts == ["hm"]
    assert outcome.usage == Usage(28, 10, 14)
    first, second = stub.requests
    assert first["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (first["store"], first["max_output_tokens"]) == (False, 8192)
    assert [each.get("type", each.get("role")) for each in second["input"]] == [
        *("user", "reasoning", "assistant", "function_call", "function_call_output")
    ]
    assert second["input"][1] == {"type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    assert second["input"][-1]["output"][1]["type"] == "input_image"


async def test_the_responses_api_says_why_it_broke_off(stub: Stub) -> None:
    failed = _response("failed", error={"code": "server_error", "message": "out of order"})
    limit = _response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    stub.script = [
        {"raw": [_event("response.incomplete", response=limit)]},
        {"raw": [_event("response.failed", response=failed)]},
    ]
    own = ModelSettings(provider="openai", api="responses", base_url=f"{stub.address}/v1", name="gpt-5")
    model = open_model(Settings(model=own), choose(Settings(model=own)))
    request = ModelRequest("s", (Message("user", "q"),))
    events = [event async for event in model.stream(request)]
    assert isinstance(events[-1], Turn)
    assert events[-1].stop == "max_tokens"
    with pytest.raises(ModelError, match="out of order") as problem:
        [event async for event in model.stream(request)]
    assert problem.value.retryable
    await model.close()


# -- prices ------------------------------------------------------------------------------------------------------------


def test_costs_are_estimated_and_unknown_models_have_none() -> None:
    assert 0 < (estimate_cost("anthropic", "claude-sonnet-4-5", Usage(1000, 1000)) or 0) < 1
    fresh, cached = (estimate_cost("openai", "gpt-5-mini", use) or 0 for use in (Usage(1000), Usage(0, 0, 1000)))
    assert 0 < cached < fresh
    assert estimate_cost("openai", "no-such-model", Usage(1, 1)) is None
    assert estimate_cost("ollama", "qwen3", Usage(1, 1)) is None
    assert estimate_cost("scripted", "scripted", Usage(1, 1)) is None


async def test_an_answer_tells_its_cost_and_a_limit_of_cost_needs_a_known_price() -> None:
    def model(provider: str, name: str) -> ScriptedModel:
        made = ScriptedModel([("look", {})], "done", name=name)
        made.provider = provider
        return made

    async with scratch_app(tools=[look]) as app:
        outcome = await app.ask("q", model=model("openai", "gpt-5-mini"))
        assert outcome.spent.cost
        assert outcome.spent.estimated
        outcome = await app.ask("q", model=model("openai", "unheard-of"))
        assert outcome.spent.cost is None
        assert not outcome.spent.estimated
        outcome = await app.ask("q", model=model("x", "y"), limits=Limits(prices=(1.0, 1.0)))
        assert outcome.spent.cost
        assert not outcome.spent.estimated
    known, unknown = (choose(Settings(), name) for name in ("gpt-5-mini", "openai/unheard-of"))
    assert make_limits(Settings(), known, cost=1.0).cost == 1.0
    with pytest.raises(SettingsError, match="input_price"):
        make_limits(Settings(), unknown, cost=1.0)


def test_stats_show_tokens_and_cost_by_model(stub: Stub, tmp_path: Path) -> None:
    def surehand(*words: str) -> Any:
        command = [sys.executable, "-m", "surehand", *words]
        done = subprocess.run(command, cwd=tmp_path, env=stub.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    answer = json.loads(surehand("ask", "--json", "--model", "openai/gpt-5-mini", "hi"))
    assert answer["usage"]["cost"] > 0
    assert answer["usage"]["cost_estimated"] is True
    surehand("ask", "--model", "openai/unheard-of", "hi")
    rows = {row["model"]: row for row in json.loads(surehand("stats", "--models", "--json"))}
    assert rows["openai/gpt-5-mini"]["cost"] == pytest.approx(answer["usage"]["cost"])
    assert rows["openai/unheard-of"]["cost"] is None
    assert "unknown" in surehand("stats", "--models", "--text")
    for word in ("provider=openai", "name=unheard-of", "input_price=3", "output_price=15"):
        surehand("config", "set", *f"model.{word}".split("="))
    rows = {row["model"]: row for row in json.loads(surehand("stats", "--models", "--json"))}
    used = rows["openai/unheard-of"]["usage"]
    taken = used["input_tokens"] + used["cache_read_tokens"] + used["cache_write_tokens"]
    assert rows["openai/unheard-of"]["cost"] == pytest.approx((taken * 3 + used["output_tokens"] * 15) / 1e6)
    assert rows["openai/unheard-of"]["cost_estimated"] is False
    assert rows["openai/gpt-5-mini"]["cost"] == pytest.approx(answer["usage"]["cost"]), "the prices are of one model"


# -- structured output -------------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    """What is thought of a file."""

    good: bool
    score: int


async def test_an_answer_of_a_given_shape_is_validated_and_asked_for_again() -> None:
    model = ScriptedModel("It is good.", '{"good": "yes"}', '```json\n{"good": true, "score": 7}\n```')
    async with scratch_app(approver=Says("once")) as app:
        outcome = await app.ask("how is it?", model=model, output=Verdict)
    assert outcome.value == Verdict(good=True, score=7)
    assert (outcome.stop, outcome.turns) == ("end", 3)
    assert "score" in model.requests[2].messages[-1].text


async def test_an_answer_that_never_fits_says_so() -> None:
    model = ScriptedModel(*["no"] * 4)
    async with scratch_app() as app:
        outcome = await app.ask("how is it?", model=model, output={"type": "integer"})
        assert (outcome.stop, outcome.value, outcome.turns) == ("invalid_output", None, 4)
        assert not outcome.answered
        with pytest.raises(SettingsError):
            await app.ask("q", model=model, output={"type": "nonsense"})


@pytest.mark.parametrize("flag", ["--json", "--text"])
def test_ask_with_a_schema_prints_the_value_alone(flag: str, stub: Stub, tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    stub.script = [{"text": "a and b"}, {"text": '["a", "b"]'}]
    command = [sys.executable, "-m", "surehand", "ask", flag, "--schema", "schema.json", "name them"]
    done = subprocess.run(command, cwd=tmp_path, env=stub.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["output"] if flag == "--json" else said) == ["a", "b"]
    assert json.dumps(schema) in stub.requests[0]["messages"][-1]["content"]
    bad = subprocess.run([*command[:-2], "nowhere.json", "x"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2


def test_no_key_of_a_provider_reaches_a_command() -> None:
    from surehand.commands.environment import is_secret_name

    assert all(is_secret_name(variable) for row in PROVIDERS.values() for variable in row.variables)
