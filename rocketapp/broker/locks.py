"""Which client of a group holds which queue: the locks behind orderly consumption.

A lock that is not renewed lives `expiry` seconds (60, as Apache's). The holder trusts it for
30 s only and renews every 20 s, so a lock never changes hands while its holder believes in it.
Time comes in as an argument and is monotonic: a jump of the wall clock frees no lock.

Apache RocketMQ forgets its locks when it restarts; here they are saved. A renewal is saved once it
is a quarter of `expiry` later than what was saved, so a saved lock ends at most that much too early:
still after its holder has stopped trusting it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketapp.model.message_queue import MessageQueue

_AGREE = 1.0
"""Seconds by which the two clocks may differ over a restart without one of them having jumped."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    since: float
    """Monotonic time of the last grant or renewal."""
    saved: float = float("-inf")
    """What was saved as `since`."""


class LockTable:
    """Queue locks by group; each is held by one client id."""

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._held: dict[str, dict[MessageQueue, _Lock]] = {}
        self._closed_until = float("-inf")
        self.dirty = False
        """The table differs from what was saved by more than a restart may lose."""

    def __repr__(self) -> str:
        return f"<LockTable {sum(map(len, self._held.values()))} locks of {len(self._held)} groups>"

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: float) -> list[MessageQueue]:
        """Take or renew what is free, expired or already this client's; return what it now holds."""
        if self.is_closed(now):
            return []
        held = self._held.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or (lock.client_id != client_id and now - lock.since > self._expiry):
                lock = held[queue] = _Lock(client_id, now)
            elif lock.client_id != client_id:
                continue
            lock.since = now
            granted.append(queue)
            if now - lock.saved >= self._expiry / 4:
                self.dirty = True
        if not held:
            del self._held[group]
        return granted

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up this client's locks; those of others stay."""
        held = self._held.get(group)
        if held is None:
            return
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self.dirty = True
        if not held:
            del self._held[group]

    def client_left(self, group: str, client_id: str) -> None:
        """Free every lock that this client holds for this group."""
        self.unlock(group, list(self._held.get(group, ())), client_id)

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """The client id whose lock has not expired, or None."""
        lock = self._held.get(group, {}).get(queue)
        return lock.client_id if lock is not None and now - lock.since <= self._expiry else None

    def holds_any(self, group: str, now: float) -> bool:
        """Does any member of the group hold an unexpired lock? If so, it consumes in order."""
        held = self._held.get(group)
        return held is not None and any(now - lock.since <= self._expiry for lock in held.values())

    def sweep(self, now: float) -> None:
        """Forget expired locks, so that groups that are gone leave nothing behind."""
        for group, held in list(self._held.items()):
            for queue in [queue for queue, lock in held.items() if now - lock.since > self._expiry]:
                del held[queue]
            if not held:
                del self._held[group]

    # Over a restart.

    def to_json(self, now: float, wall: float) -> dict[str, Any]:
        """What to save, which counts as saved from now on. `now`: monotonic seconds; `wall`: seconds since 1970."""
        self.dirty = False
        locks = []
        for group, held in self._held.items():
            for queue, lock in held.items():
                lock.saved = lock.since
                locks.append(
                    {
                        "group": group,
                        "topic": queue.topic,
                        "brokerName": queue.broker_name,
                        "queueId": queue.queue_id,
                        "clientId": lock.client_id,
                        "ageMs": int((now - lock.since) * 1000),
                    }
                )
        return {"savedAtMs": int(wall * 1000), "monotonicMs": int(now * 1000), "locks": locks}

    def load(self, saved: Mapping[str, Any], now: float, wall: float) -> None:
        """Take over saved locks. KeyError, TypeError, ValueError for what `to_json` did not write.

        Time that passed since the save counts only when both clocks agree about it: after a jump of the wall
        clock, or a reboot, every lock begins its life anew.
        """
        passed = now - saved["monotonicMs"] / 1000
        is_trusted = passed >= 0 and abs(wall - saved["savedAtMs"] / 1000 - passed) <= _AGREE
        loaded: dict[str, dict[MessageQueue, _Lock]] = {}
        for lock in saved["locks"]:
            queue = MessageQueue(str(lock["topic"]), str(lock["brokerName"]), int(lock["queueId"]))
            age = passed + max(0, lock["ageMs"]) / 1000 if is_trusted else 0.0
            if age <= self._expiry:
                loaded.setdefault(str(lock["group"]), {})[queue] = _Lock(str(lock["clientId"]), now - age)
        self._held, self.dirty = loaded, False

    def close_until_expiry(self, now: float) -> None:
        """Grant nothing for as long as a lock lives: some client may hold locks that we do not know."""
        self._closed_until = now + self._expiry

    def is_closed(self, now: float) -> bool:
        """Whether nothing is granted yet. Nothing is to be saved either: another restart must not end the wait."""
        return now < self._closed_until
