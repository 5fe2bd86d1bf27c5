"""Which transactions are being decided in this process, and where their half messages are now.

A broker stores a half message again each time it asks how the transaction ended. A decision about an older copy leaves
the newest one open: it would be asked about again, and committed a second time. So a decision goes to the newest copy
that is known. A send that was tried at two brokers may leave a copy at each: what one says does not hold for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

Q = TypeVar("Q")


class OpenTransactions(Generic[Q]):
    """Transactions by message id. `Q`: what a broker asks with."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Q]] = {}
        self._begun: set[str] = set()
        """Those whose function runs."""

    def __len__(self) -> int:
        return len(self._latest)

    def all(self) -> list[str]:
        """The message ids of all transactions that are open."""
        return list(self._latest)

    def begin(self, message_id: str) -> None:
        """The function of the transaction runs from now on: it decides, and no check does, also not one that runs."""
        self._latest[message_id] = {}
        self._begun.add(message_id)

    def asked(self, message_id: str, broker: str, question: Q) -> bool:
        """Note down a broker's question. Whether the check has to be called: not while something decides already."""
        is_new = message_id not in self._latest
        self._latest.setdefault(message_id, {})[broker] = question
        return is_new

    def checked(self, message_id: str) -> Mapping[str, Q]:
        """Its check has ended. The newest question of each broker that has asked; none when its function decides."""
        return {} if message_id in self._begun else self._latest.pop(message_id, {})

    def end(self, message_id: str) -> Mapping[str, Q]:
        """Its function has decided, or does not. The newest question of each broker that has asked meanwhile."""
        self._begun.discard(message_id)
        return self._latest.pop(message_id, {})
