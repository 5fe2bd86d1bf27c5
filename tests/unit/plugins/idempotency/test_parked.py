"""A copy of a message that is being handled is parked: it uses no attempt and no worker, in every consume mode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.plugin import CLAIMED, DONE, Answer, Claim, MarkState, hookimpl
from rocketapp.plugins.idempotency.decisions import MemoryStore
from rocketapp.testing import TestApp

MODES: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "keyed": {"order_by": lambda message: message.text()},
    "batch": {"batch": 2, "batch_wait": 0.1},
    "batch in order": {"batch": 2, "batch_wait": 0.1, "orderly": True},
}


class Elsewhere(MemoryStore):
    """Another process handles the message that is claimed first, until it has `ended`."""

    def __init__(self) -> None:
        super().__init__(100)
        self.key, self.ended, self.looks = "", None, 0

    key: str
    ended: Answer | None

    @hookimpl
    def idempotency_store(self) -> MemoryStore:
        return self

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        self.key = self.key or claims[0].key
        answers = list(await super().claim(claims, lease=lease))
        for at, claim in enumerate(claims):
            if claim.key == self.key and self.ended is not CLAIMED:
                self.looks += 1
                answers[at] = self.ended or Answer(MarkState.RUNNING, "elsewhere", lease / 2)
        return answers


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", [DONE, CLAIMED], ids=["done", "died"])
def test_it_uses_no_attempt_and_no_worker(mode: str, is_async: bool, end: Answer) -> None:
    store, taken = Elsewhere(), list[tuple[str, int]]()
    app = RocketApp("shop", plugins=[store])

    def handle(handed: Any) -> None:
        taken.extend((one.text(), one.attempt) for one in (handed if isinstance(handed, list) else [handed]))

    options = {"idempotent": lambda message: message.text(), "retries": 0, "concurrency": 1, **MODES[mode]}
    if "batch" in options and is_async:

        @app.subscribe("orders", **options)
        async def batch(messages: list[Message]) -> None:
            handle(messages)
    elif "batch" in options:

        @app.subscribe("orders", **options)
        def batch_sync(messages: list[Message]) -> None:
            handle(messages)
    elif is_async:

        @app.subscribe("orders", **options)
        async def single(message: Message) -> None:
            handle(message)
    else:

        @app.subscribe("orders", **options)
        def single_sync(message: Message) -> None:
            handle(message)

    with TestApp(app) as t:
        t.publish("orders", "copy", order_key="a")
        t.advance(2)
        for key in "bcdefg":  # at least one of them is in another queue
            t.publish("orders", key, order_key=key)
        t.advance(18)
        others = len(taken)
        assert others >= 1 and store.looks > 10
        store.ended = end
        t.settle()
        assert (len(t.handled), t.retried, t.dead) == (7, [], [])
    assert taken.count(("copy", 1)) == (0 if end is DONE else 1)
    assert {attempt for _, attempt in taken} == {1}


@pytest.mark.parametrize("mode", MODES)
def test_a_stop_does_not_wait_for_it(mode: str) -> None:
    store, loop = Elsewhere(), list[asyncio.AbstractEventLoop]()
    app = RocketApp("shop", plugins=[store])

    async def handle(handed: Message) -> None: ...

    async def handle_batch(handed: list[Message]) -> None: ...

    app.subscribe("orders", idempotent=True, **MODES[mode])(handle_batch if "batch" in MODES[mode] else handle)

    @app.on_startup
    async def began() -> None:
        loop.append(asyncio.get_running_loop())

    with TestApp(app) as t:
        t.publish("orders", "copy")
        t.advance(20)
        before = loop[0].time()
    assert store.looks > 10
    assert loop[0].time() - before < 3


class SlowToMark(MemoryStore):
    """It takes half a minute to remember that a message is done."""

    def __init__(self) -> None:
        super().__init__(100)

    @hookimpl
    def idempotency_store(self) -> MemoryStore:
        return self

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await asyncio.sleep(30)
        await super().done(keys, expiry=expiry)


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_cuts_no_mark_so_that_the_effect_happens_once(mode: str) -> None:
    app, effects = RocketApp("shop", plugins=[SlowToMark()]), list[int]()
    options = {"idempotent": True, "timeout": 5, **MODES[mode]}
    if "batch" in options:

        @app.subscribe("orders", **options)
        async def batch(messages: list[Message]) -> None:
            effects.append(messages[0].attempt)
    else:

        @app.subscribe("orders", **options)
        async def single(message: Message) -> None:
            effects.append(message.attempt)

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert (len(t.handled), t.retried) == (1, [])
    assert effects == [1]
