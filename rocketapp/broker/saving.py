"""The broker's tables and their files: topics.json, subscriptionGroup.json, consumerOffset.json,
messageRequestMode.json, consumerOrderInfo.json.

A change of topics, groups or request modes is written as soon as it comes, before anybody is answered who may have seen
that; the whole file, which Apache RocketMQ reads, with the next offsets. Those are written periodically. While the
broker serves, all of it is written beside the event loop. A file that exists but cannot be read stops the start:
without it offsets would be lost unnoticed, and groups would begin anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from rocketapp.broker.config_table import ConfigTable
from rocketapp.broker.groups import GroupTable
from rocketapp.broker.offsets import OffsetTable
from rocketapp.broker.pop_tables import PopOrder, RequestModes
from rocketapp.broker.store.config_files import (
    CONSUMER_OFFSETS,
    GROUPS,
    POP_ORDER,
    REQUEST_MODES,
    TOPICS,
    ConfigFile,
)
from rocketapp.broker.store.files import Files
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.topics import TopicTable
from rocketapp.clock import Clock
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.names import is_retry_topic
from rocketapp.wire.requests.admin import TopicConfig


class Table(Protocol):
    """A table that can be saved and loaded."""

    dirty: bool

    def begin_save(self, now: float) -> Callable[[], dict[str, Any]]:
        """Count a change; return what makes the saved form of the present table, in any thread."""

    def load(self, saved: Mapping[str, Any]) -> None: ...


class Saving:
    """The tables: loads them once and saves them whenever they changed."""

    def __init__(
        self, files: Files, store: MessageStore, config: BrokerConfig, *, clock: Clock, observe: Observe
    ) -> None:
        """Load the tables. ConfigError names the file that cannot be read, and how to repair it."""
        self._clock, self._observe = clock, observe
        self.topics: TopicTable = TopicTable(config)
        self.groups: GroupTable = GroupTable()
        self.offsets: OffsetTable = OffsetTable(None if store.is_copy else lambda: store.end_position)
        self.modes: RequestModes = RequestModes()
        self.order: PopOrder = PopOrder(lambda: store.end_position)
        self._names: list[tuple[ConfigFile, ConfigTable[Any]]] = [
            (ConfigFile(files, TOPICS, observe), self.topics),
            (ConfigFile(files, GROUPS, observe), self.groups),
            (ConfigFile(files, REQUEST_MODES, observe), self.modes),
        ]
        self._others: list[tuple[ConfigFile, Table]] = [
            (ConfigFile(files, CONSUMER_OFFSETS, observe), self.offsets),
            (ConfigFile(files, POP_ORDER, observe), self.order),
        ]
        self._load(store)

    def _load(self, store: MessageStore) -> None:
        """Topics that a missing or damaged file had are taken from the store. Groups begin anew, which is reported."""
        tables: list[tuple[ConfigFile, Table]] = [*self._names, *self._others]
        for file, table in tables:
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

        for topic in () if self._names[0][0].is_readable else store.topics():
            queues = max(store.queue_ids(topic)) + 1
            self.topics.put(self.topics.get(topic) or TopicConfig(topic, queues, queues))
        offsets = self.offsets
        if offsets.dirty and store.is_copy:
            offsets.dirty = offsets.is_known = False
        elif offsets.dirty and store.topics():
            missing = f"{self._others[0][0].place} is missing although the store has messages"
            self._observe(LoopFailed("offsets", f"{missing}: consumer groups begin anew"))
        for described in (offsets, self.order):
            described.clamp(partial(store.offset_before, described.position or math.inf))

    def names_to_save(self, *, whole: bool = False) -> list[Callable[[], None]]:
        """What writes the present topics, groups and modes, in any thread; nothing if they have not changed.

        It appends what has changed; `whole`: or writes the files that lack some of that, which Apache RocketMQ reads.
        `names_written` follows, or `undo_names` after an error.
        """
        now, saves = self._clock.now(), list[Callable[[], None]]()
        for file, table in self._names:
            if table.dirty and file.changes_end is not None and not whole:
                saves.append(partial(_write, file.append, table.begin_save(now, whole=False)))
            elif table.dirty or (whole and file.changes_end != 0):
                saves.append(partial(_write, file.save, table.begin_save(now)))
        return saves

    def names_written(self) -> None:
        """What `names_to_save` returned has ended well."""
        for _, table in self._names:
            table.written()

    def is_written(self, topic: str) -> bool:
        """Whether all is on disk on which a message counts that is stored in this topic. It may be that of a group."""
        return self.topics.is_written(topic) and not is_retry_topic(topic)

    def undo_names(self) -> None:
        """Take back the changes of topics and groups that are not on disk."""
        for file, table in self._names:
            file.distrust()
            table.undo()

    def offsets_to_save(self) -> list[Callable[[], None]]:
        """What writes the present offsets, in any thread; nothing if they have not changed.

        Where that is not called, or fails, `offsets_not_saved` follows.
        """
        now = self._clock.now()
        return [partial(_write, file.save, table.begin_save(now)) for file, table in self._others if table.dirty]

    def offsets_not_saved(self) -> None:
        """What `offsets_to_save` returned has not ended well: all of it is to be saved still."""
        for _, table in self._others:
            table.dirty = True
        self.offsets.dirty = self.offsets.is_known

    def save_all(self) -> None:
        """Write every changed table now, also when writing one of them fails."""
        for save in (*self.names_to_save(whole=True), *self.offsets_to_save()):
            try:
                save()
            except OSError as error:
                self.offsets_not_saved()
                for _, table in self._names:
                    table.dirty = True
                self._observe(LoopFailed("saving tables", str(error)))
        self.names_written()


def _write(write: Callable[[dict[str, Any]], None], form: Callable[[], dict[str, Any]]) -> None:
    write(form())
