"""A batch handler with idempotent=: each message by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Outcomes, Policy, Retry, RocketApp, Skip
from rocketapp.hooks.idempotency import Answer, Claim
from tests.unit.plugins.idempotency.stage import FailingStore, in_thread, message, opened, settled
from tests.unit.scripted import in_virtual_time


class Taken(list[list[bytes]]):
    """The batches that the handler of an app was given, and what it returns or raises next."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.app = RocketApp("shop")
        self.answer: Any = None

        @self.app.subscribe("orders", batch=10, idempotent=True)
        async def take(messages: list[Message]) -> Any:
            self.append([message.body for message in messages])
            await asyncio.sleep(seconds)
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer(messages) if callable(self.answer) else self.answer


def batch(*names: str, offset: int = 0) -> list[Message]:
    """Messages of these ids; the body of each is its id."""
    return [message(name, name.encode(), offset=offset + at) for at, name in enumerate(names)]


@in_virtual_time
async def test_those_that_are_done_are_left_out_and_the_rest_is_handled() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        assert await call(batch("A", "B")) is None
        again = batch("B", "C", "A", offset=10)
        outcomes = await call(again)
        assert [type(outcomes[one]) for one in again] == [Skip] * 3
        await call(batch("A", "B", "C", offset=20))
    assert taken == [[b"A", b"B"], [b"C"]]


@in_virtual_time
async def test_copies_within_one_batch_are_handled_once() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        copies = batch("A", "A", "B")
        outcomes = await call(copies)
        assert [type(outcomes[one]) for one in copies] == [Skip] * 3
    assert taken == [[b"A", b"B"]]


@in_virtual_time
async def test_a_batch_that_fails_whole_is_handled_again_whole() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        taken.answer = ValueError("no")
        with pytest.raises(ValueError):
            await call(batch("A", "B"))
        taken.answer = None
        await call(batch("A", "B"))
    assert taken == [[b"A", b"B"]] * 2


@in_virtual_time
async def test_a_failing_rest_does_not_drag_along_what_was_done() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        await call(batch("A"))
        taken.answer = ValueError("no")
        messages = batch("A", "B", "B")
        outcomes = await call(messages)
        assert [type(outcomes[one]) for one in messages] == [Skip, Retry, Retry]
        assert str(outcomes[messages[1]].__cause__) == "no"


@in_virtual_time
async def test_a_rest_that_is_cancelled_stays_cancelled_beside_what_was_done() -> None:
    taken = Taken(5.0)
    async with opened(taken.app) as call:
        await call(batch("A"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await call(batch("A", "B"))
        assert await call(batch("B")) is None
    assert taken == [[b"A"], [b"B"], [b"B"]]


@in_virtual_time
async def test_a_handler_may_empty_the_list_that_it_gets() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        taken.answer = lambda messages: messages.clear()
        assert await call(batch("A", "B")) is None
        messages = batch("A", "B")
        outcomes = await call(messages)
        assert [type(outcomes[one]) for one in messages] == [Skip] * 2
    assert taken == [[b"A", b"B"]]


@in_virtual_time
async def test_single_outcomes_decide_for_single_messages() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        taken.answer = lambda messages: Outcomes({messages[0]: Retry(5), messages[1]: DeadLetter("no")})
        first = batch("A", "B", "C")
        outcomes = await call(first)
        assert list(outcomes) == first[:2]
        taken.answer = None
        await call(batch("A", "B", "C"))
        await call([*batch("D"), *batch("C", "A")])
    assert taken == [[b"A", b"B", b"C"], [b"A", b"B"], [b"D"]]


@in_virtual_time
async def test_outcomes_are_kept_beside_what_was_done_before() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        await call(batch("A"))
        taken.answer = lambda messages: Outcomes({messages[0]: Retry(5)})
        messages = batch("A", "B", "C")
        outcomes = await call(messages)
        assert [type(outcomes[one]) for one in messages] == [Skip, Retry, Skip]
        assert outcomes[messages[1]].after == 5


@in_virtual_time
async def test_what_looks_like_outcomes_and_is_not_marks_nothing() -> None:
    taken = Taken()
    async with opened(taken.app) as call:
        taken.answer = Outcomes({message("Z"): Retry()})
        assert await call(batch("A", "B")) is taken.answer
        taken.answer = None
        await call(batch("A", "B"))
    assert taken == [[b"A", b"B"]] * 2


@in_virtual_time
async def test_two_batches_that_need_each_other_s_messages_both_end() -> None:
    taken = Taken(seconds=1.0)
    async with opened(taken.app) as call:
        async with asyncio.timeout(10):
            both = batch("A", "B", "C"), batch("D", "C", "B", "A", "E", offset=10)
            await asyncio.gather(*(settled(call, one) for one in both))
    assert taken == [[b"A", b"B", b"C"], [b"D"], [b"E"]]


@in_virtual_time
async def test_messages_behind_one_that_waits_are_handled_after_it() -> None:
    taken = Taken(seconds=1.0)
    async with opened(taken.app) as call:
        first = asyncio.gather(call(batch("B")))
        await asyncio.sleep(0.1)
        await settled(call, batch("A", "B", "C", offset=10))
        await first
    assert taken == [[b"B"], [b"A"], [b"C"]]


@in_virtual_time
async def test_when_the_store_is_down_all_messages_are_retried_with_the_reason() -> None:
    store, taken = FailingStore(), Taken()
    async with opened(taken.app, store) as call:
        store.down = {"claim"}
        messages = batch("A", "B")
        outcomes = await call(messages)
        assert [type(outcomes[one]) for one in messages] == [Retry] * 2
        assert "fails: ConnectionError: refused" in str(outcomes[messages[0]].__cause__)
    assert taken == []


@in_virtual_time
async def test_a_cancelled_batch_gives_its_claims_back() -> None:
    taken = Taken(seconds=5.0)
    async with opened(taken.app) as call:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await call(batch("A", "B"))
        began = asyncio.get_running_loop().time()
        await call(batch("A", "B"))
        assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)


@in_virtual_time
async def test_a_batch_that_is_cancelled_while_it_claims_gives_its_claims_back() -> None:
    class Late(FailingStore):
        """Answers the first claim late; its marks are there at once."""

        async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
            answers = await super().claim(claims, lease=lease)
            if self.asked == ["claim"]:
                await asyncio.sleep(5.0)
            return answers

    taken = Taken()
    async with opened(taken.app, Late()) as call:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await call(batch("A", "B"))
        assert await call(batch("A", "B")) is None
    assert taken == [[b"A", b"B"]]


async def test_a_sync_batch_is_handled_message_by_message_too() -> None:
    app, taken = RocketApp("shop"), list[list[bytes]]()

    @app.subscribe("orders", batch=10, idempotent=True)
    def take(messages: list[Message]) -> None:
        taken.append([message.body for message in messages])
        if len(taken) == 1:
            raise ValueError("the first time")

    async with opened(app) as call:
        with pytest.raises(ValueError):
            await in_thread(lambda: call(batch("A", "B")))
        assert await in_thread(lambda: call(batch("A", "B"))) is None
        await in_thread(lambda: call(batch("B", "C", offset=10)))
    assert taken == [[b"A", b"B"], [b"A", b"B"], [b"C"]]


@in_virtual_time
async def test_a_message_without_a_key_fails_alone() -> None:
    app, taken = RocketApp("shop"), list[bytes]()

    def number_of(message: Message) -> str:
        if message.body == b"C":
            raise DeadLetter("no number at all")
        return {b"A": "1", b"D": "4"}[message.body]

    @app.subscribe("orders", batch=10, idempotent=number_of)
    async def take(messages: list[Message]) -> None:
        taken.extend(message.body for message in messages)

    async with opened(app) as call:
        one, without, dead, last = batch("A", "B", "C", "D")
        outcomes = await call([one, without, dead, last])
    assert taken == [b"A", b"D"]
    assert [type(outcomes[each]) for each in (one, without, dead, last)] == [Skip, Retry, DeadLetter, Skip]
    assert isinstance(outcomes[without].__cause__, KeyError)


@in_virtual_time
async def test_a_policy_says_what_an_exception_of_the_key_function_means_in_a_batch_too() -> None:
    app = RocketApp("shop")
    policy = Policy(on={KeyError: DeadLetter})

    @app.subscribe("orders", batch=10, idempotent=lambda message: {b"A": "1"}[message.body], retry=policy)
    async def take(messages: list[Message]) -> None: ...

    async with opened(app) as call:
        one, without = batch("A", "B")
        outcomes = await call([one, without])
    assert [type(outcomes[each]) for each in (one, without)] == [Skip, DeadLetter]
    assert isinstance(outcomes[without].__cause__, KeyError)


async def test_a_large_batch_of_which_half_fails_costs_little_more_than_its_messages() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=8000, idempotent=True)
    async def take(messages: list[Message]) -> Outcomes:
        return Outcomes(dict.fromkeys(messages[::2], Retry()))

    async with opened(app) as call:

        async def cost(first: int, end: int) -> float:
            messages = batch(*(f"{number}" for number in range(first, end)), offset=first)
            began = time.process_time()
            await call(messages)
            return time.process_time() - began

        # The cheapest of three each: one alone may meet a garbage collection, or a busy machine.
        small = min([await cost(first, first + 1000) for first in (0, 1000, 2000)])
        assert min([await cost(first, first + 8000) for first in (3000, 11_000, 19_000)]) < 24 * small
