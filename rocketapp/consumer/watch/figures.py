"""The state and statistics of one group: for snapshots, idle checks, and RocketMQ's tools (Java: ConsumerRunningInfo).

Nothing is counted per message here: counters are read once a second, and on request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rocketapp.consumer.blocked import OF_CALL
from rocketapp.consumer.handler import messages_of
from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.queues.rebalancer import Rebalancer
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.rollout.check import SubscriptionCheck
from rocketapp.consumer.watch.slow_calls import SlowCalls, stacks
from rocketapp.errors import RocketAppError
from rocketapp.model.event import Handled, Unmatched
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import GroupSnapshot, HandlerSnapshot, LeaseState, QueueSnapshot
from rocketapp.state.recent_counts import RecentCounts, TopicCounts
from rocketapp.tasks import repeat
from rocketapp.wire.requests.clients import CONSUME_PASSIVELY
from rocketapp.wire.requests.running_info import (
    CONCURRENCY,
    CONSUME_TYPE,
    ORDERLY,
    PopInfo,
    QueueInfo,
    RunningInfo,
    TopicRates,
)

_INTERVAL = 1.0
"""Seconds between reports of counters."""
_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class IdleReport:
    """The owned and the wanted queues, and why the group is not idle."""

    owned: frozenset[MessageQueue]
    """Queues that are ours and open (orderly: locked)."""
    wanted: frozenset[MessageQueue]
    """Queues that should be ours."""
    reasons: tuple[str, ...]
    """Why it is not idle; empty when it is."""


class Figures:
    """Describes what one group does, for metrics, pages and tools."""

    def __init__(
        self,
        member: Member,
        modes: Modes,
        *,
        rebalancer: Rebalancer,
        commits: Commits,
        redelivery: Redelivery,
        check: SubscriptionCheck,
    ) -> None:
        self._member, self._modes, self._rebalancer, self._owned = member, modes, rebalancer, member.owned
        self._commits, self._redelivery = commits, redelivery
        self._check, self._slow_calls = check, SlowCalls(member, modes, redelivery)
        self._now = asyncio.get_running_loop().time
        self._reported: Counter[object] = Counter()
        """What was reported of each handler, and of each topic."""
        self._progress: dict[MessageQueue, tuple[int, int, float]] = {}
        """By queue: how many messages are finished, and unfinished, and since when none was finished."""
        self._waiting: set[MessageQueue] = set()
        """Queues of which it was said that they wait for a free call, or for a message that is tried again."""
        self._minute, self._hour = RecentCounts(_MINUTE, self._now()), RecentCounts(_HOUR, self._now())

    def __repr__(self) -> str:
        return f"<Figures of {self._member.name}>"

    # Once a second.

    async def run(self) -> None:
        """Report once a second until cancelled."""
        await repeat(_INTERVAL, self._try_to_look)

    def _try_to_look(self) -> None:
        try:
            self.look()
        except Exception as error:
            self._member.failed("watch", error)

    def look(self) -> None:
        """Report what has changed since the last look."""
        member = self._member
        self._note_progress()
        self._note_rates()
        member.blocked.tell()
        for index, handler in enumerate(member.stats.handlers):
            if count := self._news(index, handler.stats.handled):
                member.observe(Handled(member.name, handler.name, handler.subscription.topic, count))
        for topic, unmatched in member.stats.unmatched.items():
            if count := self._news(topic, unmatched):
                member.observe(Unmatched(member.name, topic, count))
        self._slow_calls.look()

    def _news(self, of: object, total: int) -> int:
        """How much of this total was not reported yet."""
        count, self._reported[of] = total - self._reported[of], total
        return count

    def _note_progress(self) -> None:
        """Note which queues have finished messages since the last look, and why the others wait."""
        blocked, now, before, waiting = self._member.blocked, self._now(), self._progress, set[MessageQueue]()
        seen: dict[MessageQueue, tuple[int, int, float]] = {}
        for queue, owned in list(self._owned.items()):
            if (process_queue := owned.process_queue) is None:
                continue
            unfinished, finished = len(process_queue), process_queue.finished
            known = before.get(queue, (-1, 0, now))
            is_same = known[0] == finished and (known[1] or not unfinished)
            since = known[2] if is_same else now
            seen[queue] = finished, unfinished, since
            if reason := owned.delivery.why_it_waits(now - since):
                blocked.because(queue, reason, kind=OF_CALL, source=OF_CALL)
                waiting.add(queue)
        for queue in self._waiting - waiting:
            blocked.moving(queue, source=OF_CALL)
        self._progress, self._waiting = seen, waiting

    def _note_rates(self) -> None:
        now = self._now()
        due = [growth for growth in (self._minute, self._hour) if growth.is_due(now)]
        if due:
            counts = self._counts()
            for growth in due:
                growth.look(counts, now)

    def _counts(self) -> dict[str, TopicCounts]:
        stats = self._member.stats
        found = {topic: TopicCounts(pulled=pulled) for topic, pulled in stats.pulled.items()}
        for _, topic, of_handler in stats.each():
            known = found.get(topic, TopicCounts())
            failed = of_handler.retried + of_handler.dead_lettered + of_handler.dropped
            found[topic] = TopicCounts(known.pulled, known.handled + of_handler.handled, known.failed + failed)
        return found

    # What the app asks.

    def _blocked(self) -> dict[MessageQueue, str]:
        """Why each blocked queue is blocked."""
        found = self._member.blocked.reasons()
        for where, reason in self._slow_calls.running_long().items():
            queue = self._member.owned_as(where)
            # Both: a call that runs for long is often the cause of the other reason.
            found[queue] = f"{found[queue]}; {reason}" if queue in found else reason
        if (retries := self._member.retry_topic) is not None:
            # It is pulled while one topic of the group is not paused, and may hold messages of others alone.
            for queue, owned in self._owned.items():
                if queue.topic == retries and queue not in found and owned.process_queue:
                    topics = {message.topic for message in owned.process_queue.unfinished()}
                    if (paused := self._member.pauses.reason_of_all(topics)) is not None:
                        found[queue] = paused
        return found

    def snapshot(self) -> GroupSnapshot:
        """What the group is doing now."""
        member, rebalancer, reasons = self._member, self._rebalancer, self._blocked()
        return GroupSnapshot(
            group=member.name,
            cluster=member.cluster,
            client_id=member.client_id,
            members=len(rebalancer.members),
            pulls=member.stats.pulls,
            handlers=tuple(
                HandlerSnapshot(name=name, topic=topic, stats=stats, slow=self._slow_calls.counts[name, topic])
                for name, topic, stats in member.stats.each()
            ),
            unmatched=dict(member.stats.unmatched),
            roll_out=self._check.text,
            forwarded=member.stats.forwarded,
            queues=tuple(
                self._queue(queue, self._owned[queue], reasons.get(queue, "")) for queue in sorted(self._owned)
            ),
            unassigned=rebalancer.problem,
            adjusted={topic: dict(values) for topic, values in member.limits.changed.items()},
            paused={topic: why for topic in member.subscriptions if (why := member.pauses.reason(topic)) is not None},
            has_assigned=rebalancer.has_been_complete,
        )

    def _queue(self, queue: MessageQueue, owned: Owned, reason: str) -> QueueSnapshot:
        process_queue, popped = owned.process_queue, owned.popped
        oldest = None if process_queue is None else process_queue.oldest
        asked: LeaseState = "wanted" if self._modes.of(queue.topic).needs_lock and not owned.is_ending else "none"
        return QueueSnapshot(
            queue=queue,
            committed=self._commits.confirmed(queue),
            position=None if process_queue is None or popped is not None else process_queue.end_offset,
            end=None if process_queue is None else process_queue.broker_end,
            unfinished=0 if process_queue is None else len(process_queue),
            unfinished_bytes=0 if process_queue is None else process_queue.size,
            blocked=reason,
            lease=(asked if process_queue is None else process_queue.lease.state(self._now())),
            oldest_ms=None if oldest is None else oldest.stored_ms,
            rest=None if popped is None else popped.rest,
            finished=None if process_queue is None else process_queue.finished,
            corrected=self._member.blocked.corrections.get(queue, ""),
        )

    async def idle(self) -> IdleReport:
        """Whether the group is idle. Asks brokers for the end of its queues."""
        rebalancer = self._rebalancer
        wanted = frozenset[MessageQueue]().union(*rebalancer.wanted.values())
        owned = {queue: each.process_queue for queue, each in self._owned.items() if each.process_queue is not None}
        reasons = [] if rebalancer.is_complete else ["the assignment is not complete"]
        reasons += [f"{queue} is not open yet" for queue in sorted(wanted - owned.keys())]
        reasons += [f"{queue} is being given back" for queue in sorted(self._owned.keys() - wanted)]
        popped = {queue: each.popped for queue, each in self._owned.items() if each.popped is not None}
        due = [self._redelivery.due_until, *(until for one in popped.values() for until in one.coming.values())]
        if (left := max(due) - self._now()) > 0:
            reasons.append(f"a retry that was sent back is due within {left:.0f} s")
        for queue, unfinished in owned.items():
            wanted_end = self._member.brokers.ends.get(queue)
            if (count := len(unfinished)) and (wanted_end is None or unfinished.commit_offset < wanted_end):
                reasons.append(f"{queue}: {count} messages are unfinished")
        for queue, each in popped.items():
            if each.is_empty_since is None:
                reasons.append(f"{queue}: its broker has not said that nothing is left")
            elif each.has_acks:
                reasons.append(f"{queue}: handled messages are not acknowledged yet")
        if not reasons and (count := len(self._modes.callers.in_flight())):
            # For another member, or for messages that were sent back meanwhile.
            reasons.append("1 handler runs" if count == 1 else f"{count} handlers run")
        if not reasons:
            await self._commits.flush()
            lags = await asyncio.gather(*map(self._behind, sorted(owned.keys() - popped.keys())))
            reasons += filter(None, lags)
        return IdleReport(frozenset(owned), wanted, tuple(reasons))

    async def _behind(self, queue: MessageQueue) -> str | None:
        """Why a queue is not done; None when the committed offset is at its end."""
        try:
            end = self._member.brokers.ends.get(queue)
            end = await self._member.brokers.max_offset(queue) if end is None else end
        except RocketAppError as error:
            return f"{queue}: its end is not known: {error}"
        confirmed = self._commits.confirmed(queue)
        return None if confirmed is not None and confirmed >= end else f"{queue}: committed {confirmed}, ends at {end}"

    # What RocketMQ's tools ask.

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What our own handlers want, what we pull, and what we do with each queue.

        Its properties are the settings of the group under their own names, by topic what was changed since, and those
        that Java's tool looks for. `with_stacks`: tell where threads and tasks stand.
        """
        member, owned = self._member, self._owned
        loop_started = member.clock.now() - self._now()
        running = self._running()
        queues = {
            queue: self._queue_info(queue, owned[queue], running, loop_started)
            for queue in sorted(owned)
            if owned[queue].popped is None
        }
        popped = {
            queue: PopInfo(len(each.popped), each.is_ending, _milliseconds(loop_started, each.popped.answered_at))
            for queue, each in sorted(owned.items())
            if each.popped is not None
        }
        seen = stacks() if with_stacks else None
        return RunningInfo(self._properties(), self._check.own, queues, popped, self._rates(), seen)

    def _properties(self) -> dict[str, str]:
        member, handlers = self._member, self._member.stats.handlers
        properties = {f"consumer.{name}": _text(value) for name, value in asdict(member.config).items()}
        for topic, changed in member.limits.changed.items():
            properties |= {f"adjusted.{topic}.{name}": _text(value) for name, value in changed.items()}
        properties |= {
            CONSUME_TYPE: CONSUME_PASSIVELY,
            ORDERLY: _text(bool(handlers) and all(handler.subscription.orderly for handler in handlers)),
            CONCURRENCY: str(sum(handler.subscription.concurrency for handler in handlers)),
        }
        return properties | dict(self._check.info().properties)

    def _queue_info(
        self, queue: MessageQueue, owned: Owned, running: Mapping[MessageQueue, set[int]], loop_started: float
    ) -> QueueInfo:
        process_queue = owned.process_queue
        if process_queue is None:
            return QueueInfo(self._commits.confirmed(queue) or 0, is_given_back=owned.is_ending)
        is_locked = process_queue.lease.state(self._now()) == "held"
        in_flight = sorted(running.get(queue, ()))
        cached = [one.offset for one in process_queue.unfinished() if one.offset not in in_flight]
        progress = self._progress.get(queue)
        return QueueInfo(
            process_queue.commit_offset,
            *((cached[0], cached[-1], len(cached)) if cached else (0, 0, 0)),
            process_queue.size >> 20,
            *((in_flight[0], in_flight[-1], len(in_flight)) if in_flight else (0, 0, 0)),
            is_locked=is_locked,
            locked_ms=_milliseconds(loop_started, process_queue.lease.asked_at if is_locked else None),
            is_given_back=owned.is_ending,
            pulled_ms=_milliseconds(loop_started, process_queue.answered_at),
            consumed_ms=_milliseconds(loop_started, self._now() if progress is None else progress[2]),
        )

    def _running(self) -> dict[MessageQueue, set[int]]:
        """The offsets of running messages, for queues that are consumed under a lock."""
        found: dict[MessageQueue, set[int]] = {}
        for _, item in self._modes.callers.in_flight():
            for message in messages_of(item):
                if message.queue is not None and self._modes.of(message.queue.topic).needs_lock:
                    found.setdefault(message.queue, set()).add(message.offset)
        return found

    def _rates(self) -> dict[str, TopicRates]:
        """Rates of each topic: of the last minute, and failed attempts of the last hour."""
        now, counts, found = self._now(), self._counts(), dict[str, TopicRates]()
        for topic in self._member.subscriptions:
            count = counts.get(topic, TopicCounts())
            minute, seconds = self._minute.since(topic, count, now)
            hour, _ = self._hour.since(topic, count, now)
            per_second = 1 / seconds if seconds else 0.0
            found[topic] = TopicRates(
                minute.pulled * per_second, minute.handled * per_second, minute.failed * per_second, hour.failed
            )
        return found


def _milliseconds(loop_started: float, time: float | None) -> int:
    """Milliseconds since 1970 for a loop time; 0 for None."""
    return int((loop_started + time) * 1000) if time else 0


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
