"""Calls and results in the shapes of MCP, Anthropic and OpenAI, and back."""

from __future__ import annotations

import json

import pytest

from surehand import shapes
from surehand.core.call import BROKEN_ARGUMENTS, Foreign, Image, Text, ToolCall, ToolError, ToolResult, Undo
from surehand.core.names import provider_map
from surehand.core.shapes import (
    call_from_anthropic,
    call_from_mcp,
    call_from_openai,
    call_to_anthropic,
    call_to_mcp,
    call_to_openai,
    result_from_anthropic,
    result_from_mcp,
    result_from_openai,
    result_to_anthropic,
    result_to_mcp,
    result_to_openai,
)

RESULTS = [
    ToolResult(output="plain"),
    ToolResult(output="", data=None),
    ToolResult(data={"n": 1}, output='{"n": 1}'),
    ToolResult(data=[1, 2], output="[1, 2]", meta={"tool": "t", "cached": True}),
    ToolResult(output="see", content=(Text("see"), Image("aGk=", "image/png"))),
    ToolResult(output="x", content=(Text("x"), Foreign({"type": "resource_link", "uri": "file:///a", "name": "a"}))),
    ToolResult(output="done", undo=Undo("ch_1", "edit of a")),
    ToolResult.failed(ToolError("timeout", "too slow", "ask for less", {"timeout_s": 3})),
    ToolResult.failed(ToolError("execution_error", "exit 2"), data={"exit_code": 2}, output="partial output"),
]


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_survives_json(result: ToolResult) -> None:
    assert ToolResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_comes_back_from_mcp_as_it_went(result: ToolResult) -> None:
    shape = json.loads(json.dumps(result_to_mcp(result)))
    assert shape["isError"] is (not result.ok)
    assert shape["content"]
    assert result_from_mcp(shape) == result


@pytest.mark.parametrize("result", RESULTS)
def test_what_a_model_reads_comes_back_from_anthropic(result: ToolResult) -> None:
    block = json.loads(json.dumps(result_to_anthropic("c1", result)))
    assert block["tool_use_id"] == "c1"
    back = result_from_anthropic(block)
    assert back.ok == result.ok
    assert back.output == result.output or not result.ok or any(isinstance(b, Foreign) for b in result.content)
    if result.error:
        assert back.error is not None
        assert (back.error.code, back.error.message, back.error.hint) == (
            result.error.code,
            result.error.message,
            result.error.hint,
        )
    images = [block for block in result.content if isinstance(block, Image)]
    assert [block for block in back.content if isinstance(block, Image)] == images


@pytest.mark.parametrize("result", RESULTS)
def test_what_a_model_reads_comes_back_from_openai(result: ToolResult) -> None:
    back = result_from_openai(json.loads(json.dumps(result_to_openai("c1", result))))
    assert back.ok == result.ok
    assert (back.error.code if back.error else None) == (result.error.code if result.error else None)
    assert [b for b in back.content if isinstance(b, Image)] == [b for b in result.content if isinstance(b, Image)]


def test_a_foreign_servers_error_is_kept() -> None:
    back = result_from_mcp({"content": [{"type": "text", "text": "no such repo"}], "isError": True})
    assert not back.ok
    assert back.error is not None
    assert back.error.message == "no such repo"


CALL = ToolCall("time.now", {"zone": "UTC", "n": [1, {"a": None}]}, id="toolu_1", source="model")


def test_a_call_comes_back_from_every_shape() -> None:
    names = provider_map(["time.now", "time_now"])
    assert call_from_mcp(json.loads(json.dumps(call_to_mcp(CALL)))) == CALL
    assert call_from_anthropic(json.loads(json.dumps(call_to_anthropic(CALL))), names) == CALL
    assert call_from_openai(json.loads(json.dumps(call_to_openai(CALL))), names) == CALL
    assert ToolCall.from_dict(json.loads(json.dumps(CALL.to_dict()))) == CALL


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"'])
def test_broken_arguments_of_a_model_are_handed_over_as_they_are(arguments: str) -> None:
    call = call_from_openai({"id": "1", "function": {"name": "x", "arguments": arguments}})
    assert call.args == {BROKEN_ARGUMENTS: arguments}


@pytest.mark.spec("CORE-4")
def test_a_json_rpc_error_is_a_failure_and_a_whole_response_is_read() -> None:
    failed = shapes.result_from_mcp(
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "Unknown tool: x", "data": {"near": "y"}}}
    )
    assert failed.error is not None
    assert (failed.ok, failed.error.code, failed.error.message) == (False, "invalid_args", "Unknown tool: x")
    assert failed.error.details == {"rpc_code": -32602, "data": {"near": "y"}}
    good = shapes.result_from_mcp({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}})
    assert (good.ok, good.output) == (True, "hi")


WHOLE = [
    ToolResult(data={"n": 1}, output="one", undo=Undo("c1", "put it back"), meta={"tool": "x"}),
    ToolResult(data="text", output="text"),
    ToolResult(content=(Text("a"), Image("aGk=", "image/png")), output="a", meta={"cached": True}),
    ToolResult.failed(ToolError("precondition_failed", "no", "do", {"layer": 7}), data={"n": 1}),
]


@pytest.mark.spec("CORE-4")
@pytest.mark.parametrize("result", WHOLE)
def test_what_a_models_shape_has_no_field_for_is_named_and_can_be_carried(result: ToolResult) -> None:
    anthropic = shapes.result_from_anthropic(shapes.result_to_anthropic("c", result, whole=True))
    openai = shapes.result_from_openai(shapes.result_to_openai("c", result, whole=True))
    for back in (anthropic, openai):
        assert (back.ok, back.output, back.undo, back.meta) == (result.ok, result.output, result.undo, result.meta)
        assert back.error == result.error
        assert back.data == result.data
    named = set(shapes.left_out(result))
    assert ("data" in named) == (result.data not in (None, "text"))
    assert ("undo" in named, "meta" in named) == (result.undo is not None, bool(result.meta))
    assert "surehand-result" not in str(shapes.result_to_anthropic("c", result))
