"""Calls of handlers leave records of message trace: what begins, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rocketapp.client.traces import Traces
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.traced import TracedCalls, traced
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Outcomes, Retry, Skip
from rocketapp.model.policy import Policy
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.trace import pack
from tests.cases import cases
from tests.golden.traces import SubAfterRecord, SubBeforeRecord, TraceRecord, decode
from tests.unit.consumer.fake_cluster import consumed, subscription
from tests.unit.scripted import in_virtual_time


class Hands:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at


def records_of(call: Callable[[Any], Any], item: Any, **declared: Any) -> list[TraceRecord]:
    """What one call of a handler in a thread leaves."""
    traces = Traces("traces", Hands())
    handler = TracedCalls("g", traces, "R").around(Handler(subscription(is_async=False, **declared), call))
    try:
        handler.call(item)
    except Exception as error:
        assert isinstance(error, (Retry, DeadLetter, Skip, LookupError))
    return taken(traces)


def taken(traces: Traces) -> list[TraceRecord]:
    """The records of all that was noted down."""
    return [record for body, _ in pack(traces.take(100) or ()) for record in decode(body)]


def raising(error: Exception) -> Callable[[Any], Any]:
    def handler(_: Any) -> None:
        raise error

    return handler


@cases(
    "call, code",
    [
        (lambda _: None, 0),
        (lambda _: "a value", 0),
        (lambda _: Skip("no"), 0),
        (raising(Skip("no")), 0),
        (raising(LookupError("no")), 2),
        (raising(Retry()), 4),
        (lambda _: Retry, 4),
        (lambda _: DeadLetter("no"), 4),
    ],
)
def test_the_end_of_a_call_says_what_the_engine_makes_of_it(call: Callable[[Any], Any], code: int) -> None:
    message = Message.make(keys=["one", "two"], attempt=3, properties={"MSG_REGION": "eu"})
    before, after = records_of(call, message)
    request, message_id = "R0000000000000001", message.message_id
    assert before == SubBeforeRecord(1_000_000, "eu", "g", request, message_id, 2, "one two")
    assert after == SubAfterRecord(request, message_id, 0, code == 0, "one two", code, 1_000_000, "g")


def test_a_policy_that_skips_an_exception_makes_a_success() -> None:
    policy = Policy(on={LookupError: Skip})
    _, after = records_of(raising(LookupError("no")), Message.make(), retry=policy)
    assert isinstance(after, SubAfterRecord)
    assert (after.success, after.code) == (True, 0)


def test_each_message_of_a_batch_has_its_own_end_and_all_share_the_call() -> None:
    messages = [Message.make(), Message.make(), Message.make()]
    found = records_of(lambda batch: Outcomes({batch[1]: Retry()}), messages, batch=10)
    ends = [record for record in found if isinstance(record, SubAfterRecord)]
    assert [record.success for record in ends] == [True, False, True]
    assert [record.message_id for record in ends] == [message.message_id for message in messages]
    assert len({record.request_id for record in found if isinstance(record, SubBeforeRecord | SubAfterRecord)}) == 1
    assert len(found) == 6


def test_a_message_whose_trace_is_off_leaves_nothing() -> None:
    assert records_of(lambda _: None, Message.make(properties={"TRACE_ON": "false"})) == []


def test_a_call_that_is_cut_off_has_no_end_and_one_that_took_too_long_has() -> None:
    @in_virtual_time
    async def story() -> None:
        clock = Hands()
        traces = Traces("traces", clock)

        async def slow(_: Message) -> None:
            await asyncio.sleep(3600)

        call = TracedCalls("g", traces, "R").around(Handler(subscription(timeout=5.0), slow)).call
        for took, ends in ((1.0, []), (5.0, [1])):
            task = asyncio.ensure_future(call(Message.make()))
            await asyncio.sleep(0)
            clock.at += took
            task.cancel()
            await asyncio.wait([task])
            assert [record.code for record in taken(traces) if isinstance(record, SubAfterRecord)] == ends

    story()


@pytest.mark.parametrize(
    ("end", "code"),
    [(lambda: None, 0), (lambda: Skip("no"), 0), (lambda: Retry, 4), (raising(LookupError("no")), 2)],
)
def test_each_message_that_a_polled_call_has_pulled_leaves_records_when_the_call_has_ended(
    end: Callable[..., Any], code: int
) -> None:
    messages = [Message.make(), Message.make(attempt=2)]

    def export(pulled: list[Message]) -> object:
        pulled.extend(messages)
        return end(pulled) if code == 2 else end()

    found = records_of(export, [], every=5.0)
    begun = [record for record in found if isinstance(record, SubBeforeRecord)]
    ended = [record for record in found if isinstance(record, SubAfterRecord)]
    assert [(record.message_id, record.retries) for record in begun] == [
        (message.message_id, message.attempt - 1) for message in messages
    ]
    assert [(record.message_id, record.code) for record in ended] == [(one.message_id, code) for one in messages]
    assert records_of(lambda _: None, [], every=5.0) == []


def test_a_call_is_the_same_in_both_records_however_late_it_ends() -> None:
    traces = Traces("traces", Hands())
    found: list[list[TraceRecord]] = []
    call = TracedCalls("g", traces, "R").around(
        Handler(subscription(is_async=False), lambda _: found.append(taken(traces)))
    )
    for attempt in (1, 4):
        message = Message.make(keys="a", attempt=attempt, message_id=f"ID{attempt}")
        call.call(message)
        (before,), (after,) = found.pop(), taken(traces)
        assert isinstance(before, SubBeforeRecord) and isinstance(after, SubAfterRecord)
        assert (before.request_id, before.message_id, before.keys) == (after.request_id, after.message_id, after.keys)
        assert (before.message_id, before.keys, before.retries) == (f"ID{attempt}", "a", attempt - 1)


def test_a_message_as_a_pull_brings_it_is_named_by_its_own_id_or_that_of_the_broker() -> None:
    stored = Record(topic="t", body=b"x", reconsume_times=3, physical_offset=77)
    named, nameless = decode_records(
        encode_record(stored._replace(raw_properties=b"UNIQ_KEY\x01ID")) + encode_record(stored),
        MessageQueue("t", "broker-a", 0),
    )
    for message, expected in ((named, "ID"), (nameless, offset_id(b"\x7f\x00\x00\x01", 0, 77))):
        before, after = records_of(lambda _: None, message)
        assert isinstance(before, SubBeforeRecord) and isinstance(after, SubAfterRecord)
        assert (before.message_id, before.retries, after.message_id) == (expected, 3, expected)


@pytest.mark.parametrize("sign", [" ", "\x01"])
def test_a_strange_id_of_another_client_is_no_key_that_a_producer_refuses(sign: str) -> None:
    traces = Traces("traces", Hands())
    message = Message.make(message_id="A")
    message.raw_properties = f"UNIQ_KEY\x01strange{sign}id\x02KEYS\x01k{sign}1".encode()
    TracedCalls("g", traces, "R").around(Handler(subscription(is_async=False), lambda _: None)).call(message)
    ((body, keys),) = pack(traces.take(100) or ())
    assert keys == ["strange", "id", "k", "1"]
    assert {record.message_id for record in decode(body)} == {"strange id"}


def test_handlers_of_the_trace_topic_are_not_traced() -> None:
    def handler(_: Message) -> None: ...

    own, other = (consumed(handler, topic=name, is_async=False) for name in ("traces", "orders"))
    after = traced([own, other], "g", Traces("traces", Hands()), Random(1))
    assert after[0] is own
    assert after[1].handlers[0].call is not handler


def test_a_full_pile_drops_what_comes_and_counts_it() -> None:
    traces = Traces("traces", Hands(), most=3)
    calls = TracedCalls("g", traces, "R")
    handled: list[Message] = []
    call = calls.around(Handler(subscription(is_async=False), handled.append)).call
    for _ in range(4):
        call(Message.make())
    assert len(handled) == 4
    assert traces.dropped == 5
    assert len(taken(traces)) == 3
