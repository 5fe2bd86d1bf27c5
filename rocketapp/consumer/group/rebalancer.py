"""Who is in the group → which queues are ours: a loop that keeps the two in step.

It looks every 20 s, at once when a broker says that members changed or when routes changed,
and after a second when something could not be asked. Releasing takes its time beside the
loop; a queue that is being given back is acquired again only after that.

An assignment is trusted for a minute after a list of members confirmed it (brokers forget
a silent member after two). When that time is over, when a broker was lost (it forgets us at
once) or when the process stood still, nothing is committed until the list has been read again
and nobody else is found to have gone on with the queues. That is not done at once: whoever was
cut off with us needs a moment to come back, and would lose its queues to those who were quicker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.owned import NewAssignments, Owned
from rocketapp.errors import RocketAppError, TransportError
from rocketapp.model.event import DrainCut, LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.rebalance import Membership, change, handed_over, membership, share
from rocketapp.state.trust import Trust
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

HAND_OVER = 10.0
"""Seconds in which a concurrent queue is given back: its next owner waits as long as that, if it must (`hand_over`)."""
REGROUP = 2.0
"""Seconds after a lost broker was reached again before anybody moves: living members dial it every second, and who
took a queue meanwhile has committed and given it back by then."""
_MOST_REGROUP = 10.0
"""Seconds after a disturbance when somebody moves even though a broker is lost and back again and again."""
_PULSE = 1.0
"""Seconds between two looks at the clock."""
_AGAIN = 1.0
"""Seconds until a rebalance that was not complete is repeated."""
_GRAIN = 0.001
"""Seconds that are slept longer than needed: timers may fire a little early."""
_LEAST = 0.05
"""Seconds between two rebalances: notifications come in swarms."""


class Rebalancer:
    """The queues of one group that this member owns."""

    def __init__(
        self,
        *,
        group: str,
        topics: Sequence[str],
        client: ClientInstance,
        brokers: Brokers,
        trust: Trust,
        assignments: NewAssignments,
        regained: Callable[[], None],
        interval: float,
        observe: Observe,
    ) -> None:
        """`regained()`: a topic is trusted again."""
        self._group, self._topics, self._client, self._brokers = group, topics, client, brokers
        self._trust, self._assignments, self._regained = trust, assignments, regained
        self._interval, self._observe = interval, observe
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(observe)
        self._news = asyncio.Event()
        self._calm_at = self._disturbed_at = self._loop.time()
        self._members: dict[str, frozenset[str]] = {}
        self._told: str | None = None
        self._stopped = False
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self.owned: dict[MessageQueue, Owned] = {}
        """Every assignment that has not been given back completely."""
        self.wanted: dict[str, frozenset[MessageQueue]] = {}
        """By topic the queues that are ours by the last list of members."""
        self.is_complete = False
        """Whether the last rebalance could decide on every topic."""
        self.is_fresh_start = False
        """The whole group is starting: nobody has consumed anything that would have to be handed over."""

    def __repr__(self) -> str:
        return f"<Rebalancer {self._group}: {len(self.owned)} queues>"

    @property
    def members(self) -> frozenset[str]:
        """Everybody in the group, as far as the last rebalance knows."""
        return frozenset[str]().union(*self._members.values())

    def regroup(self) -> None:
        """After a disturbance: let everybody come back before anything is decided."""
        now = self._loop.time()
        if now > self._calm_at + REGROUP:
            self._disturbed_at = now
        self._calm_at = min(now + REGROUP, self._disturbed_at + _MOST_REGROUP)
        self.wake()

    async def detect_freeze(self) -> None:
        """Notice that this process stood still: frozen, or kept by a handler that blocks the loop."""
        self._trust.beat(self._loop.time())
        while True:
            await asyncio.sleep(_PULSE)
            if self._trust.beat(self._loop.time()):
                self.wake()

    def wake(self) -> None:
        """Something changed: look soon."""
        self._news.set()

    async def run(self) -> None:
        """Keep owned and wanted queues in step, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._interval if self.is_complete else _AGAIN):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            if (wait := self._calm_at - self._loop.time()) > 0:
                await asyncio.sleep(wait + _GRAIN)
            await self.rebalance()
            await asyncio.sleep(_LEAST)

    async def rebalance(self) -> bool:
        """Look once; whether every topic could be decided on."""
        problems: list[str] = []
        asked: dict[str, list[str] | RocketAppError] = {}
        is_decided = True
        for topic in self._topics:
            try:
                is_decided = await self._rebalance_topic(topic, asked) and is_decided
            except RocketAppError as error:
                problems.append(str(error))
            except Exception as error:
                # A bug with one topic must not keep the others, or the next look, from happening.
                problems.append(f"{topic}: {type(error).__name__}: {error}")
        problem = problems[0] if problems else None
        if problem is not None and problem != self._told:
            self._observe(LoopFailed("rebalance", problem))
        self._told = problem
        self.is_complete = is_decided and not problems
        return self.is_complete

    async def give_back_all(self, cut: asyncio.Event, drain_timeout: float) -> bool:
        """Give every queue back; whether all that was started has been finished and committed."""
        self._stopped = True
        await self._regain_trust()
        assignments = list(self.owned.values())
        for assignment in assignments:
            assignment.end()
        cutting = self._tasks.start(self._cut(cut, drain_timeout, assignments), "cut the drain")
        if self._running:
            await asyncio.wait(self._running.values())
        cutting.cancel()
        await self._tasks.close()
        return all(assignment.is_clean for assignment in assignments)

    async def _cut(self, cut: asyncio.Event, drain_timeout: float, assignments: Sequence[Owned]) -> None:
        """When the time is over, or somebody says so: wait for no handler any more, and say which still ran."""
        began = self._loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout):
                await cut.wait()
        running: dict[str, list[Message]] = {}
        for assignment in assignments:
            for handler, message in assignment.in_hand():
                running.setdefault(handler.name, []).append(message)
            assignment.cut()
        seconds = self._loop.time() - began
        for name, (first, *others) in running.items():
            self._observe(DrainCut(self._group, name, first.topic, first.message_id, len(others), seconds))

    async def _regain_trust(self) -> None:
        """Before leaving: what was finished while we were cut off may be committed, unless somebody went on with it."""
        now = self._loop.time()
        for topic in dict.fromkeys(queue.topic for queue in self.owned if not self._trust.is_trusted(queue, now)):
            now = self._loop.time()
            try:
                await self._look_whether_overtaken(topic, frozenset(self.owned))
            except RocketAppError as error:
                self._observe(LoopFailed("rebalance", str(error)))
            else:
                self._trust.confirm(topic, now)

    async def _rebalance_topic(self, topic: str, asked: dict[str, list[str] | RocketAppError]) -> bool:
        """Look at one topic; False when it is too early to decide."""
        route = self._client.routes.get(topic)
        if route is None:
            return True
        now = self._loop.time()
        members = await self._trustworthy_members(topic, asked)
        if self._loop.time() < self._calm_at:
            return False  # asking was what brought the broker back
        me, queues = self._client.client_id, route.readable_queues(topic)
        mine, was_trusted = share(queues, members, me), self._trust.is_confirmed(topic, self._loop.time())
        if not was_trusted:
            await self._look_whether_overtaken(topic, mine)
        theirs = handed_over(mine, members, me) if not self.is_fresh_start else frozenset()
        self._trust.confirm(topic, now)
        self._members[topic] = frozenset(members)
        self._apply(topic, mine, theirs)
        if not was_trusted:
            # It may be lost again before the next regular commit.
            self._regained()
        return True

    async def _look_whether_overtaken(self, topic: str, mine: frozenset[MessageQueue]) -> None:
        owned = {queue: assignment for queue, assignment in self.owned.items() if queue.topic == topic}
        await asyncio.gather(*(owned[queue].look_whether_overtaken() for queue in owned if queue in mine))
        for queue, assignment in owned.items():
            if queue not in mine:
                assignment.overtaken()

    async def _trustworthy_members(self, topic: str, asked: dict[str, list[str] | RocketAppError]) -> list[str]:
        """A list of members that may be acted on; raises when there is none."""
        me = self._client.client_id
        members = await self._members_of(topic, asked)
        if membership(members, me) is Membership.MISSING:
            # The broker forgot us, or never heard of us. Tell it, before its list is believed.
            accepted = await self._client.heartbeat()
            asked.clear()
            for name in self._brokers.brokers_of(topic):
                if self._client.broker_address(name) not in accepted:
                    asked[name] = TransportError(name, "it does not accept our heartbeat; the present queues are kept")
            members = await self._members_of(topic, asked)
        if membership(members, me) is Membership.UNKNOWN:
            raise TransportError(topic, "its broker knows no member of the group; the present queues are kept")
        return members

    async def _members_of(self, topic: str, asked: dict[str, list[str] | RocketAppError]) -> list[str]:
        """What some broker of the topic says. Each is asked once per look, for all topics."""
        problem: RocketAppError = TransportError(topic, "no broker of it is known")
        for name in self._brokers.brokers_of(topic):
            if name not in asked:
                try:
                    asked[name] = await self._brokers.members(name)
                except RocketAppError as error:
                    asked[name] = error
            answer = asked[name]
            if not isinstance(answer, RocketAppError):
                return answer
            problem = answer
        raise problem

    def _apply(self, topic: str, mine: frozenset[MessageQueue], theirs: frozenset[MessageQueue]) -> None:
        self.wanted[topic] = mine
        if self._stopped:
            self._hurry(topic, mine)
            return
        active = [queue for queue, each in self.owned.items() if queue.topic == topic and not each.is_ending]
        difference = change(active, mine)
        for queue in difference.release:
            assignment = self.owned[queue]
            # An orderly queue stays locked until its handler has ended, however long that takes.
            assignment.end(patience=None if assignment.is_orderly else HAND_OVER)
        for queue in difference.acquire:
            # One that is still being given back is acquired when that is done: it wakes us.
            if queue not in self.owned:
                self._acquire(queue, queue in theirs)

    def _hurry(self, topic: str, mine: frozenset[MessageQueue]) -> None:
        """While we drain, others get queues of ours: they wait no longer than for any other hand-over."""
        for queue, assignment in self.owned.items():
            if queue.topic == topic and queue not in mine and not assignment.is_orderly:
                assignment.end(patience=HAND_OVER)

    def _acquire(self, queue: MessageQueue, is_handed_over: bool) -> None:
        assignment = self.owned[queue] = self._assignments.new(queue, handed_over=is_handed_over)
        task = self._running[queue] = self._tasks.start(assignment.run(), f"queue {queue}")
        task.add_done_callback(lambda _: self._given_back(queue))

    def _given_back(self, queue: MessageQueue) -> None:
        del self.owned[queue], self._running[queue]
        if queue in self.wanted.get(queue.topic, ()):
            self.wake()
