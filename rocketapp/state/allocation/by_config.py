"""`CONFIG`: each member has the queues that its settings list. Java: AllocateMessageQueueByConfig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list, of all topics together. Nothing balances: a queue that no member lists is not consumed."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return self.queues


def parse_queue(text: str) -> MessageQueue:
    """A queue as it is written and logged: `topic@broker:id`. Raises ValueError for anything else."""
    # Names of topics have no @; those of brokers in machine rooms do.
    topic, _, rest = text.strip().partition("@")
    broker, _, number = rest.rpartition(":")
    if not topic or not broker or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{text!r} is not topic@broker:id")
    return MessageQueue(topic, broker, int(number))
