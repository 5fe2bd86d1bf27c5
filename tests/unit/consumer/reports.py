"""What tests of workers need: messages, one handler that they call, and acks that remember."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.callers import Callers
from rocketapp.consumer.workers.in_threads import Threads
from rocketapp.consumer.workers.run import FreeRun, Taker
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.properties import encode
from rocketapp.wire.record import Message, decode_records
from tests.unit.consumer.members import member_alone

QUEUE = MessageQueue("topic", "broker-a", 0)


def message(offset: int, tag: str = "", queue: MessageQueue = QUEUE, origin: str = "") -> Message:
    """A message as a pull of this queue brings it; `origin`: the topic that a retried message comes from."""
    properties = {"TAGS": tag, "RETRY_TOPIC": origin}
    raw = encode({name: value for name, value in properties.items() if value})
    record = Record(queue.topic, b"body", raw_properties=raw, queue_offset=offset)
    return decode_records(encode_record(record), queue)[0]


class Reports:
    """Remembers what workers report."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.ended_calls: list[tuple[int, object, bool]] = []

    def done(self, message: Message) -> None:
        self.finished.append(message.offset)

    def done_all(self, messages: Sequence[Message]) -> None:
        self.finished += [message.offset for message in messages]

    def ended(self, item: Any, result: object, raised: bool) -> None:
        self.ended_calls.append((item.offset, result, raised))


class Session:
    """A session without an order that workers report to."""

    lease = Lease.endless()
    record_of = check = None
    has_keys = is_void = False

    def ended_free(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        taker.acks.ended(item, result, raised)

    def walked(self, run: FreeRun) -> None:
        pass

    def tidy_soon(self) -> None:
        pass


class OneCalled:
    """One handler, called by workers that report to these acks."""

    def __init__(self, handler: Handler, acks: Any, observe: Any = None) -> None:
        self.member = member_alone([handler])
        if observe is not None:
            self.member.observe = observe
        self.callers = Callers(self.member, Threads)
        self.taker = Taker(self.callers.one(handler), acks)

    def submit(self, *messages: Message) -> FreeRun:
        run = FreeRun([(self.taker, one) for one in messages], Session(), is_of_one=True)
        run.submit()
        return run
