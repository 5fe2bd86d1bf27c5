"""The revive log: where the checkpoints of popped messages and their acknowledgements are kept.

Eight queues of one topic that no client reads. Which checkpoints are open is in memory, and is read from the log at a
start: from the first open one on, as `progress` says. What counts them is saved together with the offsets of groups.
The topic has the name of the cluster. What was written while the cluster had another one is read as well.

Apache RocketMQ sends these records through its timers, and they arrive when they are due. Those that it has left there
when its directory comes here arrive while this broker runs.

Time is an argument. Java: PopBufferMergeService, PopReviveService.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from rocketapp.broker.core import Core
from rocketapp.broker.pop_checkpoints import (
    REVIVE_GROUP,
    REVIVE_QUEUES,
    Key,
    Place,
    PopCheckpoint,
    read,
    revive_topic,
)
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.stored import Stored
from rocketapp.broker.timers import LONGEST_MS as LONGEST_TIMER_MS
from rocketapp.broker.timers import slot_ms
from rocketapp.errors import ProtocolError
from rocketapp.model.event import Observe, RecordDamaged
from rocketapp.wire.layout import Record

FARTHEST_BACK = 16_384
"""Records behind an open checkpoint after which it is written again, so that a start need not read so many."""
_MOST_WRITTEN = 64
"""Checkpoints of one revive queue that one turn writes again."""
_LONGEST_IN_FLIGHT_MS = 300_000
"""For so long clients hide what they handle; what is hidden for longer is a retry, which nobody acknowledges before."""
_SLACK = 1024
"""Closed checkpoints that the heap of due times may contain, beyond the number of open ones, before it is rebuilt."""


class ReviveLog:
    """What is handed out and not acknowledged, in the log and in memory."""

    def __init__(self, core: Core, observe: Observe) -> None:
        """Read what the last run, or Apache RocketMQ, has left open."""
        self._core, self._observe = core, observe
        self._topic = revive_topic(core.config.cluster)
        self.on_scheduled: Callable[[float], object] = float
        """Called with the seconds until the messages of a checkpoint come again; the owner of the clock replaces it."""
        self.in_flight: Counter[Place] = Counter()
        """How many messages of a queue are handed out: all of a checkpoint, until the last one is done."""
        self._by_due: list[PopCheckpoint] = []
        # OrderedDict because most leave near the front: a plain dict steps over its deleted slots.
        self.open: OrderedDict[Key, PopCheckpoint] = OrderedDict()
        """Every checkpoint of which a message is not acknowledged, in the order of their records in the log."""
        store = core.store
        others = sorted(name for name in store.topics() - {self._topic} if name.startswith(revive_topic("")))
        places = [(topic, queue) for topic in (*others, self._topic) for queue in range(REVIVE_QUEUES)]
        done = {place: core.offsets.committed(REVIVE_GROUP, *place) for place in places}
        is_theirs = core.offsets.position is None and any(last is not None for last in done.values())
        self._counted = store.recovered_end if is_theirs else core.offsets.position or 0
        """The offsets that were saved count the checkpoints up to here; those that Apache RocketMQ has saved, all."""
        self._queues: dict[tuple[str, int], QueueFollower] = {}
        """By topic and queue. Those of the cluster's name of today are the last."""
        for place, last in done.items():
            self._queues[place] = QueueFollower(store, *place, 0 if last is None else last + 1, self._note)
        for follower in self._queues.values():
            follower.catch_up(follower.lag)
        self.open = OrderedDict(sorted(self.open.items(), key=lambda item: item[1].physical))

    def __repr__(self) -> str:
        return f"<ReviveLog {len(self.open)} checkpoints are open>"

    @property
    def is_durable(self) -> bool:
        """Whether a loss of power leaves all checkpoints, so that offsets that count them may be saved."""
        store = self._core.store
        last = [store.entry(*place, queue.position - 1) for place, queue in self._queues.items()]
        return all(entry is None or entry[0] < store.durable_position for entry in last)

    def record(self, checkpoint: PopCheckpoint, now_ms: int, done: Sequence[int] = ()) -> Record:
        """The record of a checkpoint; with `done`, the record that these messages of it are done."""
        return checkpoint.record(self._topic, self._core.config.name, now_ms, done)

    def _note(self, stored: Stored) -> None:
        """Carry out what a record says."""
        store, offsets = self._core.store, self._core.offsets
        try:
            found = read(stored.raw_properties, stored.body, stored.queue_id, stored.physical)
        except ProtocolError:
            self._observe(RecordDamaged(stored.topic, stored.queue_id, stored.queue_offset, stored.physical))
            return
        if isinstance(found, PopCheckpoint):
            place, end = found.key.place, max(found.offsets, default=-1) + 1
            entry = store.entry(*place[1:], end - 1)
            if entry is None or entry[0] > found.physical:
                return  # its messages are gone: others have their offsets, in a new topic
            self._put(found)
            is_counted = found.physical < self._counted or found.physical >= store.recovered_end
            if not is_counted and end > (offsets.committed(*place) or 0):
                offsets.commit(*place, end)
        elif found is not None and (checkpoint := self.open.get(found[0])) is not None:
            checkpoint.ack(found[1])
            if not checkpoint.left():
                self.close(checkpoint)

    def _put(self, checkpoint: PopCheckpoint) -> None:
        """Note a checkpoint of the log. A second one with the same key keeps all acknowledgements of the first."""
        before = self.open.get(checkpoint.key)
        if before is not None:
            checkpoint.acked |= before.acked
            self.close(before)
        if not checkpoint.left():
            return
        self.open[checkpoint.key] = checkpoint
        self.in_flight[checkpoint.key.place] += len(checkpoint.offsets)
        heappush(self._by_due, checkpoint)
        if len(self._by_due) > 2 * len(self.open) + _SLACK:
            self._by_due = list(self.open.values())
            heapify(self._by_due)
        self.on_scheduled((checkpoint.due_ms - self._core.now_ms()) / 1000)

    def close(self, checkpoint: PopCheckpoint) -> None:
        """Nothing of it, which is open, is awaited any more."""
        del self.open[checkpoint.key]
        queue = checkpoint.key.place
        self.in_flight[queue] -= len(checkpoint.offsets)
        if not self.in_flight[queue]:
            del self.in_flight[queue]

    def drop(self, topic: str) -> None:
        """Close the checkpoints of a topic that is being deleted."""
        for checkpoint in [one for one in self.open.values() if one.key.topic == topic]:
            self.close(checkpoint)

    @property
    def first_due(self) -> PopCheckpoint | None:
        """The one whose messages come again first."""
        heap = self._by_due
        while heap and self.open.get(heap[0].key) is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    @property
    def _first(self) -> PopCheckpoint | None:
        """The one whose record is the first in the log: a start reads from there on."""
        return next(iter(self.open.values()), None)

    def forget_done(self) -> None:
        """Close what the offsets say that it need not be read again: Apache RocketMQ revives without a record of it."""
        for queue in range(REVIVE_QUEUES):
            last = self._core.offsets.committed(REVIVE_GROUP, self._topic, queue)
            entry = None if last is None else self._core.store.entry(self._topic, queue, last)
            position = -1 if entry is None else entry[0]
            for one in [one for one in self.open.values() if one.revive_queue == queue and one.physical <= position]:
                self.close(one)

    # What outlives the process.

    def progress(self) -> dict[tuple[str, int], int]:
        """Of each topic and queue the last record that need not be read again."""
        before, position = self._core.store.offset_before, math.inf if self._first is None else self._first.physical
        return {place: before(position, *place, queue.position) - 1 for place, queue in self._queues.items()}

    def note_progress(self, progress: Mapping[tuple[str, int], int]) -> None:
        """The log is durable up to these records: the next start begins behind them."""
        for place, last in progress.items():
            if last >= 0:
                self._core.offsets.commit(REVIVE_GROUP, *place, last)

    def write_open(self, now_ms: int) -> dict[tuple[str, int], int]:
        """Before a stop: write again what is open, in the order in which it is due; return the progress before it.

        The next start reads nothing else. Apache RocketMQ goes through them in their order, so retries that are far
        away become timers: what is popped later need not wait for them. Raises StoreError.
        """
        core, before = self._core, {place: queue.position - 1 for place, queue in self._queues.items()}
        for checkpoint in sorted(self.open.values()):
            far_ms = checkpoint.key.popped_ms + checkpoint.invisible_ms - 1000  # as Apache RocketMQ has it
            if _LONGEST_IN_FLIGHT_MS < far_ms - now_ms < LONGEST_TIMER_MS:
                core.timers.schedule(self.record(checkpoint, far_ms), slot_ms(far_ms, now_ms))
            else:
                core.store.append(self.record(checkpoint, now_ms))
        return before

    def write_far_ones(self, now_ms: int) -> None:
        """Write open checkpoints again that have fallen far behind the end of the log. Raises StoreError."""
        for _ in range(_MOST_WRITTEN):
            first = self._first
            if first is None:
                return
            queue = self._queues[self._topic, first.revive_queue]
            recent = self._core.store.entry(self._topic, first.revive_queue, queue.position - FARTHEST_BACK)
            if recent is None or first.physical >= recent[0]:
                return
            self._core.store.append(self.record(first, now_ms))
