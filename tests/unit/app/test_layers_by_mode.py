"""Layer x mode: what stands around a function stands in the same order however its messages are consumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from rocketapp import Message, NoReply, Pull, Retry, RocketApp, Skip, SyncPull
from rocketapp.hooks.manager import Plugins
from rocketapp.plugin import (
    NewWriter,
    QueueSession,
    Subscription,
    Tasks,
    Wrapper,
    hookimpl,
    is_done,
)
from rocketapp.testing import TestApp
from tests.unit.app.given import NOWHERE, bound

BATCH: dict[str, Any] = {"batch": 1}
MODES: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "keyed": {"order_by": lambda message: message.text()},
    "broadcast": {"broadcast": True},
    "batch": BATCH,
    "batch in order": {**BATCH, "orderly": True},
    "sink": {},
    "poll": {"every": 1.0, "concurrency": 1},
}
Where = Literal["telemetry", "idempotency", "database", "middleware"]
KIND = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


class Noting:
    """A wrapper in one layer that notes what goes in, and what comes out: "done", or the name of an outcome."""

    def __init__(self, shop: Shop, layer: Where) -> None:
        self.shop, self.layer, self.slow = shop, layer, 0.0

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        notes, layer = self.shop.notes, self.layer

        def out(result: Any, error: BaseException | None) -> None:
            said = error if error is not None else result
            notes.append(f"{layer}: {'done' if said is None or isinstance(said, dict) else type(said).__name__}")

        def for_async(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            async def around(handed: Any) -> Any:
                notes.append(layer)
                try:
                    result = await call(handed)
                except Exception as error:
                    out(None, error)
                    raise
                if "function" in notes:
                    await asyncio.sleep(self.slow)
                self.shop.commit(layer)
                out(result, None)
                return result

            return around

        def for_sync(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def around(handed: Any) -> Any:
                notes.append(layer)
                try:
                    result = call(handed)
                except Exception as error:
                    out(None, error)
                    raise
                self.shop.commit(layer)
                out(result, None)
                return result

            return around

        write = self.shop.write if layer == "database" else None
        return Wrapper(for_async=for_async, for_sync=for_sync, layer=layer, write=write, polled=True)


class Shop:
    """An app with something in each layer, and one handler of a mode that does what the test says."""

    def __init__(self, consumed: str, *, is_async: bool, publishes: bool = False, **options: Any) -> None:
        self.notes: list[str] = []
        self.then: Callable[[], Any] = lambda: None
        self.failing_commits = 0
        self.is_sink = consumed == "sink"
        self.wrappers = [Noting(self, layer) for layer in ("middleware", "database", "idempotency", "telemetry")]
        self.app = RocketApp("shop", plugins=[_named(one) for one in self.wrappers] + [self])
        self.app.exception_handler(KeyError)(self._known)
        options = {**MODES[consumed], **options}
        if consumed != "poll":
            self.app.middleware(self._middleware)
            self.app.middleware(self._middleware_sync)
        declare = self.app.poll if consumed == "poll" else self.app.subscribe
        function = self._function(options, is_async=is_async)
        if publishes:
            function = self.app.publishes("bills")(function)
        declare("orders", start="first", **options)(function)

    def _function(self, options: dict[str, Any], *, is_async: bool) -> Callable[..., Any]:
        async def single(message: Message) -> dict[str, int]:
            return await self._ran(self.then())  # type: ignore[no-any-return]

        async def batch(messages: list[Message]) -> None:
            return await self._ran(self.then())  # type: ignore[no-any-return]

        async def polled(pull: Pull) -> None:
            if await pull(10):
                return await self._ran(self.then())  # type: ignore[no-any-return]
            return None

        def single_sync(message: Message) -> dict[str, int]:
            return self._ran_sync(self.then)  # type: ignore[no-any-return]

        def batch_sync(messages: list[Message]) -> None:
            return self._ran_sync(self.then)  # type: ignore[no-any-return]

        def polled_sync(pull: SyncPull) -> None:
            if pull(10):
                return self._ran_sync(self.then)  # type: ignore[no-any-return]
            return None

        shape = 2 if "every" in options else 1 if "batch" in options else 0
        return ((single, batch, polled) if is_async else (single_sync, batch_sync, polled_sync))[shape]

    async def _ran(self, said: Any) -> Any:
        self.notes.append("function")
        result = await said if asyncio.iscoroutine(said) else said
        if isinstance(result, Exception):
            raise result
        return result

    def _ran_sync(self, then: Callable[[], Any]) -> Any:
        self.notes.append("function")
        result = then()
        if isinstance(result, Exception):
            raise result
        return result

    def _known(self, message: Any, error: KeyError) -> Skip:
        self.notes.append("mapped")
        return Skip("known")

    async def _middleware(self, message: Any, call_next: Callable[[Any], Any]) -> Any:
        self.notes.append("app's middleware")
        return await call_next(message)

    def _middleware_sync(self, message: Any, call_next: Callable[[Any], Any]) -> Any:
        self.notes.append("app's middleware")
        return call_next(message)

    def commit(self, layer: Where) -> None:
        """What the database does behind the function."""
        if layer == "database" and self.failing_commits:
            self.failing_commits -= 1
            raise OSError("lost at the commit")

    def write(self, topic: str, body: Any, options: Mapping[str, Any]) -> None:
        self.notes.append(f"written: {topic} {body}")

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Callable[[Message], bool]:
        return lambda message: not self.notes.append("filter")  # type: ignore[func-returns-value]

    @hookimpl
    def sink(self, subscription: Subscription) -> NewWriter | None:
        return CallingWriter if self.is_sink else None

    def handled(self, seconds: float = 20) -> list[str]:
        """What is noted of one message."""
        with TestApp(self.app) as t:
            t.publish("orders", "1")
            t.advance(seconds)
        idle = ["telemetry", "idempotency", "database", "middleware"]
        idle += [f"{layer}: done" for layer in reversed(idle)]
        notes = self.notes
        while notes[: len(idle)] == idle:  # a polled call that pulled nothing
            del notes[: len(idle)]
        return notes


def _named(plugin: Noting) -> Any:
    """Plugins of one class in one app have names of their own."""
    kind = type(f"In{plugin.layer.title()}", (), {"handler_wrapper": plugin.handler_wrapper})
    return kind()


class CallingWriter:
    """A sink that calls the function for each message."""

    def __init__(self, session: QueueSession[Message]) -> None:
        self._session, self._tasks = session, Tasks(lambda event: None)

    def take(self, messages: Sequence[Message]) -> None:
        self._tasks.start(self._call(messages), "calls")

    async def _call(self, messages: Sequence[Message]) -> None:
        for message in messages:
            call, subscription = self._session.call, self._session.subscription
            try:
                result = await call(message) if subscription.is_async else await asyncio.to_thread(call, message)
            except Exception as error:
                self._session.failed(message, error)
                continue
            if is_done(result, subscription):
                self._session.done([message])
            else:
                self._session.failed(message, result)

    async def drain(self) -> None:
        await self._tasks.close()

    def discard(self) -> None: ...


def layers(mode: str) -> list[str]:
    """On the way in."""
    polled = mode == "poll"
    inside = [] if polled else ["app's middleware"]
    return ["telemetry", *([] if polled else ["filter"]), "idempotency", "database", "middleware", *inside, "function"]


@KIND
@pytest.mark.parametrize("mode", MODES)
def test_the_order_is_the_same(mode: str, is_async: bool) -> None:
    out = [f"{layer}: done" for layer in ("middleware", "database", "idempotency", "telemetry")]
    assert Shop(mode, is_async=is_async).handled(2)[: len(layers(mode)) + 4] == layers(mode) + out


@KIND
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "poll"])
def test_an_exception_reaches_the_transaction_before_it_is_mapped(mode: str, is_async: bool) -> None:
    shop = Shop(mode, is_async=is_async)
    shop.then = lambda: KeyError("half an effect")
    out = ["middleware: KeyError", "database: KeyError", "mapped", "idempotency: Skip", "telemetry: Skip"]
    assert shop.handled() == layers(mode) + out


@KIND
@pytest.mark.parametrize("mode", ["concurrent", "orderly", "keyed", "broadcast", "sink"])
def test_a_publication_is_written_within_the_transaction(mode: str, is_async: bool) -> None:
    shop = Shop(mode, is_async=is_async, publishes=True)
    shop.then = lambda: {"bill": 1}
    out = ["middleware: done", "written: bills {'bill': 1}", "database: done", "idempotency: done", "telemetry: done"]
    assert shop.handled() == layers(mode) + out


@KIND
@pytest.mark.parametrize("mode", ["concurrent", "orderly", "keyed", "sink"])
def test_a_request_is_answered_when_the_transaction_is_committed(mode: str, is_async: bool) -> None:
    shop = Shop(mode, is_async=is_async, retries=0)
    shop.then = lambda: {"booked": True}
    with TestApp(shop.app) as t:
        assert t.request("orders", "1", timeout=60).json() == {"booked": True}
        shop.failing_commits = 1
        with pytest.raises(NoReply):
            t.request("orders", "2")
        t.settle()
    assert shop.notes.count("function") == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_ends_the_function_and_cuts_nothing_around_it(mode: str) -> None:
    shop = Shop(mode, is_async=True, timeout=3.0)
    calls = iter([60.0])

    async def sleeps() -> None:
        await asyncio.sleep(next(calls, 1.0))

    shop.then = sleeps
    for one in shop.wrappers:
        one.slow = 10.0
    notes = shop.handled(200)
    out = [f"{layer}: TimeoutError" for layer in ("middleware", "database", "idempotency", "telemetry")]
    first = layers(mode) + out
    assert notes[: len(first)] == first
    is_again = mode != "broadcast"  # what fails there is dropped
    assert "database: done" in notes or not is_again


OUTCOMES = {type(one).__name__: one for one in (Retry(), Skip("no"))}


@KIND
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_an_outcome_is_the_same_returned_and_raised(mode: str, is_async: bool, outcome: Any) -> None:
    name = type(outcome).__name__
    shop = Shop(mode, is_async=is_async)
    shop.then = lambda: outcome  # `_ran` raises what is an exception
    first = layers(mode) + [f"{layer}: {name}" for layer in ("middleware", "database", "idempotency", "telemetry")]
    assert shop.handled(2)[: len(first)] == first


def test_a_popped_topic_has_the_same_layers() -> None:
    """No embedded broker hands out single messages."""
    names = []
    for options in ({}, {"mode": "pop"}):
        shop = Shop("concurrent", is_async=True, timeout=5.0, **options)
        plugins = Plugins()
        for number, one in enumerate([*shop.wrappers, shop]):
            plugins.register(one, f"plugin-{number}")
        names.append([(layer.name, layer.of) for layer in bound(shop.app).layers(NOWHERE, plugins)])
    assert names[0] == names[1]
    assert len(names[0]) == 10
