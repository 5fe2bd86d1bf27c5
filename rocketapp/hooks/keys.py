"""Which messages are copies of each other: their key, for every plugin that handles messages once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import Subscription
from rocketapp.wire.record import Message

MakeKey = Callable[[Message], str]
"""Returns the key of a message: what all copies of it have in common."""


def keys_of(subscription: Subscription, own: MakeKey | None = None) -> MakeKey:
    """Message -> 32 hexadecimal digits, equal for the copies that one handler gets.

    `own`: the user's function; it returns a text that is the same in all copies. Without it copies are told by
    message id and body: brokers up to 5.3.3 give all messages of a batch one id.

    The key raises what `own` raises, and TypeError or ValueError when that returns no text or an empty one.
    """
    scope = hashlib.blake2b(digest_size=16)
    # With the tags: functions of one name (made in a loop, methods of two objects) may divide a topic between them.
    parts = (subscription.cluster, subscription.group, subscription.topic, subscription.handler_name)
    for part in (*parts, subscription.expression):
        _feed(scope, part.encode())
    name = subscription.handler_name

    def by_content(message: Message) -> str:
        key, message_id = scope.copy(), message.message_id.encode()
        key.update(len(message_id).to_bytes(8, "little") + message_id)
        key.update(_body(message))  # it is the last part, so its length need not be told
        return key.hexdigest()

    def by_text(message: Message) -> str:
        text: object = own(message)  # type: ignore[misc]  # only used when there is one
        if not isinstance(text, str):
            raise TypeError(f"the idempotent= function of {name} returned {text!r}, not a str")
        if not text:
            raise ValueError(f"the idempotent= function of {name} returned an empty key: all such would be copies")
        key = scope.copy()
        _feed(key, text.encode(errors="surrogatepass"))
        return key.hexdigest()

    return by_content if own is None else by_text


def _feed(into: hashlib.blake2b, part: bytes) -> None:
    # With its length before it, so that ("ab", "c") and ("a", "bc") differ.
    into.update(len(part).to_bytes(8, "little"))
    into.update(part)


def _body(message: Message) -> bytes:
    try:
        return message.body
    except ProtocolError:
        return b""  # the handler will meet the error
