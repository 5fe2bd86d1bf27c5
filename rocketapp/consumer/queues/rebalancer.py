"""Rebalance: a loop that acquires and releases queues according to the members of the group.

It runs every 20 s, at once when members or routes changed or a broker was lost, and after a second when something could
not be asked. Topics are decided concurrently: a broker that does not answer delays only topics that it alone holds.
Releasing happens beside the loop; a queue that is being given back is acquired again only after that.

Every broker is asked once per look, for all topics, and the answers are united. Brokers hear of a member at different
times, and one that has just restarted knows few of them: members that unite the answers agree as soon as any broker has
heard of a change. A broker that does not answer soon after the first good answer is not waited for: its late answer
counts in the next look, which follows at once when it names others. A list without this member is not acted on: that
broker forgot us, or never heard of us. It gets a heartbeat, and is asked again a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from rocketapp.consumer.handler import first_of
from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.queues.assignment import Assignment
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.rollout.check import SubscriptionCheck
from rocketapp.errors import RocketAppError, TransportError
from rocketapp.model.event import DrainCut, LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import sorted_queues
from rocketapp.state.rebalance import GracePeriods, is_left_out, share
from rocketapp.tasks import is_set_by, repeat, until
from rocketapp.wire.record import Message

_CLOCK_INTERVAL = 0.25
"""Seconds between two looks at the clock."""
_AGAIN = 1.0
"""Seconds until a rebalance that was not complete is repeated."""
_GRAIN = 0.001
"""Seconds that are slept longer than needed: timers may fire a little early."""
_LEAST = 0.05
"""Seconds between two rebalances: notifications come in swarms."""
_LEAST_PER_TOPIC = 0.0005
"""The same for each topic of the group: each rebalance decides on all of them."""
_GRACE, _LEAST_GRACE = 0.35, 0.05
"""Seconds that all brokers get, and that others get after the first good answer.

Members hear of a change that much apart, so it has to fit between `RUN_ON` and `WAIT` of a handover.
"""

_Question = asyncio.Task[list[str] | RocketAppError]


class Rebalancer:
    """Acquires and releases the queues of one group."""

    def __init__(
        self,
        member: Member,
        modes: Modes,
        *,
        starts: Starts,
        flow_control: FlowControl,
        check: SubscriptionCheck,
    ) -> None:
        """The commits of `starts` are told when queues may be uncertain or certain again; `check` who the members are.

        `modes`: know every running call of the group, for a stop that waits for them.
        """
        self._member, self._group, self._me, self._brokers = member, member.name, member.client_id, member.brokers
        self._modes, self._starts, self._flow_control, self._check = modes, starts, flow_control, check
        self._commits, self._fencing = starts.commits, starts.commits.fencing
        self._allocation = member.allocation
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._lists = MemberLists(member, self._news)
        self._members: dict[str, frozenset[str]] = {}
        self.problem: str = ""
        """Why the last rebalance could not decide on a topic; empty when it could, and when it was only too early."""
        self._left_out: set[str] = set()
        self._stopped = False
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._owned = member.owned
        self.wanted: dict[str, frozenset[MessageQueue]] = {}
        """By topic the queues that are ours by the last list of members."""
        self.is_complete: bool = False
        """Whether the last rebalance could decide on every topic."""
        self.has_been_complete: bool = False
        """Whether any rebalance could."""

    def __repr__(self) -> str:
        return f"<Rebalancer {self._group}: {len(self._owned)} queues>"

    @property
    def members(self) -> frozenset[str]:
        """The members of the group as of the last rebalance."""
        return frozenset[str]().union(*self._members.values())

    # What it is told.

    def wake(self) -> None:
        """Something changed: rebalance soon."""
        self._news.set()

    def broker_lost(self, broker_name: str) -> None:
        """This member has left the group at that broker: its queues there are uncertain."""
        self._fencing.lost(broker_name, self._loop.time())
        self.wake()

    def broker_back(self, broker_name: str) -> None:
        """Members return to the broker one by one: its list is acted on after a grace period."""
        self._lists.grace.disturb(broker_name, self._loop.time())
        self._commits.look_soon()
        self.wake()

    async def detect_freeze(self) -> None:
        """Notice that the process stood still: suspended, or the loop blocked by a handler."""
        self._fencing.beat(self._loop.time())
        await repeat(_CLOCK_INTERVAL, self._look_at_clock)

    def _look_at_clock(self) -> None:
        if self._fencing.beat(self._loop.time()):
            self._commits.look_soon()
            self.wake()

    # The loop.

    async def run(self) -> None:
        """Rebalance until cancelled."""
        grace_end = self._lists.grace.next_end(self._loop.time())
        while True:
            at = self._loop.time() + (self._member.config.rebalance_interval if self.is_complete else _AGAIN)
            if grace_end is not None:
                at = min(at, grace_end + _GRAIN)
            await is_set_by(self._news, at)
            self._news.clear()
            # Asked before the look: a list that may be acted on since then was not.
            grace_end = self._lists.grace.next_end(self._loop.time())
            await self.rebalance()
            await asyncio.sleep(max(_LEAST, _LEAST_PER_TOPIC * len(self._member.subscriptions)))

    async def rebalance(self) -> None:
        """Rebalance all topics once."""
        self._lists.begin()
        problems = await asyncio.gather(*map(self._try_to_look, self._member.subscriptions))
        problem = next(filter(None, problems), "")
        if problem and problem != self.problem:
            self._member.observe(LoopFailed("rebalance", problem))
        self.problem = problem
        self.is_complete = all(problem is None for problem in problems)
        self.has_been_complete |= self.is_complete
        self._check.look(self.members)

    async def _try_to_look(self, topic: str) -> str | None:
        try:
            return await (self._take_all(topic) if self._member.broadcast else self._look(topic))
        except RocketAppError as error:
            return str(error)
        except Exception as error:
            # A bug with one topic must not keep the others, or the next look, from happening.
            return f"{topic}: {type(error).__name__}: {error}"

    async def _look(self, topic: str) -> str | None:
        """Rebalance one topic. Returns why it was not possible, or '' when it is too early. Raises RocketAppError."""
        route = self._member.client.routes.get(topic)
        if route is None:
            return None
        now = self._loop.time()
        names = {data.broker_name for data in route.brokers}
        connected = [name for name in names if self._brokers.is_connected(name)]
        decisive = list(filter(self._lists.is_grace_over, connected))
        if connected and not decisive:
            return ""
        members = await self._lists.of(topic)
        if members is None:
            return ""  # asking was what brought the broker back
        is_news = self._fencing.confirm(topic, now, decisive)
        self._members[topic] = members
        problem = None
        if topic in self._member.popped:
            from rocketapp.consumer.queues.popped import shared_out

            # A broker that has left the cluster, or is not told of for a moment, keeps nothing of ours.
            present = [queue for queue in self.wanted.get(topic, ()) if queue.broker_name in names]
            mine, problem = await shared_out(self._member, topic, connected, present)
            self._apply(topic, mine, frozenset(), is_alone=True)
        else:
            there = route.readable_queues(topic)
            mine = share(there, members, self._me, group=self._group, allocation=self._allocation)
            self._apply(topic, mine, frozenset(there), is_alone=members == {self._me})
            self._tell_left_out(topic, there, () if mine else members)
        if is_news:
            self._commits.look_soon()
        return problem

    def _tell_left_out(self, topic: str, queues: Collection[MessageQueue], members: Collection[str]) -> None:
        """Report once that a strategy assigns a topic's queues to nobody, as with a misspelt machine room."""
        if not members or not is_left_out(queues, members, group=self._group, allocation=self._allocation):
            self._left_out.discard(topic)
        elif topic not in self._left_out:
            self._left_out.add(topic)
            brokers = ", ".join(sorted({queue.broker_name for queue in queues}))
            text = f"allocation {self._allocation.name}: by this process's settings no member gets a queue of {topic}"
            self._member.observe(LoopFailed("rebalance", f"{text}, which is on {brokers}"))

    async def _take_all(self, topic: str) -> str | None:
        """Broadcast: all queues of the topic are ours. The members are asked for only to be shown."""
        route = self._member.client.routes.get(topic)
        if route is None:
            return None
        queues = frozenset(route.readable_queues(topic))
        self._apply(topic, queues, queues, is_alone=True)
        self._members.setdefault(topic, frozenset([self._me]))
        with contextlib.suppress(RocketAppError):
            self._members[topic] = await self._lists.of(topic) or self._members[topic]
        return None

    def _apply(
        self, topic: str, mine: frozenset[MessageQueue], there: frozenset[MessageQueue], *, is_alone: bool
    ) -> None:
        # Only these can be owned and not be given back: with 1,000 topics, nobody looks at the queues of all for one.
        before, self.wanted[topic] = self.wanted.get(topic, frozenset[MessageQueue]()), mine
        if self._stopped:
            for queue in there - mine:
                if (owned := self._owned.get(queue)) is not None:
                    owned.owner_changed()
            return
        active = [queue for queue in before if queue in self._owned and not self._owned[queue].is_ending]
        for queue in sorted_queues(set(active) - mine):
            if queue in there:
                self._owned[queue].handover()
            else:
                # No member waits for it: its broker is gone, or a name server has lost it for a moment.
                self._owned[queue].end()
        for queue in sorted_queues(mine.difference(active)):
            # One that is still being given back is acquired when that is done: it wakes us.
            if queue not in self._owned:
                self._acquire(queue, is_handed_over=not is_alone)

    def _acquire(self, queue: MessageQueue, *, is_handed_over: bool) -> None:
        assignment = self._owned[queue] = self._new(queue, is_handed_over=is_handed_over)
        task = self._running[queue] = self._member.tasks.start(assignment.run(), f"queue {queue}")
        task.add_done_callback(lambda _: self._given_back(queue))

    def _new(self, queue: MessageQueue, *, is_handed_over: bool) -> Owned:
        """A new assignment for a queue. `is_handed_over`: another member may still work on it."""
        mode, starts, flow_control = self._modes.of(queue.topic), self._starts, self._flow_control
        if queue.topic not in self._member.popped:
            return Assignment(queue, mode, starts=starts, flow_control=flow_control, handed_over=is_handed_over)
        from rocketapp.consumer.queues.popped import PopAssignment

        assert isinstance(mode, MessageMode)
        return PopAssignment(queue, mode, starts=starts, flow_control=flow_control)

    def _given_back(self, queue: MessageQueue) -> None:
        del self._owned[queue], self._running[queue]
        if queue in self.wanted.get(queue.topic, ()):
            self.wake()

    # The end.

    async def give_back_all(self, cut: asyncio.Event, drain_timeout: float) -> bool:
        """Give all queues back. Returns whether everything started was finished and committed.

        Handlers may run for `drain_timeout` seconds, even if other members have got their queues: a member that stops
        too would only repeat their work.
        """
        self._stopped = True
        assignments = list(self._owned.values())
        for assignment in assignments:
            assignment.end()
        cutting = self._member.tasks.start(self._cut(cut, drain_timeout, assignments), "cut the drain")
        if self._running:
            await asyncio.wait(self._running.values())
        # Calls on queues that were given to other members go on by themselves: they are not cancelled early either.
        await until(lambda: cutting.done() or not self._modes.callers.in_flight())
        cutting.cancel()
        return not self._modes.callers.in_flight() and all(assignment.is_clean for assignment in assignments)

    async def _cut(self, cut: asyncio.Event, drain_timeout: float, assignments: Sequence[Owned]) -> None:
        """After the timeout, or when `cut` is set: stop waiting for handlers, and report what is left of their work."""
        began = self._loop.time()
        await is_set_by(cut, began + drain_timeout)
        left: dict[tuple[str, bool], list[Message]] = {}
        for handler, item in self._modes.callers.in_flight():
            left.setdefault((handler.name, False), []).append(first_of(item))
        for handler, message in self._modes.redelivery.waiting():
            left.setdefault((handler.name, True), []).append(message)
        for assignment in assignments:
            assignment.cut()
        seconds = self._loop.time() - began
        for (name, has_failed), (first, *others) in left.items():
            about = name, first.topic, first.message_id, len(others), seconds, has_failed
            self._member.observe(DrainCut(self._group, *about))


class MemberLists:
    """Asks the brokers for the members of the group, once per rebalance."""

    def __init__(self, member: Member, news: asyncio.Event) -> None:
        """`news`: set when a late answer calls for another rebalance."""
        self._brokers, self._me, self._tasks, self._news = member.brokers, member.client_id, member.tasks, news
        self._loop = asyncio.get_running_loop()
        self.grace: GracePeriods = GracePeriods()
        """While members reach a broker (again) one by one, its list is not acted on."""
        self._late: dict[str, list[str]] = {}
        """By broker the last answer since the look began that was not waited for."""
        self.begin()

    def begin(self) -> None:
        """A new rebalance begins: ask every broker again."""
        self._asked: dict[str, _Question] = {}
        self._late_before, self._late = self._late, {}

    def is_grace_over(self, broker_name: str) -> bool:
        """Whether this broker's list may be acted on. Otherwise it only adds members to those of others."""
        now = self._loop.time()
        if self._brokers.slaves.is_new_stand_in(broker_name):
            self.grace.disturb(broker_name, now)
        return self.grace.is_over(broker_name, now)

    async def of(self, topic: str) -> frozenset[str] | None:
        """The members of the group, including this one; None when it is too early to decide.

        Raises RocketAppError when no broker of the topic answers.
        """
        names = self._brokers.brokers_of(topic)
        # Others are being dialled; what they say can wait until they are reached.
        names = [name for name in names if self._brokers.is_connected(name)] or names
        if not names:
            raise TransportError(topic, "none of its brokers is known")
        members, may_act = await self._united(names)
        if self._me not in members:  # a restarted broker, until heartbeats arrive
            self._brokers.heartbeat_soon()
            raise TransportError(topic, "its brokers do not know this member; the present queues are kept")
        return members if may_act else None

    async def _united(self, names: Iterable[str]) -> tuple[frozenset[str], bool]:
        """All members named soon, and whether a list that contains this member may be acted on.

        Raises without a list.
        """
        questions = {self._ask(name): name for name in names}
        lists: list[list[str]] = []
        problem: RocketAppError | None = None
        may_act, until, began = False, None, self._loop.time()
        while questions:
            timeout = None if until is None else max(0.0, until - self._loop.time())
            done, _ = await asyncio.wait(questions, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for question in done:
                name, answer = questions.pop(question), question.result()
                if isinstance(answer, RocketAppError):
                    problem = answer
                    continue
                lists.append(answer)
                if self._me in answer and self.is_grace_over(name):
                    may_act, now = True, self._loop.time()
                    until = max(now + _LEAST_GRACE, began + _GRACE) if until is None else until
        if not lists and problem is not None:
            raise problem
        lists += [self._late_before.get(name, []) for name in questions.values()]
        members = frozenset[str]().union(*lists)
        for question, name in questions.items():
            question.add_done_callback(partial(self._answered_late, name, members, self._late_before.get(name)))
        return members, may_act

    def _answered_late(self, name: str, members: frozenset[str], before: list[str] | None, question: _Question) -> None:
        """Rebalance again if a late answer, or the broker's previous one, has other members."""
        if not question.cancelled() and not isinstance(answer := question.result(), RocketAppError):
            self._late[name] = answer
            if not members.issuperset(answer) or set(answer) != set(answer if before is None else before):
                self._news.set()

    def _ask(self, name: str) -> _Question:
        if name not in self._asked:
            self._asked[name] = self._tasks.start(self._answer(name), f"members at {name}")
        return self._asked[name]

    async def _answer(self, name: str) -> list[str] | RocketAppError:
        try:
            return await self._brokers.members(name)
        except RocketAppError as error:
            return error
