"""The saved tables of pop: who pops what, and messages that are popped in order.

In order: per queue and group the messages of the last pop are kept, and which of them are done. While one of them is
hidden and not done, nothing more of the queue is handed out. The group's offset is that of the first one that is not
done, so after a failure the messages come again from there on, in order, also those behind it that were done. There is
no checkpoint and no retry topic.

No clock: times come in. The saved forms are Apache's (Java: MessageRequestModeManager, QueueLevelConsumerManager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rocketapp.broker.config_table import ConfigTable
from rocketapp.broker.pop_checkpoints import HandedOut, Place
from rocketapp.errors import BrokerError
from rocketapp.model.numbers import is_whole
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.assignment import PULL, RequestMode

_IDLE_MS = 24 * 3_600_000
"""Milliseconds without a pop after which a queue is forgotten."""
_SAVED_AS = {"popped_ms": "popTime", "invisible_ms": "i", "attempt_id": "a", "visible": "ot", "counts": "oc"}


class TopicModes(msgspec.Struct, frozen=True):
    """How the members of each group are to ask for the messages of one topic."""

    name: str
    by_group: dict[str, RequestMode]

    @classmethod
    def from_json(cls, saved: object) -> TopicModes:
        modes = msgspec.convert(saved, dict[str, RequestMode], strict=False)
        return cls(next((mode.topic for mode in modes.values()), ""), modes)

    def to_json(self) -> dict[str, Any]:
        return {group: msgspec.to_builtins(mode) for group, mode in self.by_group.items()}


class RequestModes(ConfigTable[TopicModes]):
    """By topic. Where nobody has said how to ask, members pull. The saved form is Apache's messageRequestMode.json."""

    def __init__(self) -> None:
        super().__init__("messageRequestModeMap", TopicModes.from_json, ())

    def of(self, topic: str, group: str) -> RequestMode:
        return self._of(topic).get(group) or RequestMode(topic, group, PULL)

    def put_mode(self, mode: RequestMode) -> None:
        self.put(TopicModes(mode.topic, {**self._of(mode.topic), mode.group: mode}))

    def _of(self, topic: str) -> dict[str, RequestMode]:
        known = self.get(topic)
        return {} if known is None else known.by_group


class InOrder(HandedOut, eq=False, rename=_SAVED_AS.get, kw_only=True):
    """The messages of one pop of one queue, which come again from there."""

    popped_ms: int
    invisible_ms: int = 0
    attempt_id: str | None = None
    visible: dict[int, int] = msgspec.field(default_factory=dict)
    """When single messages come again, where that was changed."""
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How often a message was handed out before."""

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
        first, *others = self.offsets
        own = {"o": [first, *(offset - first for offset in others)], "l": self.popped_ms}
        return {**msgspec.to_builtins(self), **own}


class PopOrder:
    """All queues that are popped in order. The saved form is Apache's consumerOrderInfo.json."""

    def __init__(self, log_end: Callable[[], int]) -> None:
        """`log_end`: where the log ends that the table describes."""
        self._log_end = log_end
        self.position: int | None = None
        """Where the log ended when it was saved; None if that is not known."""
        self._popped: dict[Place, InOrder] = {}
        self.dirty: bool = False

    def __repr__(self) -> str:
        return f"<PopOrder of {len(self._popped)} queues>"

    def free_ms(self, queue: Place, attempt_id: str | None) -> int:
        """When a queue may be popped; for who repeats a request, by its attempt id, at once."""
        popped = self._popped.get(queue)
        if popped is None or (attempt_id and attempt_id == popped.attempt_id):
            return 0
        return popped.free_ms

    def popped(self, queue: Place, popped: InOrder) -> Mapping[int, int]:
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

    def ack(self, queue: Place, offset: int, popped_ms: int, *, done_to: int) -> int | None:
        """A message is done; returns the offset of the group from now on, None if that pop is not the last one.

        `done_to`: the group's offset. Where a crash has left nothing else, only the message there counts as done.
        Raises BrokerError for a message that was not popped.
        """
        popped = self._popped.get(queue)
        if popped is None:
            return offset + 1 if offset == done_to else None
        if popped.popped_ms != popped_ms:
            return None
        if offset not in popped.offsets:
            problem = f"offset is illegal, {offset} is none of {list(popped.offsets)}"
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, problem)
        popped.ack([offset])
        self.dirty = True
        return popped.next_offset

    def hide(self, queue: Place, offset: int, popped_ms: int, until_ms: int) -> None:
        """A message comes again at another time."""
        popped = self._popped.get(queue)
        if popped is not None and popped.popped_ms == popped_ms and offset in popped.offsets:
            popped.visible[offset] = until_ms
            self.dirty = True

    def drop(self, topic: str) -> None:
        """The topic was deleted."""
        for queue in [queue for queue in self._popped if queue[1] == topic]:
            self.reset(queue)

    def clamp(self, possible: Callable[[str, int, int], int]) -> None:
        """Forget what was popped of an earlier topic of that name: see `OffsetTable.clamp`."""
        for queue, popped in list(self._popped.items()):
            if possible(*queue[1:], popped.offsets[-1] + 1) <= popped.offsets[-1]:
                self.reset(queue)

    def reset(self, queue: Place) -> None:
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
        for (group, topic, queue_id), popped in sorted(self._popped.items(), key=lambda item: item[0]):
            table.setdefault(f"{topic}@{group}", {})[queue_id] = popped.to_json()
        return {"table": table}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form. Raises ValueError when it is not one."""
        table, found = saved.get("table") or {}, dict[Place, InOrder]()
        for name, queues in msgspec.convert(table, dict[str, dict[int, InOrder]], strict=False).items():
            topic, _, group = name.partition("@")
            for queue_id, popped in queues.items():
                first, *others = popped.offsets
                popped.offsets = [first, *(first + each for each in others)]
                found[group, topic, queue_id] = popped
        position = saved.get("logPosition")
        self._popped, self.dirty, self.position = found, False, position if is_whole(position) else None
