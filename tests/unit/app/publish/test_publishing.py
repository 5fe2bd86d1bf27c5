"""Publishing from handlers: where messages go, what they carry, and in whose context they are sent."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocketapp import Context, Message, Publisher, RocketApp, SendResult, SetupError
from rocketapp.app.publishing import CORRELATION_ID, Publishing, through
from rocketapp.model.outgoing import Outgoing
from tests.unit.app.given import QUEUE, NotRunning, call_of, line_of, message

WHO = contextvars.ContextVar("WHO", default="nothing")


class Written(NotRunning):
    """A running app whose producers write down what they are given, and in whose context."""

    send_timeout = 3.0

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.sent: list[tuple[str, Outgoing]] = []
        self.seen: list[str] = []

        self.send = through(self.producer)

    def producer(self, cluster: str) -> Any:
        return _Sender(self, cluster)


class _Sender:
    def __init__(self, written: Written, cluster: str) -> None:
        self._written, self._cluster = written, cluster

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        self._written.sent.append((self._cluster, message))
        self._written.seen.append(WHO.get())
        return SendResult("id", "offset-id", QUEUE, 0)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)


def handler(written: Written, function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """The callable of the only handler of an app that runs with `written`."""
    app = RocketApp("shop", clusters={"eu": "h:1"})
    app.subscribe("orders", **options)(function)
    return call_of(app, Publishing(lambda: written))


async def by_argument(first: Message, publish: Publisher) -> None:
    await publish.publish("invoices", b"1")


async def by_context(context: Context) -> None:
    await context.publish("invoices", b"1")


async def many(publish: Publisher) -> None:
    await publish.publish_many("invoices", [b"1"])


async def one_way(publish: Publisher) -> None:
    await publish.publish_one_way("invoices", b"1")


@pytest.mark.parametrize("function", [by_argument, by_context, many, one_way])
async def test_what_a_handler_publishes_carries_the_id_of_the_handled_message(function: Callable[..., Any]) -> None:
    written, handled = Written(), message()
    await handler(written, function)(handled)
    ((cluster, sent),) = written.sent
    assert (cluster, sent.properties) == ("", {CORRELATION_ID: handled.message_id})


async def test_a_correlation_id_is_handed_on_until_another_one_is_given() -> None:
    async def publishes(publish: Publisher) -> None:
        await publish.publish("invoices", b"1", properties={"a": "b"})
        await publish.publish("invoices", b"2", properties={CORRELATION_ID: "own"})

    written = Written()
    await handler(written, publishes)(message(properties={CORRELATION_ID: "first"}))
    handed_on, own = (sent.properties for _, sent in written.sent)
    assert (handed_on, own) == ({"a": "b", CORRELATION_ID: "first"}, {CORRELATION_ID: "own"})


async def test_a_handler_publishes_to_its_own_cluster_unless_it_names_another() -> None:
    async def publishes(publish: Publisher, context: Context) -> None:
        await publish.publish("invoices", b"1")
        await context.publish("invoices", b"1")
        await publish.publish("invoices", b"1", cluster="us")
        await publish.publish("invoices", b"1", cluster=None)

    written = Written()
    await handler(written, publishes, cluster="eu")(message())
    assert [cluster for cluster, _ in written.sent] == ["eu", "eu", "us", ""]


async def test_a_batch_follows_no_single_message() -> None:
    async def publishes(messages: list[Message], context: Context, publish: Publisher) -> None:
        await context.publish("invoices", b"1")
        await publish.publish("invoices", b"1")

    written = Written()
    await handler(written, publishes, batch=10)([message(), message(offset=18)])
    assert [sent.properties for _, sent in written.sent] == [{}, {}]


@pytest.mark.parametrize("ask", [Publisher, Context])
async def test_a_sync_handler_publishes_from_its_thread_in_its_own_context(ask: Any) -> None:
    def publishes(publish: Any) -> None:
        publish.publish_sync("invoices", b"1")

    publishes.__annotations__["publish"] = ask
    written, handled = Written(), message()
    call = handler(written, publishes)

    def in_a_thread() -> None:
        WHO.set("the thread")
        call(handled)

    await asyncio.to_thread(in_a_thread)
    assert written.seen == ["the thread"]
    assert written.sent[0][1].properties == {CORRELATION_ID: handled.message_id}


async def test_an_async_handler_publishes_in_its_own_context() -> None:
    written = Written()
    call = handler(written, by_argument)
    token = WHO.set("the loop")
    await call(message())
    WHO.reset(token)
    assert written.seen == ["the loop"]


def test_two_publishers_are_refused_with_the_function_s_line() -> None:
    async def publishes(one: Publisher, other: Publisher) -> None: ...

    with pytest.raises(SetupError, match="each get the Publisher: keep one") as caught:
        RocketApp("shop").subscribe("orders")(publishes)
    assert caught.value.place == line_of(publishes)


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}, 5])
async def test_publish_many_takes_several_bodies_only(items: Any) -> None:
    with pytest.raises(TypeError, match=r"publish_many\(items=\w+\): give several bodies, or one to publish$"):
        await Publishing(Written).publish_many("invoices", items)


@pytest.mark.parametrize(
    ("call", "instead"),
    [(f"{name}_sync", name) for name in ("publish", "publish_many", "publish_one_way", "request", "recall")],
)
async def test_what_blocks_is_refused_in_the_app_s_loop(call: str, instead: str) -> None:
    written = Written()
    with pytest.raises(SetupError, match=f"{call} would block the event loop for ever: use `await` with `{instead}`"):
        getattr(Publishing(lambda: written), call)("invoices", ["1"] if "many" in call else "1")


@pytest.mark.parametrize("call", ["publish", "publish_many", "publish_one_way", "request", "recall"])
def test_in_a_forked_process_each_call_from_a_thread_is_refused_at_once(call: str) -> None:
    class Forked(Written):
        def __init__(self) -> None:
            self.loop = asyncio.new_event_loop()  # nobody runs it
            self.send_timeout = 0.05

        def producer(self, cluster: str) -> Any:
            raise SetupError("", "a forked process makes a client of its own")

    forked = Forked()
    with pytest.raises(SetupError, match="a forked process"):
        getattr(Publishing(lambda: forked), f"{call}_sync")("orders", ["1"] if call == "publish_many" else "1")
    forked.loop.close()
