"""What the answer to a pop holds: messages, each with the hand-out that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Handle
from rocketapp.state.pop_queue import HandOut
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pop import OF_TOPIC, PopResponse, handle_in

Key = tuple[int, int, int, int]
"""Kind, queue id, first offset, and when it was handed out."""


def hand_outs(
    answer: PopResponse, body: bytes, queue: MessageQueue, *, at: float, max_inflated_bytes: int
) -> tuple[list[Message], list[tuple[HandOut, list[Message]]]]:
    """The messages in their order, and the same by hand-out. Raises ProtocolError.

    `queue` names topic and broker; each message names its own queue. `at`: the loop's time since
    when they are hidden.
    """
    messages = decode_records(body, queue, max_inflated_bytes=max_inflated_bytes)
    retries = [key for key in answer.starts if key[0] != OF_TOPIC]
    found: dict[Key, tuple[HandOut, list[Message]]] = {}
    queues: dict[int, MessageQueue] = {}
    for message in messages:
        number = message.queue_id
        message.queue = queues.get(number) or queues.setdefault(number, queue._replace(queue_id=number))
        own = handle_in(message.raw_properties) if retries else None
        if own is not None:
            message.offset = own.offset
            key = own.kind, own.queue_id, own.start, own.popped_ms
        else:
            kind = _kind_of(message, answer, retries) if retries else OF_TOPIC
            if (kind, number) not in answer.starts:
                raise ProtocolError(f"{queue.broker_name} handed out {message!r} without saying where it lies")
            key = kind, number, answer.starts[kind, number], answer.popped_ms
        share = found.get(key)
        if share is None:
            handle = own or Handle(
                key[2], key[3], answer.invisible_ms, answer.revive_queue, key[0], queue.broker_name, number, key[2]
            )
            share = found[key] = HandOut(handle, at), []
        share[1].append(message)
    return messages, list(found.values())


def _kind_of(message: Message, answer: PopResponse, retries: Sequence[tuple[int, int]]) -> int:
    """Of brokers that do not say so in the message: one of a retry topic counts its attempts, or has no other place."""
    of_topic = answer.offsets.get((OF_TOPIC, message.queue_id), ())
    if message.reconsume_times or message.offset not in of_topic:
        for kind, queue_id in retries:
            if queue_id == message.queue_id and message.offset in answer.offsets.get((kind, queue_id), ()):
                return kind
    return OF_TOPIC
