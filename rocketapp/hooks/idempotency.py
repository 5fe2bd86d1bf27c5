"""What a store of idempotency marks has to do. It arrives through the hook `idempotency_store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rocketapp.model.claim import CLAIMED, DONE, Answer, Claim, MarkState, SecondCopy

__all__ = ["CLAIMED", "DONE", "Answer", "Claim", "IdempotencyStore", "MarkState", "SecondCopy"]


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
        ...

    async def close(self) -> None:
        """Called once, when no handler runs any more."""
        ...

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        """Take the keys that are free: an answer for each claim, in the same order.

        A key is free when it has no mark, when its lease or its mark has expired, or when this
        same holder has it already. A free key becomes running for `lease` seconds: CLAIMED. Leases
        of handlers that take long are renewed by the same claim.
        Of two callers that claim a free key at once exactly one is answered CLAIMED.
        """
        ...

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        """The messages are handled: remember it for `expiry` seconds, whichever holder has the key now."""
        ...

    async def release(self, claims: Sequence[Claim]) -> None:
        """The messages are not handled: remove the marks that these holders have; skip all others."""
        ...
