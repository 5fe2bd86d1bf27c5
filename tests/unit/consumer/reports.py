"""What tests of executors need: messages, and a completion that remembers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.properties import encode
from rocketapp.wire.record import Message, Record, decode_records, encode_record

QUEUE = MessageQueue("topic", "broker-a", 0)


def message(offset: int, tag: str = "", queue: MessageQueue = QUEUE, origin: str = "") -> Message:
    """A message as a pull of this queue brings it; `origin`: the topic that a retried message comes from."""
    properties = {"TAGS": tag, "RETRY_TOPIC": origin}
    raw = encode({name: value for name, value in properties.items() if value})
    record = Record(queue.topic, b"body", raw_properties=raw, queue_offset=offset)
    return decode_records(encode_record(record), queue)[0]


class Reports:
    """Remembers what executors report."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.judged: list[tuple[int, object, bool]] = []

    def done(self, message: Message) -> None:
        self.finished.append(message.offset)

    def done_all(self, messages: Sequence[Message]) -> None:
        self.finished += [message.offset for message in messages]

    def judge(self, item: Any, result: object, raised: bool) -> None:
        self.judged.append((item.offset, result, raised))
