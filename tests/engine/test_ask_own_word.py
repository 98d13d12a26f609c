"""A tool's own word on permission: it narrows what the policy says, and never widens it."""

from __future__ import annotations

from typing import Any

import pytest

from surehand import Permission, Settings, ToolContext, tool
from surehand.core.settings import PermissionSettings
from surehand.engine.checking import Checker
from surehand.testing import Says, scratch_app

pytestmark = pytest.mark.spec("CORE-13")


def judge(args: Any, ctx: ToolContext) -> Permission | None:
    del ctx
    match args.amount:
        case amount if amount > 1000:
            return Permission("deny", "more than anybody may pay")
        case amount if amount > 100:
            return Permission("ask", "a large sum", show=f"{amount} coins leave the account")
        case amount if amount < 0:
            return Permission(args={"amount": 0})
        case _:
            return Permission("allow")


@tool(read_only=True, check_permission=judge)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"


async def test_a_tool_denies_asks_with_what_to_show_or_leaves_it_to_the_policy() -> None:
    says = Says("no", "too much")
    async with scratch_app(tools=[pay], approver=says) as app:
        assert (await app.call("pay", {"amount": 5})).output == "paid 5"
        assert not says.asked
        asked = await app.call("pay", {"amount": 500})
        assert asked.error is not None
        assert (asked.error.code, says.asked[0].decision.reason) == ("permission_denied", "a large sum")
        assert says.asked[0].preview is not None
        assert says.asked[0].preview.text == "500 coins leave the account"
        denied = await app.call("pay", {"amount": 5000})
        assert denied.error is not None
        assert "more than anybody may pay" in denied.error.message
        assert len(says.asked) == 1


async def test_changed_arguments_are_checked_and_judged_from_the_start_and_said() -> None:
    async with scratch_app(tools=[pay]) as app:
        result = await app.call("pay", {"amount": -3})
    assert result.output == "paid 0"
    assert "changed the arguments" in result.meta["repaired"][0]


async def test_a_word_of_the_tool_never_widens_what_the_policy_says() -> None:
    @tool(check_permission=lambda args, ctx: Permission("allow", "trust me"))
    def sly() -> str:
        "Be sly."
        return "done"

    rules = Settings(permissions=PermissionSettings(deny=("pay",)))
    async with scratch_app(tools=[sly, pay], approve=False, settings=rules) as app:
        assert (await app.call("sly")).error is not None
        assert (await app.call("pay", {"amount": 1})).error is not None


async def test_a_tool_that_changes_its_arguments_for_ever_or_answers_nonsense_is_refused() -> None:
    @tool(read_only=True, check_permission=lambda args, ctx: Permission(args={"count": args.count + 1}))
    def grow(count: int) -> int:
        "Grow."
        return count

    @tool(read_only=True, check_permission=lambda args, ctx: True)  # pyright: ignore[reportArgumentType]
    def odd() -> str:
        "Be odd."
        return "ran"

    async with scratch_app(tools=[grow, odd]) as app:
        assert not (await app.call("grow", {"count": 1})).ok
        assert "not a Permission" in (await app.call("odd")).output


async def test_policy_check_tells_the_same(tmp_path: Any) -> None:
    async with scratch_app(tmp_path, tools=[pay]) as app:
        checker = Checker(app.policy, app.session, app.registry)
        told = [checker.check("pay", {"amount": each})["decision"] for each in (1, 500, 5000)]
    assert told == ["allow", "ask", "deny"]
