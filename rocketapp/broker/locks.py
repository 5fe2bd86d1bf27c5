"""Which client of a group holds which queue: the locks behind orderly consumption.

A lock that is not renewed lives `expiry` seconds (60, as Apache's). The holder trusts it for
30 s only and renews every 20 s, so a lock never changes hands while its holder believes in it.
Time comes in as an argument and is monotonic: a jump of the wall clock frees no lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.model.message_queue import MessageQueue


class LockTable:
    """Queue locks by group; each is held by one client id."""

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._held: dict[str, dict[MessageQueue, tuple[str, float]]] = {}

    def __repr__(self) -> str:
        return f"<LockTable {sum(map(len, self._held.values()))} locks of {len(self._held)} groups>"

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: float) -> list[MessageQueue]:
        """Take or renew what is free, expired or already this client's; return what it now holds."""
        held = self._held.setdefault(group, {})
        granted = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None or owner[0] == client_id or now - owner[1] > self._expiry:
                held[queue] = (client_id, now)
                granted.append(queue)
        if not held:
            del self._held[group]
        return granted

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up this client's locks; those of others stay."""
        held = self._held.get(group)
        if held is None:
            return
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
        if not held:
            del self._held[group]

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """The client id whose lock has not expired, or None."""
        owner = self._held.get(group, {}).get(queue)
        return owner[0] if owner is not None and now - owner[1] <= self._expiry else None

    def holds_any(self, group: str, now: float) -> bool:
        """Does any member of the group hold an unexpired lock? If so, it consumes in order."""
        held = self._held.get(group)
        return held is not None and any(now - since <= self._expiry for _, since in held.values())

    def sweep(self, now: float) -> None:
        """Forget expired locks, so that groups that are gone leave nothing behind."""
        for group, held in list(self._held.items()):
            for queue in [queue for queue, (_, since) in held.items() if now - since > self._expiry]:
                del held[queue]
            if not held:
                del self._held[group]
