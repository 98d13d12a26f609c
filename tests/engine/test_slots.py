"""Places and resources under random arrivals, departures and cancellations: never too many, never a lost turn."""

from __future__ import annotations

import asyncio
import random

import pytest

from surehand.core.errors import ToolFailure
from surehand.engine.slots import Resources, Slot, Turns, Waiters, sort_names


@pytest.mark.parametrize("seed", range(20))
async def test_places_hold_under_random_cancellation(seed: int) -> None:
    chance = random.Random(seed)
    slot, waiters = Slot("t", limit=3, queue_size=10_000), Waiters()
    inside = most = done = 0

    async def visit(number: int) -> None:
        nonlocal inside, most, done
        if not slot.take():
            await slot.wait(waiters, str(number))
        inside += 1
        most = max(most, inside)
        try:
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            slot.leave()
        done += 1

    tasks = [asyncio.create_task(visit(number)) for number in range(60)]
    for _ in range(40):
        await asyncio.sleep(0)
        chance.choice(tasks).cancel()
        if chance.random() < 0.1:
            slot.limit = chance.randint(1, 3)
            slot.admit()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert most <= 3
    assert (slot.running, len(slot.waiting), waiters) == (0, 0, {})
    assert done >= 20
    assert slot.take(), "the place is free again"


@pytest.mark.parametrize("seed", range(20))
async def test_resources_are_exclusive_and_never_lost_under_random_cancellation(seed: int) -> None:
    chance = random.Random(seed)
    resources, waiters = Resources(), Waiters()
    held: set[str] = set()

    async def visit(number: int) -> None:
        names = sort_names(chance.choices("abcd", k=chance.randint(1, 3)))
        if not resources.take(names):
            await resources.wait(names, waiters, str(number))
        assert not held.intersection(names), "held by two at once"
        held.update(names)
        try:
            await asyncio.sleep(0)
        finally:
            held.difference_update(names)
            resources.leave(names)

    tasks = [asyncio.create_task(visit(number)) for number in range(60)]
    for _ in range(40):
        await asyncio.sleep(0)
        chance.choice(tasks).cancel()
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert not [each for each in outcomes if isinstance(each, AssertionError)]
    assert resources.take(("a", "b", "c", "d")), "everything is free again"


async def test_turns_come_in_the_order_of_arrival() -> None:
    slot, waiters, order = Slot("t", limit=1), Waiters(), list[int]()
    assert slot.take()

    async def visit(number: int) -> None:
        await slot.wait(waiters, str(number))
        order.append(number)
        slot.leave()

    tasks = [asyncio.create_task(visit(number)) for number in range(10)]
    await asyncio.sleep(0)
    slot.leave()
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_nobody_overtakes_those_who_wait() -> None:
    slot, waiters = Slot("t", limit=1), Waiters()
    assert slot.take()
    waiting = asyncio.create_task(slot.wait(waiters, "first"))
    await asyncio.sleep(0)
    slot.leave()
    assert not slot.take(), "the place is promised"
    assert await waiting >= 0
    slot.leave()


async def test_a_raised_limit_lets_those_who_wait_in() -> None:
    slot, waiters = Slot("t", limit=1), Waiters()
    assert slot.take()
    waiting = [asyncio.create_task(slot.wait(waiters, str(number))) for number in range(3)]
    await asyncio.sleep(0)
    slot.limit = 4
    slot.admit()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert slot.running == 4


async def test_a_queue_of_no_size_refuses_at_once() -> None:
    slot = Slot("t", limit=1, queue_size=0)
    assert slot.take()
    with pytest.raises(ToolFailure, match="its queue is full") as refused:
        await slot.wait(Waiters(), "x")
    assert refused.value.code == "queue_full"


async def test_only_calls_of_the_current_turn_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    monkeypatch.setattr("surehand.engine.slots.perf_counter", lambda: now)
    turns = Turns()
    assert not turns.is_over()
    first = turns.number
    now += 1
    assert turns.is_over()
    turns.end(first)  # a call of the first turn has waited, so that turn has passed
    assert not turns.is_over()
    now += 1
    turns.end(first)  # as another one has
    assert turns.is_over()
    await asyncio.wait_for(turns.wait(), 60)
    assert not turns.is_over()
