"""Handling each message once: which messages are copies of each other, and what a store of their marks has to do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import Subscription
from rocketapp.wire.record import Message

__all__ = ["CLAIMED", "DONE", "Answer", "Claim", "IdempotencyStore", "MarkState"]


class IdempotencyStore(Protocol):
    """Remembers which messages are being handled, and which were.

    A key has no mark, or it is running (with a holder and the end of its lease), or it is done
    (until it expires). Each method takes several keys, and does for each what it would do alone.
    Every method is called on the event loop, for sync handlers too, and must not block it; it
    answers or raises within seconds. The store measures time by its own clock.

    A method that raises has perhaps been carried out. It is called again with the same arguments,
    so that doing the same twice must be the same as doing it once.
    """

    async def open(self) -> None:
        """Called once, before the first message. What it raises stops the start of the app.

        Do not raise for a server that is away for a moment: claims are tried again.
        """

    async def close(self) -> None:
        """Called once, when no handler runs any more."""

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        """Take the keys that are free: an answer for each claim, in the same order.

        A key is free when it has no mark, when its lease or its mark has expired, or when this
        same holder has it already. A free key becomes running for `lease` seconds: CLAIMED. Leases
        of handlers that take long are renewed by the same claim. A key that another holder has is
        RUNNING, with that holder as it claimed and the seconds left of its lease; one that is done
        is DONE, for every holder.
        Of two callers that claim a free key at once exactly one is answered CLAIMED.
        """

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        """The messages are handled: remember it for `expiry` seconds, whichever holder has the key now."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """The messages are not handled: remove the marks that these holders have; skip all others."""


class Claim(NamedTuple):
    """A caller wants to handle the message with this key."""

    key: str
    """32 hexadecimal digits: a hash of the handler and of what makes two messages copies of each other."""
    holder: str
    """Names this one attempt. A store compares holders and does not look into them."""


class MarkState(Enum):
    """What a store knows of a key when it is claimed."""

    CLAIMED = "claimed"
    """The caller has it now, until its lease ends."""
    RUNNING = "running"
    """Another holder has it."""
    DONE = "done"
    """A message with this key was handled."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The store's answer to one claim."""

    state: MarkState
    holder: str
    """Who has it, when it is RUNNING: the text of its claim, unchanged; else empty."""
    seconds: float
    """Until the lease of that holder ends, unless it is renewed; else 0."""

    def __post_init__(self) -> None:
        if self.state is MarkState.RUNNING and not self.holder:
            # Without it a copy could not be told from the message of a process that died, and would be skipped.
            raise ValueError("Answer: RUNNING needs the holder that has the key")


CLAIMED = Answer(MarkState.CLAIMED, "", 0.0)
"""The caller has the key now."""
DONE = Answer(MarkState.DONE, "", 0.0)
"""The message was handled before."""


MakeKey = Callable[[Message], str]
"""Returns the key of a message: what all copies of it have in common."""


def keys_of(subscription: Subscription, own: MakeKey | None = None) -> MakeKey:
    """Message -> 32 hexadecimal digits, equal for the copies that one handler gets.

    `own`: the user's function; it returns a text that is the same in all copies. Without it copies are told by
    message id, tag and body: brokers up to 5.3.3 give all messages of a batch one id.

    The key raises what `own` raises, and TypeError or ValueError when that returns no text or an empty one.
    """
    scope = hashlib.blake2b(digest_size=16)
    parts = [subscription.cluster, subscription.group, subscription.topic, subscription.handler_name]
    if own is not None:
        # Functions of one name (made in a loop, methods of two objects) may divide a topic between them by tags, and
        # then messages of both may have one key. A message and its copies have one tag.
        parts.append(subscription.expression)
    for part in parts:
        _feed(scope, part.encode())
    name = subscription.handler_name

    def by_content(message: Message) -> str:
        key = scope.copy()
        for part in (message.message_id.encode(), message.raw_tag() or b"", _body(message)):
            _feed(key, part)
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
