"""The revive log: where the checkpoints of popped messages and their acknowledgements are kept.

Eight queues of one topic that no client reads. Which checkpoints are open is in memory, and is read from the log at a
start: from the first open one on, as `progress` says. What counts them is saved together with the offsets of groups.

Apache RocketMQ sends these records through its timers, and they arrive when they are due. Those that it has left there
when its directory comes here arrive while this broker runs.

Time is an argument. Java: PopBufferMergeService, PopReviveService.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.broker.core import Core
from rocketapp.broker.pop_checkpoints import (
    REVIVE_GROUP,
    REVIVE_QUEUES,
    OpenCheckpoints,
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
_SEEN_GROUP = "ROCKETAPP_POP_SEEN"
"""Its offset in a revive queue, saved with all offsets: they count the checkpoints before it."""


class ReviveLog:
    """What is handed out and not acknowledged, in the log and in memory."""

    def __init__(self, core: Core, observe: Observe) -> None:
        """Read what the last run, or Apache RocketMQ, has left open."""
        self._core, self._observe = core, observe
        self._topic = revive_topic(core.config.cluster)
        self.open: OpenCheckpoints = OpenCheckpoints()
        self._end = 0
        """The log of the broker has every checkpoint up to here."""
        self._queues = [self._load(queue) for queue in range(REVIVE_QUEUES)]
        self.note_seen()

    def __repr__(self) -> str:
        return f"<ReviveLog {len(self.open)} checkpoints are open>"

    @property
    def is_durable(self) -> bool:
        """Whether a loss of power leaves all checkpoints, so that offsets that count them may be saved."""
        return self._core.store.durable_position >= self._end

    # Writing.

    def store(self, checkpoints: Sequence[PopCheckpoint], now_ms: int, more: Sequence[Record] = ()) -> None:
        """Append checkpoints, and other records behind them. Raises StoreError; then none of them is stored."""
        broker_name = self._core.config.name
        records = [checkpoint.record(self._topic, broker_name, now_ms) for checkpoint in checkpoints]
        self.append([*records, *more])

    def append(self, records: Sequence[Record], *, in_need: bool = False) -> None:
        """Append records of this log, and perhaps others, with one write. Raises StoreError.

        `in_need`: also while the disk is too full for messages.
        """
        self._core.store.append_batch(records, in_need=in_need)
        self._end = self._core.store.end_position if records else self._end

    def ack_record(self, checkpoint: PopCheckpoint, offsets: Sequence[int], now_ms: int) -> Record:
        return checkpoint.ack_record(self._topic, self._core.config.name, offsets, now_ms)

    # Reading.

    def has_arrived(self, now_ms: int) -> bool:
        """Whether all is here that was due by timers until now."""
        due_ms = self._core.timers.next_due_ms()
        return due_ms is None or due_ms > now_ms

    def _load(self, queue: int) -> QueueFollower:
        """Follow one queue, from what the last run has left open on."""
        core, topic = self._core, self._topic
        last = core.offsets.committed(REVIVE_GROUP, topic, queue)
        seen = core.offsets.committed(_SEEN_GROUP, topic, queue)
        if last is None and seen is None:
            seen = 0
        end = core.store.max_offset(topic, queue)

        def take(stored: Stored) -> None:
            found = self._note(stored)
            if found is not None and seen is not None and seen <= stored.queue_offset < end:
                self._count(found)

        follower = QueueFollower(core.store, topic, queue, 0 if last is None else last + 1, take)
        follower.catch_up(end)
        return follower

    def _note(self, stored: Stored) -> PopCheckpoint | None:
        """Carry out what a record says; a checkpoint is returned."""
        try:
            found = read(stored.raw_properties, stored.body, stored.queue_id)
        except ProtocolError:
            self._observe(RecordDamaged(self._topic, stored.queue_id, stored.queue_offset, stored.physical))
            return None
        if isinstance(found, PopCheckpoint):
            if not self._is_of_present_queue(found, stored.physical):
                return None
            self.open.put(found, stored.queue_offset)
            return found
        if found is not None:
            self.open.ack(found.key, found.offsets)
        return None

    def _is_of_present_queue(self, checkpoint: PopCheckpoint, position: int) -> bool:
        """Whether its messages are there and were stored before it; else others have their offsets, in a new topic."""
        _, topic, queue_id, _, _ = checkpoint.key
        entry = self._core.store.entry(topic, queue_id, max(checkpoint.offsets, default=-1))
        return entry is not None and entry[0] < position

    def _count(self, checkpoint: PopCheckpoint) -> None:
        """The last run has handed it out after it saved its offsets."""
        group, topic, queue_id, _, _ = checkpoint.key
        end = max(checkpoint.offsets, default=-1) + 1
        if end > (self._core.offsets.committed(group, topic, queue_id) or 0):
            self._core.offsets.commit(group, topic, queue_id, end)

    def forget_done(self) -> None:
        """Close what the offsets say that it need not be read again: Apache RocketMQ revives without a record of it."""
        for queue in range(REVIVE_QUEUES):
            last = self._core.offsets.committed(REVIVE_GROUP, self._topic, queue)
            while last is not None and (first := self.open.first_stored(queue)) is not None and first.place <= last:
                self.open.close(first)

    # What outlives the process.

    def note_seen(self) -> None:
        """Together with the offsets is saved which checkpoints they count: a start counts only those behind."""
        for queue in range(REVIVE_QUEUES):
            end = self._core.store.max_offset(self._topic, queue)
            if end:
                self._core.offsets.commit(_SEEN_GROUP, self._topic, queue, end)

    def progress(self) -> list[int]:
        """Per queue the last record that need not be read again."""
        firsts = map(self.open.first_stored, range(REVIVE_QUEUES))
        return [
            (follower.position if first is None else min(first.place, follower.position)) - 1
            for first, follower in zip(firsts, self._queues, strict=True)
        ]

    def note_progress(self, progress: Sequence[int]) -> None:
        """The log is durable up to these records: the next start begins behind them."""
        for queue, last in enumerate(progress):
            if last >= 0:
                self._core.offsets.commit(REVIVE_GROUP, self._topic, queue, last)

    def write_open(self, now_ms: int) -> list[int]:
        """Before a stop: write again what is open, in the order in which it is due; return the progress before it.

        The next start reads nothing else. Apache RocketMQ goes through them in their order, so retries that are far
        away become timers: what is popped later need not wait for them. Raises StoreError.
        """
        core, before = self._core, [queue.position - 1 for queue in self._queues]
        for checkpoint in self.open.by_due():
            far_ms = checkpoint.key.popped_ms + checkpoint.invisible_ms - 1000  # as Apache RocketMQ has it
            if _LONGEST_IN_FLIGHT_MS < far_ms - now_ms < LONGEST_TIMER_MS:
                record = checkpoint.record(self._topic, core.config.name, far_ms)
                core.timers.schedule(record, slot_ms(far_ms, now_ms))
            else:
                self.store([checkpoint], now_ms)
        return before

    def write_far_ones(self, now_ms: int) -> None:
        """Write open checkpoints again that have fallen far behind the end of the log. Raises StoreError."""
        for queue, follower in enumerate(self._queues):
            for _ in range(_MOST_WRITTEN):
                first = self.open.first_stored(queue)
                if first is None or first.place >= follower.position - FARTHEST_BACK:
                    break
                self.store([first], now_ms)
