"""Messages that no handler of this process takes and another member wants: they are handed to that member.

The other member is asked, through the broker that stores the message, to consume it now. The message stays unfinished
here until the answer says that it is done, so it is neither lost nor overtaken in an orderly queue, and it needs no
second copy. To the ways of consuming this is one more handler of the topic: its call is the hand-over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from rocketapp.client.calls import direct
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.guard import SubscriptionGuard
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.stall_reasons import OF_ELSEWHERE, StallReasons
from rocketapp.consumer.stats import GroupStats
from rocketapp.errors import BrokerError, ConnectionLostError, RequestTimeoutError, RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ALL_TAGS, Subscription
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.direct import SUCCESS, DirectRequest

W = TypeVar("W")
AT_ONCE = 8
"""Messages of one topic that are handed over at the same time: a broker waits in one of its few threads for each."""
ANSWER_TIMEOUT = 12.0
"""Seconds that a broker may take to answer; Apache RocketMQ waits for the member for 10."""
PATIENCE = 60.0
"""Seconds in which a member has to take a message of a concurrent topic, before it counts as a failed attempt."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
"""Seconds until a message is offered again."""
_TELL_AFTER = 5.0
"""Seconds after which it is said that messages wait for another member."""
NAME = "a handler of another member"


class NotTakenError(RocketAppError):
    """No member that wants a message has taken it."""


class FailedElsewhereError(RocketAppError):
    """The handler of another member failed on a message."""


class _Refusal(NamedTuple):
    """Why a member has not done a message."""

    why: str
    may_run: bool = False
    """Its handler may be at it: asked again, it waits for the same call."""


class WantedElsewhere:
    """The hand-overs of one group."""

    def __init__(
        self,
        *,
        group: str,
        topics: Sequence[ConsumedTopic],
        guard: SubscriptionGuard,
        brokers: Brokers,
        stats: GroupStats,
        stall_reasons: StallReasons,
        retries: int,
    ) -> None:
        """`retries`: of topics that this process does not subscribe."""
        self._group, self._guard, self._brokers, self._stats = group, guard, brokers, stats
        self._stall_reasons, self._retries = stall_reasons, retries
        self._topics = {topic.topic: topic for topic in topics}
        self._loop = asyncio.get_running_loop()
        self._waiting: Counter[MessageQueue] = Counter()
        self._stopped = False
        self.handed_over: int = 0
        """Messages that other members have done."""

    def __repr__(self) -> str:
        return f"<WantedElsewhere {self._group}: {self._waiting.total()} waiting>"

    def split(self, topic: str, messages: Sequence[Message]) -> list[tuple[bool, Sequence[Message]]]:
        """Messages that no handler here takes, in order: runs that another member may want, and runs of the rest."""
        takers, unwanted = self._guard.others, self._guard.unwanted
        if unwanted is None:
            return [(False, messages)]
        runs: list[tuple[bool, list[Message]]] = []
        for message in messages:
            tag = message.raw_tag()
            is_wanted = bool(takers.takers(topic, tag)) or not unwanted.is_known(topic, tag)
            if runs and runs[-1][0] is is_wanted:
                runs[-1][1].append(message)
            else:
                runs.append((is_wanted, [message]))
        return list(runs)

    def handler(self, topic: str) -> Handler:
        """What ways of consuming call for the messages of this topic."""
        known = self._topics.get(topic)
        return Handler(self._unknown(topic) if known is None else _as_here(known), self._hand_over)

    def stop(self) -> None:
        """This member leaves: give up what waits for another one."""
        self._stopped = True

    def _unknown(self, topic: str) -> Subscription:
        return Subscription(
            topic=topic,
            group=self._group,
            tags=frozenset(),
            expression=ALL_TAGS,
            orderly=False,
            batch=None,
            batch_wait=0.0,
            concurrency=AT_ONCE,
            retries=self._retries,
            start="first",
            timeout=None,
            cluster="",
            is_async=True,
            handler_name=NAME,
            place="",
        )

    async def _hand_over(self, message: Message) -> None:
        """Return when a member has done the message, or when none wants it any more."""
        topic, tag, unwanted = message.topic, message.raw_tag(), self._guard.unwanted
        known = self._topics.get(topic)
        in_order = known is not None and known.kind.in_order
        until = None if in_order else self._loop.time() + PATIENCE
        pause, turn, waits, perhaps_at_it = _FIRST_PAUSE, message.offset, False, ""
        try:
            while True:
                takers = self._guard.others.takers(topic, tag)
                if not takers and unwanted is not None and not unwanted.is_known(topic, tag):
                    await unwanted.settle(topic, tag)
                    continue
                if not takers:
                    self._stats.count_unmatched(topic, 1)
                    return
                # In order: as long as it may be at it, no other one is asked, though its broker does not see it.
                member = perhaps_at_it if in_order and perhaps_at_it in takers else takers[turn % len(takers)]
                refusal = await self._offer(message, member)
                if refusal is None:
                    self.handed_over += 1
                    return
                problem = f"member {member} does not take it: {refusal.why}"
                self._wait(message, problem, is_new=not waits)
                waits = True
                if refusal.may_run:
                    # Waited for like a handler here, during a stop too.
                    perhaps_at_it = member
                    await asyncio.sleep(_FIRST_PAUSE)
                    continue
                if self._stopped or (until is not None and self._loop.time() >= until):
                    raise NotTakenError(problem)
                turn += 1
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if waits:
                self._wait_no_more(message)

    async def _offer(self, message: Message, member: str) -> _Refusal | None:
        """Why this member has not done it; None when it has."""
        queue = message.queue
        assert queue is not None
        request = DirectRequest(
            self._group, member, message.offset_message_id, queue.topic, queue.broker_name, message.offset
        )
        try:
            connection = await self._brokers.connection(queue.broker_name)
            answer = await direct.consume(connection, request, ANSWER_TIMEOUT)
        except (RequestTimeoutError, ConnectionLostError) as error:
            return _Refusal(str(error), may_run=True)
        except BrokerError as error:
            may_run = error.code == ResponseCode.CONSUME_MSG_TIMEOUT
            return _Refusal("it has not ended yet" if may_run else error.remark or str(error), may_run=may_run)
        except RocketAppError as error:
            return _Refusal(str(error))
        if answer.result != SUCCESS:
            raise FailedElsewhereError(f"member {member}: {answer.remark or answer.result}")
        return None

    def _wait(self, message: Message, problem: str, *, is_new: bool) -> None:
        queue = message.queue
        assert queue is not None
        self._waiting[queue] += is_new
        count = self._waiting[queue]
        text = (
            f"{count} message{'s' * (count > 1)} that this app has no handler for wait{'s' * (count == 1)}: {problem}"
        )
        self._stall_reasons.still(queue, text, kind="elsewhere", patience=_TELL_AFTER, place=OF_ELSEWHERE)

    def _wait_no_more(self, message: Message) -> None:
        queue = message.queue
        assert queue is not None
        self._waiting[queue] -= 1
        if not self._waiting[queue]:
            del self._waiting[queue]
            self._stall_reasons.moving(queue, place=OF_ELSEWHERE)


class Unmatched(Generic[W]):
    """For one way of consuming: what becomes of messages that no handler here takes."""

    def __init__(self, elsewhere: WantedElsewhere | None, make: Callable[[Handler], W]) -> None:
        """`make(handler)`: what calls it in this way. Without `elsewhere` such messages are done."""
        self._elsewhere, self._make = elsewhere, make
        self._made: dict[str, W] = {}

    def __call__(self, topic: str, messages: Sequence[Message]) -> list[tuple[W | None, Sequence[Message]]]:
        """Runs of messages, in their order: what hands them to a member that wants them, or None for those done."""
        if self._elsewhere is None:
            return [(None, messages)]
        runs = self._elsewhere.split(topic, messages)
        if topic not in self._made and any(is_wanted for is_wanted, _ in runs):
            self._made[topic] = self._make(self._elsewhere.handler(topic))
        return [(self._made[topic] if is_wanted else None, run) for is_wanted, run in runs]


def _as_here(topic: ConsumedTopic) -> Subscription:
    """As our own handlers of the topic, where that matters: order and retries."""
    return replace(
        topic.handlers[0].subscription,
        tags=frozenset(),
        expression=ALL_TAGS,
        batch=None,
        concurrency=AT_ONCE,
        timeout=None,
        is_async=True,
        handler_name=NAME,
        retry=None,
        idempotent=False,
        rate=None,
    )
