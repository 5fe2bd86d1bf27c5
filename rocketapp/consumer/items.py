"""What a handler is called with: one message, or the list of them of a `batch=` handler. Both are called an item."""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.wire.record import Message

Item = Message | Sequence[Message]


def messages_of(item: Item) -> Sequence[Message]:
    """The messages of an item, in the order of their offsets."""
    return (item,) if isinstance(item, Message) else item


def first_of(item: Item) -> Message:
    """The message, or the first of a batch."""
    return item if isinstance(item, Message) else item[0]


def last_of(item: Item) -> Message:
    """The message, or the last of a batch."""
    return item if isinstance(item, Message) else item[-1]


def cut(messages: Sequence[Message], most: int) -> list[list[Message]]:
    """Batches of at most `most` messages, in their order."""
    return [list(messages[at : at + most]) for at in range(0, len(messages), most)]
