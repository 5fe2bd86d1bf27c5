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
    """Open transactions by message id. `Q`: a broker's question about one."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Q]] = {}
        self._begun: set[str] = set()
        """Transactions whose function runs."""

    def __len__(self) -> int:
        return len(self._latest)

    def all(self) -> list[str]:
        """The message ids of all open transactions."""
        return list(self._latest)

    def begin(self, message_id: str) -> None:
        """The local transaction runs from now on: it decides, not a check, even one that is running."""
        self._latest[message_id] = {}
        self._begun.add(message_id)

    def asked(self, message_id: str, broker: str, question: Q) -> bool:
        """Note down a broker's question. Whether the check has to be called: not while something decides already."""
        is_new = message_id not in self._latest
        self._latest.setdefault(message_id, {})[broker] = question
        return is_new

    def checked(self, message_id: str) -> Mapping[str, Q]:
        """The check has ended. Returns the newest question of each broker; empty if the local transaction decides."""
        return {} if message_id in self._begun else self._latest.pop(message_id, {})

    def end(self, message_id: str) -> Mapping[str, Q]:
        """The local transaction has ended, decided or not. Returns the newest question of each broker that asked."""
        self._begun.discard(message_id)
        return self._latest.pop(message_id, {})
