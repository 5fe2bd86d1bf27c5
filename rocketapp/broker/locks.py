"""Queue locks for orderly consumption: which client of a group holds which queue.

A lock that is not renewed expires after `expiry` seconds (60, as in Apache RocketMQ). Its holder trusts it for
30 s only and renews it every 20 s, so a lock never changes its owner while the holder trusts it.
Time is an argument and monotonic, so a jump of the wall clock frees no lock.

Apache RocketMQ forgets its locks when it restarts; this broker saves them. A renewal is saved when it
is a quarter of `expiry` newer than the saved one. Nothing is granted while the saved lock is missing or older
than 25 s, so a saved lock always expires after its holder has stopped trusting it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.lenient_json import queue_members, queue_of

_AGREE = 1.0
"""Seconds by which the two clocks may differ over a restart without one of them having jumped."""

_SAFE = 25 / 60
"""The part of its life that a saved lock may lack: its holder's trust of 30 s and a slow answer need the rest."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    since: float
    """Monotonic time of the last grant or renewal."""
    saved: float = float("-inf")
    """The value of `since` that is on disk."""


MOST_LOCKS = 262_144
"""Most locks of all groups together. A client may name any queue, also one that does not exist."""


EndSave = Callable[[bool], None]
"""Told whether what a save wrote is on disk; if it could not be written, the table has to be saved again."""


class LockTable:
    """Queue locks by group; each is held by one client id."""

    def __init__(self, expiry: float) -> None:
        self.expiry: float = expiry
        self._held: dict[str, dict[MessageQueue, _Lock]] = {}
        self.closed_until: float = float("-inf")
        """Until then clients may hold locks that this table does not know: none is granted, and the table is not saved,
        for a restart would end the wait."""
        self.dirty: bool = False
        """The table differs from the saved one by more than a restart may lose."""

    def __repr__(self) -> str:
        return f"<LockTable {sum(map(len, self._held.values()))} locks of {len(self._held)} groups>"

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: float) -> list[MessageQueue]:
        """Grant or renew the queues that are free, expired or already this client's; return the ones it now holds."""
        if now < self.closed_until:
            return []
        room = MOST_LOCKS - sum(map(len, self._held.values()))
        held = self._held.get(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None:
                room -= 1
                if room < 0:
                    continue
            if lock is None or (lock.client_id != client_id and now - lock.since > self.expiry):
                lock = held[queue] = _Lock(client_id, now)
                self._held[group] = held
            elif lock.client_id != client_id:
                continue
            lock.since = now
            granted.append(queue)
            if now - lock.saved >= self.expiry / 4:
                self.dirty = True
        return granted

    def unsafe(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: float) -> list[MessageQueue]:
        """The queues that it does not hold, or whose lock a restart might give to another client while it trusts it."""
        held, oldest = self._held.get(group, {}), now - self.expiry * _SAFE
        return [
            queue
            for queue in queues
            if (lock := held.get(queue)) is None or lock.client_id != client_id or lock.saved < oldest
        ]

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Free this client's locks of these queues; locks of other clients stay."""
        held = self._held.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self.dirty = True

    def client_left(self, group: str, client_id: str) -> None:
        """Free every lock that this client holds for this group."""
        self.unlock(group, list(self._held.get(group, ())), client_id)

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """The client id that holds an unexpired lock; None when there is none."""
        lock = self._held.get(group, {}).get(queue)
        return lock.client_id if lock is not None and now - lock.since <= self.expiry else None

    def holds_any(self, group: str, now: float) -> bool:
        """Whether a member of the group holds an unexpired lock. Such a group consumes in order."""
        return any(self.owner(group, queue, now) for queue in self._held.get(group, ()))

    def sweep(self, now: float) -> None:
        """Remove expired locks, and groups that have none, so that those without members need no memory."""
        for group, held in list(self._held.items()):
            for queue in [queue for queue, lock in held.items() if now - lock.since > self.expiry]:
                del held[queue]
            if not held:
                del self._held[group]

    # Over a restart.

    def begin_save(self, now: float, wall: float) -> tuple[dict[str, Any], EndSave]:
        """The saved form of the present state. `now`: monotonic seconds; `wall`: seconds since 1970."""
        self.dirty = False
        entries, locks = [], []
        for group, held in self._held.items():
            for queue, lock in held.items():
                locks.append((lock, lock.since))
                own = {"clientId": lock.client_id, "ageMs": int((now - lock.since) * 1000)}
                entries.append({"group": group, **queue_members(queue), **own})

        def end(is_saved: bool) -> None:
            self.dirty = self.dirty or not is_saved
            for lock, since in locks if is_saved else ():
                lock.saved = since

        return {"savedAtMs": int(wall * 1000), "monotonicMs": int(now * 1000), "locks": entries}, end

    def load(self, saved: Mapping[str, Any], now: float, wall: float) -> None:
        """Load saved locks. Raises KeyError, TypeError or ValueError for content that `begin_save` did not make.

        The time since the save counts only when both clocks agree on it. After a jump of the wall
        clock, or a reboot, every lock gets its full expiry again, and must be saved with the present clocks.
        """
        passed = now - saved["monotonicMs"] / 1000
        is_trusted = passed >= 0 and abs(wall - saved["savedAtMs"] / 1000 - passed) <= _AGREE
        loaded: dict[str, dict[MessageQueue, _Lock]] = {}
        for lock in saved["locks"]:
            age = passed + max(0, lock["ageMs"]) / 1000 if is_trusted else 0.0
            if age <= self.expiry:
                own = _Lock(str(lock["clientId"]), now - age, now - age if is_trusted else float("-inf"))
                loaded.setdefault(str(lock["group"]), {})[queue_of(lock)] = own
        self._held, self.dirty = loaded, not is_trusted
