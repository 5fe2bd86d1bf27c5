"""What an OTLP collector sees of an app: the traces of its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace

from rocketapp import DeadLetter, Message, Policy, Pull, Retry, RocketApp, Skip, SyncPull
from rocketapp.plugins.telemetry.config import TelemetryConfig
from tests.unit.plugins.telemetry.collector import Collector
from tests.unit.plugins.telemetry.given import Settled, running

JAVA_TRACE, JAVA_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


def config(collector: Collector, **options: object) -> TelemetryConfig:
    return TelemetryConfig(endpoint=collector.endpoint, metrics=False, **options)  # type: ignore[arg-type]


async def test_publish_handle_publish_handle_is_one_trace(collector: Collector) -> None:
    settled = Settled(2)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders", tags="paid")
    async def settle(message: Message) -> None:
        await app.publish("parcels", b"p", order_key="o-1")

    @app.subscribe("parcels", group="packing", orderly=True)
    def pack(message: Message) -> None: ...

    async with running(app, config(collector)):
        result = await app.publish("orders", b"{}", tag="paid", keys=["k1", "k2"])
        await settled.all.wait()
    send, process, send_on, process_on = collector.spans
    assert [(span.name, span.kind) for span in collector.spans] == [
        ("send orders", "producer"),
        ("process orders", "consumer"),
        ("send parcels", "producer"),
        ("process parcels", "consumer"),
    ]
    assert {span.trace_id for span in collector.spans} == {send.trace_id}
    assert [span.parent for span in collector.spans] == ["", send.span_id, process.span_id, send_on.span_id]
    client_id = send.attributes.pop("messaging.client.id")
    assert client_id
    partition = f"{result.queue.broker_name}:{result.queue.queue_id}"
    broker = {"messaging.rocketmq.namespace": "", "server.address": "127.0.0.1", "server.port": 1}
    assert send.attributes == {
        **broker,
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": partition,
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 2,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["k1", "k2"],
        "messaging.rocketmq.message.type": "normal",
    }
    assert process.attributes == {
        **broker,
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": partition,
        "messaging.consumer.group.name": "shop",
        "messaging.client.id": client_id,
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 2,
        "messaging.rocketmq.consumption_model": "clustering",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ["k1", "k2"],
        "messaging.rocketmq.message.type": "normal",
        "rocketapp.handler": f"{settle.__module__}:{settle.__qualname__}",
        "rocketapp.attempt": 1,
        "rocketapp.outcome": "done",
    }
    assert (
        send_on.attributes["messaging.rocketmq.message.type"],
        send_on.attributes["messaging.rocketmq.message.group"],
    ) == (
        "fifo",
        "o-1",
    )
    assert process_on.attributes["messaging.consumer.group.name"] == "packing"
    assert process_on.attributes["messaging.rocketmq.message.type"] == "fifo"
    assert (send.resource["service.name"], send.resource["service.version"]) == ("shop", "1.2")


async def test_rocketmq_s_own_words_of_a_transaction_and_a_broadcast_group(collector: Collector) -> None:
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders", broadcast=True)
    async def show(message: Message) -> None: ...

    @app.transaction("orders")
    async def place(body: bytes) -> bool:
        return True

    @place.check
    async def known(message: Message) -> bool | None: ...

    async with running(app, config(collector), namespace="eu"):
        await place(b"{}")
        await settled.all.wait()
    send, process = collector.spans
    assert [(span.name, span.kind) for span in (send, process)] == [
        ("send orders", "producer"),
        ("process orders", "consumer"),
    ]
    of_rocketmq = [
        {
            name.removeprefix("messaging.rocketmq."): value
            for name, value in span.attributes.items()
            if "rocketmq." in name
        }
        for span in (send, process)
    ]
    assert of_rocketmq == [
        {"namespace": "eu", "message.type": "transaction"},
        {"namespace": "eu", "message.type": "transaction", "consumption_model": "broadcasting"},
    ]


@pytest.mark.parametrize("orderly", [False, True], ids=["sent back", "in place"])
async def test_a_retry_is_in_the_same_trace_and_links_to_the_attempt_before_it(
    collector: Collector, orderly: bool
) -> None:
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders", orderly=orderly)
    async def settle(message: Message) -> None:
        if message.attempt < 3:
            raise ValueError("no money") if orderly else Retry(after=1)

    async with running(app, config(collector)):
        await app.publish("orders", b"{}")
        await settled.all.wait()
    send, first, second, third = [span for span in collector.spans if not span.name.startswith("nack")]
    nacks = [span for span in collector.spans if span.name == "nack orders"]
    assert [span.parent for span in nacks] == ([] if orderly else [first.span_id, second.span_id])
    assert {(span.kind, span.attributes["messaging.operation.type"]) for span in nacks} <= {("client", "settle")}
    assert {span.trace_id for span in collector.spans} == {send.trace_id}
    assert {span.parent for span in (first, second, third)} == {send.span_id}
    assert (first.links, second.links, third.links) == (
        [],
        [(first.span_id, {"rocketapp.link": "earlier attempt"})],
        [(second.span_id, {"rocketapp.link": "earlier attempt"})],
    )
    assert [span.attributes["rocketapp.attempt"] for span in (first, second, third)] == [1, 2, 3]
    assert [span.attributes["rocketapp.outcome"] for span in (first, second, third)] == ["failed", "failed", "done"]
    if orderly:
        told = first.error, first.attributes["error.type"], first.events
        assert told == ("ValueError: no money", "ValueError", ["exception"])


@pytest.mark.parametrize(
    "name", ["traceparent", "TRACE_CONTEXT"], ids=["rocketmq-client", "the gRPC client by a proxy"]
)
async def test_the_java_client_s_trace_is_continued(collector: Collector, name: str) -> None:
    """Simulated: the property is written exactly as OpenTelemetry's instrumentation of the Java client writes it."""
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders")
    def settle(message: Message) -> None:
        assert trace.get_current_span().get_span_context().trace_state.get("vendor") == "x"
        app.publish_sync("parcels", b"p")

    async with running(app, config(collector)) as java:
        await java.send("orders", b"{}", **{name: f"00-{JAVA_TRACE}-{JAVA_SPAN}-01", "tracestate": "vendor=x"})
        await settled.all.wait()
    process, send = collector.spans
    assert (process.name, process.trace_id, process.parent) == ("process orders", JAVA_TRACE, JAVA_SPAN)
    assert (send.name, send.trace_id, send.parent) == ("send parcels", JAVA_TRACE, process.span_id)


async def test_a_batch_links_to_its_messages(collector: Collector) -> None:
    settled = Settled(3)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders", batch=3, batch_wait=0.2)
    async def settle(messages: list[Message]) -> None: ...

    async with running(app, config(collector)):
        await app.publish_many("orders", [b"1", b"2"], properties={"traceparent": "not mine"})
        await app.publish("orders", b"3")
        await settled.all.wait()
    many, one, *batches = collector.spans
    assert many.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in many.attributes
    assert sorted(link for batch in batches for link, _ in batch.links) == sorted([many.span_id] * 2 + [one.span_id])
    assert sum(batch.attributes["messaging.batch.message_count"] for batch in batches) == 3
    assert {span.attributes["server.port"] for span in (many, *batches)} == {1}
    assert {batch.parent for batch in batches} == {""}


async def test_a_batch_of_which_some_are_tried_again_is_the_attempt_that_these_link_to(collector: Collector) -> None:
    settled = Settled(3)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders", batch=3, batch_wait=0.2, retries=1, retry=Policy(delays=[1]))
    async def settle(messages: list[Message]) -> dict[Message, Retry]:
        return {message: Retry() for message in messages if message.text() == "again"}

    async with running(app, config(collector)):
        await app.publish_many("orders", [b"done", b"again", b"done"], order_key="one")
        await settled.all.wait()
    send, first, nack, second, dead = collector.spans
    assert [first.attributes["rocketapp.outcome"], second.attributes["rocketapp.outcome"]] == ["failed", "failed"]
    assert first.links == [(send.span_id, {})] * 3
    assert second.links == [(send.span_id, {}), (first.span_id, {"rocketapp.link": "earlier attempt"})]
    assert (nack.name, nack.parent) == ("nack orders", first.span_id)
    assert (dead.name, dead.parent) == ("dead_letter orders", second.span_id)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_polled_call_is_a_span_that_links_to_what_it_has_pulled(collector: Collector, kind: str) -> None:
    settled = Settled(2)
    app = RocketApp("shop", plugins=[settled])

    def judge(messages: list[Message]) -> None:
        if messages and messages[0].attempt == 1:
            raise ValueError("not yet")

    async def work(pull: Pull) -> None:
        if messages := await pull():
            judge(messages)
            await app.publish("parcels", b"p")

    def work_in_thread(pull: SyncPull) -> None:
        if messages := pull():
            judge(messages)
            app.publish_sync("parcels", b"p")

    app.poll("orders", every=0.05, start="first")(work if kind == "async" else work_in_thread)  # type: ignore[arg-type]
    async with running(app, config(collector)):
        await app.publish("orders", b"1", order_key="one")
        await app.publish("orders", b"2", order_key="one")
        await settled.all.wait()
    one, two = (span for span in collector.spans if span.name == "send orders")
    calls = [span for span in collector.spans if span.name == "process orders"]
    assert {span.attributes["messaging.batch.message_count"] for span in calls} >= {0}
    assert {span.parent for span in calls} == {""}
    failed = [span for span in calls if span.attributes.get("error.type") == "ValueError"]
    done = [span for span in calls if span.links and span not in failed]
    sent = {one.span_id, two.span_id}
    assert {link for span in failed for link, _ in span.links} == sent
    assert {link for span in done for link, _ in span.links} == sent | {span.span_id for span in failed}
    assert sum(span.attributes["messaging.batch.message_count"] for span in done) == 2
    parcels = [span for span in collector.spans if span.name == "send parcels"]
    assert {span.parent for span in parcels} == {span.span_id for span in done}
    pulls = [span for span in collector.spans if span.name == "receive orders"]
    assert {span.parent for span in pulls} == {span.span_id for span in (*failed, *done)}
    assert {link for span in pulls for link, _ in span.links} == sent
    for span in pulls:
        found = span.attributes
        assert (found["messaging.operation.type"], found["messaging.consumer.group.name"]) == ("receive", "shop")
        assert (found["server.address"], found["messaging.destination.name"]) == ("127.0.0.1", "orders")


async def test_a_trace_that_is_not_kept_costs_no_span_and_stays_one(collector: Collector) -> None:
    settled = Settled(3)
    app = RocketApp("shop", plugins=[settled])
    seen: list[str] = []

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        assert not trace.get_current_span().is_recording()
        await app.publish("parcels", b"p")

    @app.subscribe("parcels")
    async def pack(message: Message) -> None:
        seen.append(message.properties["traceparent"])
        if len(seen) == 1:
            raise Skip

    async with running(app, config(collector, sample=0.0)) as other:
        java = f"00-{JAVA_TRACE}-{JAVA_SPAN}-00"
        await other.send("orders", b"{}", traceparent=java)
        await settled_of(seen, 1)
        await other.send("orders", b"{}")
        await settled_of(seen, 2)
    assert collector.spans == []
    assert seen[0] == java
    assert seen[1].endswith("-00")
    assert JAVA_TRACE not in seen[1]


async def settled_of(seen: list[str], count: int) -> None:
    async with asyncio.timeout(60):
        while len(seen) < count:  # noqa: ASYNC110 - a counter has no event to wait for
            await asyncio.sleep(0.01)


async def test_outcomes_are_told(collector: Collector) -> None:
    settled = Settled(5)
    app = RocketApp("shop", plugins=[settled], retry=Policy(on={KeyError: Skip, ValueError: DeadLetter}))
    reasons = {b"old": KeyError("item"), b"wrong": ValueError("amount"), b"dead": DeadLetter("hopeless")}

    @app.subscribe("orders")
    async def settle(message: Message) -> object:
        if message.body in reasons:
            raise reasons[message.body]
        return Skip if message.body == b"skip" else "fine"

    async with running(app, config(collector)):
        for body in ("fine", "skip", "old", "wrong", "dead"):
            await app.publish("orders", body)
        await settled.all.wait()
    spans = [span for span in collector.spans if span.kind == "consumer"]
    dead = [span.span_id for span in spans if span.attributes["rocketapp.outcome"] == "dead letter"]
    settled_spans = [span for span in collector.spans if span.name == "dead_letter orders"]
    assert sorted(span.parent for span in settled_spans) == sorted(dead)
    assert {span.attributes["messaging.operation.type"] for span in settled_spans} == {"settle"}
    assert sorted((span.attributes["rocketapp.outcome"], span.error) for span in spans) == [
        ("dead letter", "DeadLetter: hopeless"),
        ("dead letter", "ValueError: amount"),
        ("done", ""),
        ("skip", ""),
        ("skip", ""),
    ]
