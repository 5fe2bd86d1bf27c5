"""The committed offset of each group in each queue.

A committed offset is stored unchecked: it may be beyond the queue's end and it may be lower than
the one before, as with Apache RocketMQ, because an operator's reset looks the same. `dirty` means that the
table differs from the last saved one, so that an idle broker writes nothing.

The saved form is Apache's consumerOffset.json: `{"offsetTable": {"topic@group": {0: 7, 1: 0}}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rocketapp.broker.store.config_files import DataVersion
from rocketapp.model.names import HALF_TOPIC, OP_TOPIC
from rocketapp.model.numbers import is_whole

_SEPARATOR = "@"
TRANSACTIONS_GROUP = "CID_RMQ_SYS_TRANS"


class OffsetTable:
    """Committed offsets by topic and group."""

    def __init__(self, log_end: Callable[[], int] | None = None) -> None:
        """`log_end`: where the log ends that the offsets describe; None at a slave, whose offsets are its master's."""
        self._log_end = log_end
        self.position: int | None = None
        """Where the log ended that the loaded offsets describe; 0 if that is not known; None: Apache RocketMQ's."""
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str, int], int] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        """Offsets that an operator has set and the group has not pulled from yet. In memory, as Apache keeps them."""
        self._version = DataVersion()
        self.dirty: bool = False
        self.is_known: bool = True
        """False at a slave that has not yet got the offsets of its master: that a group has none here says nothing."""

    def __repr__(self) -> str:
        return f"<OffsetTable {len(self._offsets)} topics and groups>"

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store that everything below `offset` is done.

        Ignored between a reset and the group's next pull, and before the offsets of the master are known.
        """
        if not self.is_known:
            return
        if self._log_end is None:
            self.position = 0  # of a part of them
        if (topic, group, queue_id) not in self._resets:
            self._store(group, topic, queue_id, offset)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group to this offset: its next pull of the queue is answered with it."""
        self._store(group, topic, queue_id, offset)
        self._resets[topic, group, queue_id] = offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group is to pull from instead, told once; None without a reset."""
        return self._resets.pop((topic, group, queue_id), None)

    def _store(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.setdefault((topic, group), {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.dirty = True

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None if the group never committed in this queue."""
        return self._offsets.get((topic, group), {}).get(queue_id)

    def transactions_done(self, half_offset: int, end_offset: int) -> None:
        """Store how far half messages and their ends need not be read again, where Apache RocketMQ looks for it."""
        for topic, offset in ((HALF_TOPIC, half_offset), (OP_TOPIC, end_offset)):
            if offset:
                self._store(TRANSACTIONS_GROUP, topic, 0, offset)

    def transactions_progress(self) -> tuple[int, int]:
        """What `transactions_done` stored last, here or in Apache RocketMQ."""
        half_offset = self.committed(TRANSACTIONS_GROUP, HALF_TOPIC, 0)
        return half_offset or 0, self.committed(TRANSACTIONS_GROUP, OP_TOPIC, 0) or 0

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Store how far the group has pulled. For statistics only; never saved."""
        self._pulled[topic, group, queue_id] = next_offset

    def pulled_to(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group will pull next; None if it has not pulled since the broker started."""
        return self._pulled.get((topic, group, queue_id))

    def topics_by_group(self) -> dict[str, set[str]]:
        """Every group that has committed an offset, with the topics in which it has."""
        found: dict[str, set[str]] = {}
        for topic, group in self._offsets:
            found.setdefault(group, set()).add(topic)
        return found

    def topics_of(self, group: str) -> set[str]:
        """Topics in which the group has committed an offset."""
        return {topic for topic, of_group in self._offsets if of_group == group}

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have committed an offset in this topic."""
        return {group for of_topic, group in self._offsets if of_topic == topic}

    def delete(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Delete all offsets of a topic, or of a group."""
        tables: tuple[dict[Any, Any], ...] = self._offsets, self._pulled, self._resets
        for table in tables:
            for key in [key for key in table if key[0] == topic or key[1] == group]:
                del table[key]
        self.dirty = True

    def clamp(self, possible: Callable[[str, int, int], int]) -> None:
        """An offset beyond the end of its queue, after a crash, would hide the next messages: it becomes the end.

        `possible`: this offset of the queue with this topic and id, or the end where it is beyond that.
        """
        for (topic, _), queues in self._offsets.items():
            for queue_id, offset in queues.items():
                if offset > (end := possible(topic, queue_id, offset)):
                    queues[queue_id] = end
                    self.dirty = True

    def begin_save(self, now: float) -> Callable[[], dict[str, Any]]:
        """Count a change; return what makes the saved form of the present table, in any thread."""
        self._version.changed(now)
        self.dirty = False
        position = self.position if self._log_end is None else self._log_end()
        copies, version = {key: dict(queues) for key, queues in self._offsets.items()}, self._version.to_json()
        return lambda: _form(copies, version) | ({} if position is None else {"logPosition": position or None})

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOffset.json."""
        return _form(self._offsets, self._version.to_json())

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form. Raises ValueError for anything that is not an offset; it is never read as 0."""
        table = msgspec.convert(saved.get("offsetTable"), dict[str, dict[int, int]], strict=False)
        offsets: dict[tuple[str, str], dict[int, int]] = {}
        for key, queues in table.items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not separator:
                raise ValueError(f"offsetTable: {key!r} is not topic@group")
            offsets[topic, group] = queues
        self._offsets = offsets
        position = saved.get("logPosition")
        self.position = position if is_whole(position) else 0 if "logPosition" in saved else None
        self._version = DataVersion.from_json(saved.get("dataVersion"), self._version)
        self.dirty, self.is_known = False, True


def _form(offsets: Mapping[tuple[str, str], dict[int, int]], version: dict[str, int]) -> dict[str, Any]:
    groups: dict[str, list[str]] = {}
    table = {}
    for (topic, group), queues in sorted(offsets.items()):
        groups.setdefault(group, []).append(topic)
        table[f"{topic}{_SEPARATOR}{group}"] = dict(sorted(queues.items()))
    return {"dataVersion": version, "groupTopicMap": groups, "offsetTable": table}
