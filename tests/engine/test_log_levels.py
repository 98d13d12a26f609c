"""The log: what each tool may say there is a setting of its own."""

from __future__ import annotations

import logging

import pytest

from surehand.core.settings import MonitoringSettings, Settings, ToolSettings
from surehand.core.tool import tool
from surehand.testing import scratch_app


@tool(read_only=True)
async def chatty() -> str:
    "Says something."
    return "said"


@tool(read_only=True)
async def quiet(fail: bool = False) -> str:
    "Says little."
    if fail:
        raise RuntimeError("broken")
    return "said"


async def test_a_tool_is_logged_from_its_own_level_on(caplog: pytest.LogCaptureFixture) -> None:
    own = ToolSettings(monitoring=MonitoringSettings(log_level="error"))
    with caplog.at_level(logging.INFO, logger="surehand"):
        async with scratch_app(tools=[chatty, quiet], builtin=False, settings=Settings(tools={"quiet": own})) as app:
            await app.call("chatty")
            await app.call("quiet")
            await app.call("quiet", {"fail": True})
    said = [record.getMessage() for record in caplog.records]
    assert any("chatty finished" in line for line in said)
    assert not any("quiet started" in line or "quiet finished" in line for line in said)
    assert any("quiet failed" in line and "broken" in line for line in said)


async def test_a_time_out_is_logged_also_where_ordinary_calls_are_not(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    @tool(read_only=True, timeout_s=0.02)
    async def hangs() -> str:
        "Hangs."
        await asyncio.Event().wait()
        return ""

    with caplog.at_level(logging.WARNING, logger="surehand"):
        async with scratch_app(tools=[hangs, chatty], builtin=False) as app:
            await app.call("chatty")
            await app.call("hangs")
    assert ["hangs failed" in record.getMessage() for record in caplog.records] == [True]
