"""How much may be pulled: limits of each queue, and one budget of bytes for all queues of an app.

A queue stops pulling at RocketMQ's limits: unfinished messages, their bytes, and the span of
their offsets (not for orderly topics). It goes on only below a share of them, so that it
does not stop and go with each message.

The budget counts the bytes that process queues hold, and reserves bytes for the answers of
pulls under way, as far as brokers have something to answer. A topic may pull while it uses
less than what is free. So one topic whose handlers hang uses at most half of the budget, two
use a third each, and the others always have room. A topic that holds nothing may always pull
once, also when others hold more than the budget: it never waits for their handlers. Of those
that wait, the emptiest topic goes first, and in it the queue that has waited longest.

Every change costs a few additions; only `recount_all` looks at all queues.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from rocketapp.state.process_queue import ProcessQueue

IsFull = Callable[[float], str | None]
"""Why a queue that holds something has to wait, at this share of a limit that is not its own; None when it need not."""
FLOW_PATIENCE = 5.0
"""Seconds of flow control after which it is told: shorter pauses are its work."""
REOPEN = 0.75
"""The share of a limit below which a queue that stopped pulls again."""
_ANSWER_TIME = 0.5
"""Seconds without an answer after which a pull counts as held by its broker, for lack of messages."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits of one queue."""

    max_messages: int
    max_bytes: int
    max_span: int | None
    """Offsets from the lowest unfinished message to the highest pulled one; None: no limit."""
    is_full: IsFull | None = None
    """A limit of several queues together, if there is one."""
    topic_messages: int = 0
    """Messages that the queues of its topic may hold together, each an equal share of them; 0: no limit."""
    topic_bytes: int = 0
    """The same for bytes."""
    limit_told: str = ""
    """What `max_messages` comes from, in words; empty: the setting of queues."""
    bytes_told: str = ""
    """The same for `max_bytes`."""
    patience: float = FLOW_PATIENCE
    """Seconds for which the queue may stand at its limits before it is told."""

    def divided(self, queues: int) -> QueueLimits:
        """The limits of one queue while this process has this many queues of its topic."""
        found = self
        if self.topic_messages and (share := max(1, self.topic_messages // queues)) < found.max_messages:
            text = f"limit topic_max_messages {self.topic_messages} for {queues} queues"
            found = replace(found, max_messages=share, limit_told=text)
        if self.topic_bytes and (share := max(1, self.topic_bytes // queues)) < found.max_bytes:
            text = f"limit topic_max_bytes {self.topic_bytes} for {queues} queues"
            found = replace(found, max_bytes=share, bytes_told=text)
        return found

    def reached(self, queue: ProcessQueue[Any], share: float = 1.0) -> bool:
        """Whether the queue holds that share of one of its limits. An empty queue never does."""
        if not (count := len(queue)):
            return False
        if count >= self.max_messages * share or queue.size >= self.max_bytes * share:
            return True
        if self.max_span is not None and queue.span >= self.max_span * share:
            return True
        return self.is_full is not None and self.is_full(share) is not None

    def reason(self, queue: ProcessQueue[Any]) -> str | None:
        """The limit that stopped the queue, in words; None when it holds less than a stopped queue has to reach."""
        if not self.reached(queue, REOPEN):
            return None
        count = len(queue)
        if count >= self.max_messages * REOPEN:
            told = self.limit_told or f"limit queue_max_messages {self.max_messages}"
            return f"flow control: {count} unfinished messages, {told}"
        if queue.size >= self.max_bytes * REOPEN:
            told = self.bytes_told or f"limit queue_max_bytes {self.max_bytes}"
            return f"flow control: {queue.size} unfinished bytes, {told}"
        together = None if self.is_full is None else self.is_full(REOPEN)
        if together is not None:
            return f"flow control: {together}"
        return (
            f"flow control: {queue.span} offsets were pulled beyond the lowest unfinished message, "
            f"#{queue.commit_offset}; limit queue_max_span {self.max_span}"
        )


class _Topic:
    """What the queues of one topic of one group use together."""

    __slots__ = ("accounts", "answered_at", "expected", "held", "is_answering", "name", "place", "used", "waiting")

    def __init__(self, name: Hashable, expected: int) -> None:
        self.name: Hashable = name
        self.expected: int = expected
        self.accounts: int = 0
        self.held: int = 0
        """Bytes in process queues, as they were when they were counted last."""
        self.used: int = 0
        """Bytes held and reserved."""
        self.is_answering: bool = False
        """An answer came since `recount_all` looked last."""
        self.answered_at: float = float("-inf")
        """When `recount_all` last saw that answers come."""
        self.waiting: dict[QueueAccount, None] = {}
        """In the order in which they came."""
        self.place: tuple[int, int, _Topic] | None = None
        """Its entry among the topics that wait."""


class QueueAccount:
    """The bytes of one process queue, as the budget counts them."""

    __slots__ = ("held", "is_at_end", "number", "queue", "reserved", "reserved_at", "topic")

    def __init__(self, number: int, topic: _Topic, queue: ProcessQueue[Any]) -> None:
        self.number: int = number
        self.topic: _Topic = topic
        self.queue: ProcessQueue[Any] = queue
        self.held: int = 0
        self.reserved: int = 0
        """For the answer of the pull under way."""
        self.reserved_at: float = 0.0
        self.is_at_end: bool = False
        """The last answer reached the end of the queue: the broker will hold the next pull, which reserves nothing."""

    def __repr__(self) -> str:
        return f"<QueueAccount {self.queue!r}: {self.held} held, {self.reserved} reserved>"


class MemoryBudget:
    """The bytes that all queues of an app may hold together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held: int = 0
        """Bytes in process queues, as they were when they were counted last."""
        self.used: int = 0
        """Bytes held and reserved."""
        self._topics: dict[Hashable, _Topic] = {}
        self._accounts: dict[QueueAccount, None] = {}
        self._waiting: list[tuple[int, int, _Topic]] = []
        """Topics with waiting queues, sorted: bytes used, number, topic."""
        self._numbers = 0

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.used} of {self.limit_bytes} bytes, {len(self._accounts)} queues>"

    def open(self, topic: Hashable, queue: ProcessQueue[Any], *, expected: int) -> QueueAccount:
        """Count this process queue. `expected`: bytes of an answer, until one of the topic has come."""
        share = self._topics.get(topic)
        if share is None:
            share = self._topics[topic] = _Topic(topic, expected)
        self._numbers += 1
        account = QueueAccount(self._numbers, share, queue)
        share.accounts += 1
        self._accounts[account] = None
        self.recount(account)
        return account

    def close(self, account: QueueAccount) -> None:
        """Count the bytes of a queue no more: it was given up. Nothing happens the second time."""
        if account not in self._accounts:
            return
        self.stop_waiting(account)
        self._use(account, -account.held, -account.reserved)
        del self._accounts[account]
        account.topic.accounts -= 1
        if not account.topic.accounts:
            del self._topics[account.topic.name]

    def reserve(self, account: QueueAccount, now: float) -> bool:
        """Reserve room for the answer of the next pull; False when the pull has to wait."""
        topic = account.topic
        if topic.waiting or not self._has_room(topic):
            return False
        self._reserve(account, now)
        return True

    def release(self, account: QueueAccount) -> None:
        """The pull will bring nothing: it failed, was given up, or its broker holds it."""
        if account.reserved:
            self._use(account, 0, -account.reserved)

    def admit(self, account: QueueAccount, size: int) -> bool:
        """The pull has been answered with this many bytes. False: they do not fit, discard them.

        A topic that holds nothing is admitted one answer, however large it is.
        """
        reserved, topic = account.reserved, account.topic
        topic.is_answering = True
        # What its process queue holds by now, and the pull is answered: in one step.
        self._use(account, account.queue.size - account.held, -reserved)
        # Quick to expect more, slow to expect less: too little reserved is paid with a pull in vain.
        topic.expected = size if size >= topic.expected else (3 * topic.expected + size) // 4
        if topic.held and (
            self.held >= self.limit_bytes or (size > reserved and topic.used >= self.limit_bytes - self.used)
        ):
            return False
        self._use(account, size, 0)
        return True

    def taken(self, account: QueueAccount, size: int) -> None:
        """An answer of this many bytes is in its process queue: it cannot be discarded, whether it fits or not."""
        topic = account.topic
        topic.is_answering = True
        topic.expected = size if size >= topic.expected else (3 * topic.expected + size) // 4
        self.recount(account)

    def recount(self, account: QueueAccount) -> None:
        """Count what its process queue holds by now."""
        change = account.queue.size - account.held
        if change and account in self._accounts:
            self._use(account, change, 0)

    def recount_all(self, now: float) -> None:
        """Count what every process queue holds, and release what is reserved for pulls that their brokers hold.

        While answers of a topic arrive, its late ones may be on their way behind them: their room stays reserved.
        """
        late = now - _ANSWER_TIME
        for topic in self._topics.values():
            if topic.is_answering:
                topic.is_answering, topic.answered_at = False, now
        for account in self._accounts:
            change = account.queue.size - account.held
            is_held = account.reserved_at <= late and account.topic.answered_at <= late
            overdue = account.reserved if is_held else 0
            if change or overdue:
                self._use(account, change, -overdue)
            if overdue:
                # As after an answer with nothing: thousands of queues without messages must not wait for each other.
                account.topic.expected = 3 * account.topic.expected // 4

    def reason(self, account: QueueAccount) -> str:
        """Why it has to wait, in words."""
        reserved = self.used - self.held
        if self.used >= self.limit_bytes:
            who = "all queues together hold"
            held, more = self.held, ""
        else:
            who = f"the queues of {account.topic.name} use"
            held, more = account.topic.used, ": the rest is for other topics"
            reserved = 0
        under_way = f" and wait for {reserved} more" if reserved else ""
        return f"flow control: {who} {held} bytes{under_way}, limit cache_max_bytes {self.limit_bytes}{more}"

    # Who waits, and who goes first.

    def wait(self, account: QueueAccount) -> None:
        """The queue wants to pull as soon as there is room."""
        account.topic.waiting[account] = None
        self._place(account.topic)

    def stop_waiting(self, account: QueueAccount) -> None:
        """The queue does not want to pull any more. Nothing happens if it did not wait."""
        if account in account.topic.waiting:
            del account.topic.waiting[account]
            self._place(account.topic)

    def grant(self, now: float) -> QueueAccount | None:
        """The queue that may pull next, with its room reserved; None when none fits or no queue waits."""
        if not self._waiting:
            return None
        topic = self._waiting[0][2]
        if not self._has_room(topic):
            return None  # and the others that wait use more
        account = next(iter(topic.waiting))
        self.stop_waiting(account)
        self._reserve(account, now)
        return account

    # Inside.

    def _has_room(self, topic: _Topic) -> bool:
        """Whether one of its queues may pull: the topic uses less than what is free, or nothing at all."""
        return not topic.used or topic.used < self.limit_bytes - self.used

    def _reserve(self, account: QueueAccount, now: float) -> None:
        expected = 0 if account.is_at_end else account.topic.expected
        self._use(account, 0, expected - account.reserved)
        account.reserved_at = now

    def _use(self, account: QueueAccount, held: int, reserved: int) -> None:
        """Change the figures of a queue, its topic and the budget together: nothing else does."""
        topic = account.topic
        account.held += held
        account.reserved += reserved
        topic.held += held
        topic.used += held + reserved
        self.held += held
        self.used += held + reserved
        if topic.waiting:
            self._place(topic)

    def _place(self, topic: _Topic) -> None:
        """Put a topic where it belongs among those that wait."""
        if topic.place is not None:
            del self._waiting[bisect_left(self._waiting, topic.place)]
            topic.place = None
        if topic.waiting:
            topic.place = topic.used, next(iter(topic.waiting)).number, topic
            insort(self._waiting, topic.place)
