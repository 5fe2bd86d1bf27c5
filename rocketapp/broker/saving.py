"""The broker's tables and their files: topics.json, subscriptionGroup.json, consumerOffset.json, queueLocks.json.

Topics and groups are written as soon as they change, before anybody is told of them; offsets now and
then. A file that exists and cannot be read stops the start, because going on would lose offsets in
silence: groups would begin at 0. Queue locks alone can be done without: while it is not known who holds
which, none is granted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rocketapp.broker.groups import GroupTable
from rocketapp.broker.locks import LockTable
from rocketapp.broker.offsets import OffsetTable
from rocketapp.broker.store.config_files import CONSUMER_OFFSETS, GROUPS, QUEUE_LOCKS, TOPICS, ConfigFile
from rocketapp.broker.store.files import Files
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.topics import TopicTable
from rocketapp.clock import Clock
from rocketapp.errors import ConfigError, StoreError
from rocketapp.model.event import LoopFailed, Observe


class Table(Protocol):
    """What can be saved and loaded."""

    dirty: bool

    def count_change(self, now: float) -> None: ...

    def to_json(self) -> dict[str, Any]: ...

    def load(self, saved: Mapping[str, Any]) -> None: ...


class Saving:
    """Loads the tables once and saves them whenever they changed."""

    def __init__(
        self,
        files: Files,
        *,
        clock: Clock,
        observe: Observe,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        locks: LockTable,
        monotonic: Callable[[], float],
    ) -> None:
        self._files, self._clock, self._observe = files, clock, observe
        self._topics = (ConfigFile(files, TOPICS), topics)
        self._groups = (ConfigFile(files, GROUPS), groups)
        self._offsets = (ConfigFile(files, CONSUMER_OFFSETS), offsets)
        self._locks_file, self._locks, self._monotonic = ConfigFile(files, QUEUE_LOCKS), locks, monotonic

    def load(self, store: MessageStore) -> None:
        """Fill the tables. ConfigError names the file that cannot be read, and what to do about it.

        A store whose files are gone altogether gives back its topics, and its groups begin anew: that is told.
        """
        for file, table in (self._topics, self._groups, self._offsets):
            saved = file.load()
            if saved is None:
                table.dirty = True
                continue
            try:
                table.load(saved)
            except (ValueError, TypeError, OverflowError) as error:
                raise ConfigError(
                    file.place,
                    f"cannot be used: {error}. Put back its .bak, or move it away to begin without it",
                ) from None

        if self._topics[1].dirty:
            for topic in store.topics():
                self._topics[1].ensure(topic, max(store.queue_ids(topic)) + 1)
        if self._offsets[1].dirty and store.topics():
            self._observe(
                LoopFailed(
                    "offsets",
                    f"{self._offsets[0].place} is gone although messages are there: consumer groups begin anew",
                )
            )

    def load_locks(self, store: MessageStore) -> None:
        """Take over the queue locks of the last run.

        When their file is gone or damaged, clients may hold locks that we do not know: none is granted until
        those have ended.
        """
        file, locks, now = self._locks_file, self._locks, self._monotonic()
        locks.dirty = True
        try:
            saved = file.load()
            if saved is not None:
                locks.load(saved, now, self._clock.now())
                return
            problem = f"{file.place} is gone" if store.topics() else ""
        except ConfigError as error:
            problem = str(error)
        except (KeyError, ValueError, TypeError, OverflowError, AttributeError) as error:
            problem = f"{file.place} cannot be used: {type(error).__name__} {error}"
        if problem:
            locks.close_until_expiry(now)
            self._observe(LoopFailed("locks", f"{problem}. No queue is locked until all locks of before have ended"))

    def save_locks(self) -> None:
        """Write the queue locks if they changed; StoreError."""
        now = self._monotonic()
        if not self._locks.dirty or self._locks.is_closed(now):
            return
        try:
            self._locks_file.save(self._locks.to_json(now, self._clock.now()))
        except OSError as error:
            self._locks.dirty = True
            raise StoreError(f"{self._locks_file.place} cannot be written: {error}") from error

    def save_names(self) -> None:
        """Write topics and groups if they changed. StoreError: the change is not to be announced."""
        for file, table in (self._topics, self._groups):
            try:
                self._save(file, table)
            except OSError as error:
                raise StoreError(f"{file.place} cannot be written: {error}") from error

    def save_offsets(self) -> None:
        """Write offsets if they changed, and return when they are on disk."""
        self._save(*self._offsets)

    def offsets_to_save(self) -> Callable[[], None] | None:
        """What writes the offsets as they are now, in any thread; None if they have not changed."""
        file, table = self._offsets
        if not table.dirty:
            return None
        table.count_change(self._clock.now())
        saved = table.to_json()
        table.dirty = False

        def save() -> None:
            try:
                file.save(saved)
            except BaseException:
                table.dirty = True
                raise

        return save

    def save_all(self) -> None:
        """Write what changed; one file that fails does not keep the others from being written."""
        for file, table in (self._topics, self._groups, self._offsets):
            try:
                self._save(file, table)
            except OSError as error:
                self._observe(LoopFailed(f"saving {file.place}", str(error)))
        try:
            self.save_locks()
        except StoreError as error:
            self._observe(LoopFailed("saving locks", str(error)))

    def _save(self, file: ConfigFile, table: Table) -> None:
        if not table.dirty:
            return
        table.count_change(self._clock.now())
        file.save(table.to_json())
        table.dirty = False
