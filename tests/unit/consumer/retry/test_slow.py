"""Messages that were sent back while their call runs on: what looking for their copies costs."""

from __future__ import annotations

from typing import Any

from rocketapp.consumer.retry.slow import SlowSendBack
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue

QUEUE = MessageQueue("topic", "broker-a", 0)


class Named:
    """A message that counts how often its ids are read."""

    queue, size = QUEUE, 1

    def __init__(self, offset: int, **properties: str) -> None:
        self.offset, self.properties = offset, properties
        self.offset_message_id = f"stored-{offset}"
        self.reads = 0

    @property
    def message_id(self) -> str:
        self.reads += 1
        return f"sent-{self.offset}"


class Group:
    """A group whose calls, for batches of one, are running."""

    def __init__(self, messages: list[Any]) -> None:
        self.process_queue: ProcessQueue[Any] = ProcessQueue(QUEUE, 0)
        self.process_queue.put(messages)
        self.owned: dict[MessageQueue, Any] = {QUEUE: self}
        self.calls: list[tuple[Any, Any]] = [(None, [message]) for message in messages]
        self.failed: list[Any] = []
        self.running_on: dict[int, Any] = {}

    @property
    def items(self) -> list[Any]:
        return [item for _, item in self.calls]

    def fail(self, handler: Any, queue: Any, message: Any, failure: Any) -> None:
        self.failed.append(message)


def batch(offset: int, **properties: str) -> Any:
    return [Named(offset, **properties)]


def nothing() -> None: ...


def test_looking_for_a_copy_costs_the_same_whatever_number_of_calls_runs_on() -> None:
    messages: list[Any] = [Named(offset) for offset in range(16)]
    group: Any = Group(messages)
    slow = SlowSendBack(group)
    slow.sweep([(*call, 900.0) for call in group.calls], group.owned, group.items)
    assert group.failed == messages
    reads = [message.reads for message in messages]
    gone_on: list[str] = []
    assert not slow.waits(batch(100), lambda: gone_on.append("another"))
    assert slow.waits(batch(200, ORIGIN_MESSAGE_ID="sent-7"), lambda: gone_on.append("copy"))
    assert [message.reads for message in messages] == reads
    assert id(messages[7]) in group.running_on
    group.calls.pop(7)
    slow.end(group.items)
    assert gone_on == ["copy"]
    assert id(messages[7]) not in group.running_on
    assert not slow.waits(batch(300, ORIGIN_MESSAGE_ID="sent-7"), nothing)
    assert slow.waits(batch(400, ORIGIN_MESSAGE_ID="sent-8"), nothing)
