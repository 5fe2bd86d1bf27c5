"""`@app.transaction`: what is refused when it is declared, and what becomes of the message when it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rocketapp import ConfigError, Message, RocketApp, Router, SendRefused, SendResult, SendUnknown, SetupError
from rocketapp.app.call.transaction import Transaction
from rocketapp.app.publishing import Publishing
from rocketapp.hooks.hook_types import Sending
from rocketapp.model.outgoing import Outgoing, SendStatus
from rocketapp.testing import TestApp
from tests.unit.app.given import QUEUE, NotRunning, message


class Order(msgspec.Struct):
    id: str


class Written(NotRunning):
    """A running app whose producer writes down what it is given and told."""

    def __init__(self, status: SendStatus = SendStatus.OK) -> None:
        self.loop = asyncio.get_running_loop()
        self.status, self.lines = status, list[str]()
        self.sent: list[Outgoing] = []

    def producer(self, cluster: str) -> Any:
        return self

    @property
    def transactions(self) -> Written:
        return self

    async def send(self, sending: Sending) -> Sequence[SendResult]:
        self.sent += sending.messages
        self.lines.append("half")
        return [SendResult("id", "offset-id", QUEUE, 0, self.status)]

    def begin(self, half: SendResult) -> None:
        self.lines.append("begin")

    def leave_open(self, half: SendResult) -> None:
        self.lines.append("left open")

    async def end(self, half: SendResult, *, commit: bool, timeout: float) -> None:
        self.lines.append("commit" if commit else "rollback")


def transaction(written: Written, function: Callable[[Any], Awaitable[bool]]) -> Transaction[Any]:
    made = Transaction("orders", function, cluster="", place="here:1")
    made.join(Publishing(lambda: written))
    return made


@pytest.mark.parametrize(("said", "end"), [(True, "commit"), (False, "rollback")])
async def test_what_the_function_says_ends_the_transaction(said: bool, end: str) -> None:
    written = Written()

    async def place(order: Order) -> bool:
        written.lines.append(f"placed {order.id}")
        return said

    result = await transaction(written, place)(Order("7"), tag="new", keys=["7"])
    assert written.lines == ["half", "begin", "placed 7", end]
    assert (result is not None) is said
    (half,) = written.sent
    assert (half.half, half.body, half.tag, half.keys) == (True, b'{"id":"7"}', "new", ("7",))


@pytest.mark.parametrize("problem", [ValueError("no"), asyncio.CancelledError()])
async def test_what_the_function_raises_reaches_the_caller_and_the_check_decides(problem: BaseException) -> None:
    written = Written()

    async def place(order: Order) -> bool:
        raise problem

    with pytest.raises(type(problem)):
        await transaction(written, place)(Order("7"))
    assert written.lines == ["half", "begin", "left open"]


async def test_a_function_that_says_neither_is_told_so() -> None:
    written = Written()

    async def place(order: Order) -> Any:
        return None

    with pytest.raises(TypeError, match="place returned None: return True or False"):
        await transaction(written, place)(Order("7"))
    assert written.lines == ["half", "begin", "left open"]


async def test_while_it_is_unknown_whether_the_message_is_stored_the_function_is_not_called() -> None:
    written = Written()

    async def lost(sending: Sending) -> Sequence[SendResult]:
        raise SendUnknown(sending.messages[0].topic, "no answer")

    async def place(order: Order) -> bool:
        raise AssertionError("it was called")

    written.send = lost  # type: ignore[method-assign]
    with pytest.raises(SendUnknown):
        await transaction(written, place)(Order("7"))
    assert written.lines == []


@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SendStatus.OK])
async def test_a_half_message_that_may_be_lost_is_rolled_back_and_the_function_not_called(status: SendStatus) -> None:
    written = Written(status)

    async def place(order: Order) -> bool:
        raise AssertionError("it was called")

    with pytest.raises(SendRefused, match=status.name):
        await transaction(written, place)(Order("7"))
    assert written.lines == ["half", "rollback"]


async def test_delays_and_other_clusters_are_no_options() -> None:
    async def place(order: Order) -> bool:
        return True

    made = transaction(Written(), place)
    with pytest.raises(TypeError, match="cluster"):
        await made(Order("7"), cluster="eu")  # type: ignore[call-arg]


async def by_payload(order: Order) -> bool | None:
    return order.id == "7"


async def by_message(message: Message) -> bool | None:
    return message.json() == {"id": "7"}


async def not_yet(message: Message) -> bool | None:
    return None


@pytest.mark.parametrize(("check", "answer"), [(by_payload, True), (by_message, True), (not_yet, None)])
async def test_a_check_gets_the_payload_or_the_message(check: Callable[..., Any], answer: bool | None) -> None:
    async def place(order: Order) -> bool:
        return True

    made = transaction(Written(), place)
    assert made.check(check) is check
    assert await made.ask()(message(b'{"id":"7"}')) is answer


async def test_a_check_that_says_something_else_is_no_answer() -> None:
    async def place(order: Order) -> bool:
        return True

    async def known(order: Order) -> Any:
        return "yes"

    made = transaction(Written(), place)
    made.check(known)
    with pytest.raises(TypeError, match="returned 'yes': return True, False or None"):
        await made.ask()(message(b'{"id":"7"}'))


def test_declarations_that_cannot_work_are_refused_with_their_line() -> None:
    app = RocketApp("shop")

    @app.transaction("orders")
    async def place(order: Order) -> bool:
        return True

    with pytest.raises(SetupError, match=r"has a transaction at .* already"):

        @app.transaction("orders")
        async def again(order: Order) -> bool:
            return True

    with pytest.raises(SetupError, match="async functions"):
        app.transaction("other")(lambda order: True)  # type: ignore[arg-type,return-value]
    with pytest.raises(SetupError, match="only letters"):
        app.transaction("no topic")(by_payload)  # type: ignore[arg-type]
    for cluster, problem in (("eu", "is unknown: RocketApp"), ([], "is unknown: RocketApp")):
        with pytest.raises(SetupError, match=rf"test_transaction\.py:\d+: transaction: cluster=.* {problem}"):
            app.transaction("other", cluster=cluster)(by_payload)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="a check is an async function"):
        place.check(lambda order: True)  # type: ignore[arg-type]
    place.check(by_payload)
    with pytest.raises(SetupError, match="has a check already"):
        place.check(by_message)


async def test_an_app_does_not_start_with_a_transaction_that_cannot_be_asked_about() -> None:
    app = RocketApp("shop", settings={"client": {"name_server": "127.0.0.1:1"}})

    @app.transaction("orders")
    async def place(order: Order) -> bool:
        return True

    with pytest.raises(SetupError, match=r"has no check: write @place\.check"):
        async with app:
            raise AssertionError("it started")


async def test_a_transaction_on_the_unnamed_cluster_needs_that_one(tmp_path: Path) -> None:
    app = RocketApp("shop", clusters={"eu": "127.0.0.1:1"}, settings={"broker": {"dir": str(tmp_path)}})

    @app.subscribe("orders", cluster="eu")
    async def settle(message: Message) -> None: ...

    @app.transaction("orders")
    async def place(order: Order) -> bool:
        return True

    place.check(by_payload)
    with pytest.raises(ConfigError, match="embedded broker"):
        async with app:
            raise AssertionError("it started")


async def test_a_router_brings_its_transactions_with_its_prefix() -> None:
    outer, inner = Router(prefix="shop-"), Router(prefix="new-")
    outer.include(inner)

    @inner.transaction("orders")
    async def place(order: Order) -> bool:
        return True

    with pytest.raises(SetupError, match="is in no app yet"):
        await place(Order("7"))
    app = RocketApp("shop")
    app.include(outer)
    assert place.topic_name == "shop-new-orders"
    with pytest.raises(SetupError, match=r"place has no check"):
        async with TestApp(app):
            raise AssertionError("it started")
    with pytest.raises(SetupError, match="is in an app already"):
        RocketApp("other").include(outer)


async def two(order: Order, message: Message) -> bool | None:
    return None


def test_a_check_takes_one_argument() -> None:
    async def place(order: Order) -> bool:
        return True

    made = Transaction("orders", place, cluster="", place="here:1")
    made.check(two)
    with pytest.raises(SetupError, match="takes one argument"):
        made.ask()
