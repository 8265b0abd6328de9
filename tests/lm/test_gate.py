"""How many calls an endpoint gets at a time."""

from __future__ import annotations

import asyncio

import pytest

from lm.gate import COOL_SECONDS, Gate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def crowd(gate: Gate, calls: int) -> int:
    """The most calls that were in flight at once, of `calls` that all want to go."""
    inside, most = 0, 0

    async def call() -> None:
        nonlocal inside, most
        async with gate.slot():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(call() for _ in range(calls)))
    return most


async def test_no_more_calls_than_the_bound_are_in_flight_and_all_get_their_turn() -> None:
    assert await crowd(Gate(3), 20) == 3


async def test_calls_refused_together_halve_the_bound_once_and_the_next_refusal_halves_it_again() -> None:
    gate = Gate(16)
    async with gate.slot() as one, gate.slot() as other:
        gate.rate_limited(one, 0.0)
        gate.rate_limited(other, 0.0)
    assert gate.limit == 8
    async with gate.slot() as later:
        gate.rate_limited(later, 0.0)
    assert gate.limit == 4
    assert await crowd(gate, 12) == 4


async def test_the_bound_never_falls_below_one() -> None:
    gate = Gate(2)
    for _ in range(5):
        async with gate.slot() as mark:
            gate.rate_limited(mark, 0.0)
    assert gate.limit == 1
    assert await crowd(gate, 3) == 1


async def test_a_full_round_of_answers_raises_the_bound_by_one_up_to_the_most() -> None:
    gate = Gate(4)
    async with gate.slot() as mark:
        gate.rate_limited(mark, 0.0)
    assert gate.limit == 2
    for _ in range(3):
        gate.answered()
    assert gate.limit == 3
    for _ in range(50):
        gate.answered()
    assert gate.limit == 4


async def test_after_a_failure_of_the_endpoint_the_bound_stays_for_a_while_and_does_not_shrink() -> None:
    clock = Clock()
    gate = Gate(8, clock)
    async with gate.slot() as mark:
        gate.rate_limited(mark, 0.0)
    gate.troubled()
    for _ in range(50):
        gate.answered()
    assert gate.limit == 4
    clock.now += COOL_SECONDS
    for _ in range(50):
        gate.answered()
    assert gate.limit == 8


async def test_nobody_goes_before_the_time_that_a_rate_limit_names(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    gate = Gate(4, clock)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    async with gate.slot() as mark:
        gate.rate_limited(mark, 7.0)
    monkeypatch.setattr("lm.gate.asyncio.sleep", sleep)
    async with gate.slot():
        assert slept == [7.0]
    async with gate.slot():
        assert slept == [7.0]


async def test_a_cancelled_call_gives_its_place_back() -> None:
    gate = Gate(1)
    entered = asyncio.Event()

    async def hold() -> None:
        async with gate.slot():
            entered.set()
            await asyncio.sleep(60)

    holding = asyncio.create_task(hold())
    await entered.wait()
    waiting = [asyncio.create_task(crowd(gate, 1)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    holding.cancel()
    assert await waiting[1] == 1
