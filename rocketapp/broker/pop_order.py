"""Messages that are popped in order: per queue and group those of the last pop, and which of them are done.

While one of them is hidden and not done, nothing more of the queue is handed out. The group's offset is that of the
first one that is not done, so after a failure the messages come again from there on, in order, also those behind it
that were done. There is no checkpoint and no retry topic.

No clock: times come in. The saved form is Apache's consumerOrderInfo.json (Java: QueueLevelConsumerManager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocketapp.broker.pop_checkpoints import HandedOut
from rocketapp.model.numbers import is_whole
from rocketapp.wire.lenient_json import int64_of, text_of

_IDLE_MS = 24 * 3_600_000
"""Milliseconds without a pop after which a queue is forgotten."""
Queue = tuple[str, str, int]
"""Topic, group and queue id."""


class InOrder(HandedOut):
    """The messages of one pop of one queue, which come again from there."""

    __slots__ = ("attempt_id", "counts", "invisible_ms", "popped_ms", "visible")

    def __init__(self, offsets: Sequence[int], popped_ms: int, invisible_ms: int, attempt_id: str | None) -> None:
        super().__init__(offsets)
        self.popped_ms: int = popped_ms
        self.invisible_ms: int = invisible_ms
        self.attempt_id: str | None = attempt_id
        self.visible: dict[int, int] = {}
        """When single messages come again, where that was changed."""
        self.counts: dict[int, int] = {}
        """How often a message was handed out before."""

    def __repr__(self) -> str:
        return f"<Popped in order: {list(self.offsets)}, free at {self.free_ms}>"

    @property
    def free_ms(self) -> int:
        """When none of its messages is hidden any more; 0 when all are done."""
        own = self.popped_ms + self.invisible_ms
        return max((self.visible.get(offset, own) for offset in self.left()), default=0)

    @property
    def next_offset(self) -> int:
        """The first message that is not done, or the one behind all."""
        return next(iter(self.left()), self.offsets[-1] + 1)

    def to_json(self) -> dict[str, Any]:
        """Copies, as `ConfigFile.save` needs them: what changes later is another object."""
        first = self.offsets[0]
        return {
            "popTime": self.popped_ms,
            "i": self.invisible_ms,
            "o": [first, *(offset - first for offset in self.offsets[1:])],
            "ot": dict(self.visible),
            "oc": dict(self.counts),
            "l": self.popped_ms,
            "cm": self.acked,
            **({} if self.attempt_id is None else {"a": self.attempt_id}),
        }

    @classmethod
    def from_json(cls, data: Any) -> InOrder:
        """From decoded members. Raises KeyError, TypeError or ValueError for others."""
        first, *others = map(int64_of, data["o"])
        attempt_id = data.get("a")
        one = cls(
            [first, *(first + each for each in others)],
            int64_of(data["popTime"]),
            int64_of(data.get("i") or 0),
            None if attempt_id is None else text_of(attempt_id),
        )
        one.acked = int64_of(data.get("cm") or 0)
        one.visible = {int64_of(key): int64_of(value) for key, value in (data.get("ot") or {}).items()}
        one.counts = {int64_of(key): int64_of(value) for key, value in (data.get("oc") or {}).items()}
        return one


class PopOrder:
    """All queues that are popped in order."""

    def __init__(self, log_end: Callable[[], int]) -> None:
        """`log_end`: where the log ends that the table describes."""
        self._log_end = log_end
        self.position: int | None = None
        """Where the log ended when it was saved; None if that is not known."""
        self._popped: dict[Queue, InOrder] = {}
        self.dirty: bool = False

    def __repr__(self) -> str:
        return f"<PopOrder of {len(self._popped)} queues>"

    def free_ms(self, queue: Queue, attempt_id: str | None) -> int:
        """When a queue may be popped; for who repeats a request, by its attempt id, at once."""
        popped = self._popped.get(queue)
        if popped is None or (attempt_id and attempt_id == popped.attempt_id):
            return 0
        return popped.free_ms

    def popped(self, queue: Queue, popped: InOrder) -> Mapping[int, int]:
        """Messages were handed out; returns how often each of them was before."""
        before = self._popped.get(queue)
        if before is not None:
            again = int(not popped.attempt_id or popped.attempt_id != before.attempt_id)
            known = frozenset(before.offsets)
            counts = {each: before.counts.get(each, 0) + again for each in popped.offsets if each in known}
            popped.counts = {offset: count for offset, count in counts.items() if count}
        self._popped[queue] = popped
        self.dirty = True
        return popped.counts

    def ack(self, queue: Queue, offset: int, popped_ms: int, *, done_to: int) -> int | None:
        """A message is done; returns the offset of the group from now on, None if that pop is not the last one.

        `done_to`: the group's offset. Where a crash has left nothing else, only the message there counts as done.
        Raises ValueError for a message that was not popped.
        """
        popped = self._popped.get(queue)
        if popped is None:
            return offset + 1 if offset == done_to else None
        if popped.popped_ms != popped_ms:
            return None
        if offset not in popped.offsets:
            raise ValueError(f"offset is illegal, {offset} is none of {list(popped.offsets)}")
        popped.ack([offset])
        self.dirty = True
        return popped.next_offset

    def hide(self, queue: Queue, offset: int, popped_ms: int, until_ms: int) -> None:
        """A message comes again at another time."""
        popped = self._popped.get(queue)
        if popped is not None and popped.popped_ms == popped_ms and offset in popped.offsets:
            popped.visible[offset] = until_ms
            self.dirty = True

    def drop(self, topic: str) -> None:
        """The topic was deleted."""
        for queue in [queue for queue in self._popped if queue[0] == topic]:
            del self._popped[queue]
            self.dirty = True

    def clamp(self, possible: Callable[[str, int, int], int]) -> None:
        """Forget what was popped of an earlier topic of that name: see `OffsetTable.clamp`."""
        for (topic, group, queue_id), popped in list(self._popped.items()):
            if possible(topic, queue_id, popped.offsets[-1] + 1) <= popped.offsets[-1]:
                self.reset((topic, group, queue_id))

    def reset(self, queue: Queue) -> None:
        """The group was moved in this queue: nothing of it is waited for."""
        self.dirty = self._popped.pop(queue, None) is not None or self.dirty

    def begin_save(self, now: float) -> Callable[[], dict[str, Any]]:
        """Forget what nobody pops any more; return what makes the saved form of the rest. It has no version."""
        long_ago = int(now * 1000) - _IDLE_MS
        self._popped = {queue: one for queue, one in self._popped.items() if one.popped_ms >= long_ago}
        self.dirty, form = False, {**self.to_json(), "logPosition": self._log_end()}
        return lambda: form

    def to_json(self) -> dict[str, Any]:
        table: dict[str, dict[int, Any]] = {}
        for (topic, group, queue_id), popped in sorted(self._popped.items(), key=lambda item: item[0]):
            table.setdefault(f"{topic}@{group}", {})[queue_id] = popped.to_json()
        return {"table": table}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form. Raises ValueError when it is not one."""
        found: dict[Queue, InOrder] = {}
        try:
            for name, queues in (saved.get("table") or {}).items():
                topic, _, group = name.partition("@")
                for queue_id, popped in queues.items():
                    found[topic, group, int(queue_id)] = InOrder.from_json(popped)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"table: {type(error).__name__} {error}") from None
        position = saved.get("logPosition")
        self._popped, self.dirty, self.position = found, False, position if is_whole(position) else None
