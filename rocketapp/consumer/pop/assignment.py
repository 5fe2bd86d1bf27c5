"""One topic of one broker, popped: from the moment it is acquired until it has been given back.

Other members pop the same queues at the same time; the broker hands each message to one of them. So there is nothing
to hand over, and no offset to commit: what this member has in hand is its own until it is acknowledged, or until its
invisible time is over. Implements `group.owned.Owned`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.pop.acknowledging import Acknowledging, Judging
from rocketapp.consumer.pop.hiding import REQUEST_TIMEOUT, Hiding
from rocketapp.consumer.pop.popper import Coming, Popper
from rocketapp.consumer.pop.way import PopDelivery, PopWay
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.ways.delivery import Keep
from rocketapp.errors import RocketAppError
from rocketapp.model.event import Assigned, LoopFailed, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.pop_queue import PopQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.retry_times import RetryTimes
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message

_TRY_AGAIN = 1.0
"""Seconds until a session that could not begin is tried again."""
_LAST_ACKS = 2 * REQUEST_TIMEOUT
"""Seconds that the last acknowledgements may take."""


class PopAssignments:
    """Makes the assignments of popped topics, which share its parts."""

    def __init__(
        self,
        way: PopWay,
        member: Member,
        *,
        flow_control: FlowControl,
        starts: Starts,
        redelivery: Redelivery,
        stopping: Stopping,
        epochs: Iterator[int],
        begun: asyncio.Future[None],
    ) -> None:
        """`begun`: done when messages may be asked for."""
        self.way: PopWay = way
        self.member: Member = member
        self.flow_control: FlowControl = flow_control
        self.starts: Starts = starts
        self.redelivery: Redelivery = redelivery
        self.stopping: Stopping = stopping
        self.epochs: Iterator[int] = epochs
        self.begun: asyncio.Future[None] = begun

    def new(self, queue: MessageQueue, *, handed_over: bool) -> PopAssignment:
        """One that does not run yet. Whoever else pops the queue, nothing has to be handed over."""
        return PopAssignment(queue, self.member.subscriptions[queue.topic], self)

    def queues_of(self, popped: MessageQueue) -> list[MessageQueue]:
        """The queues behind one that stands for all of a broker."""
        route = self.member.client.routes.get(popped.topic)
        queues = () if route is None else route.readable_queues(popped.topic)
        return [queue for queue in queues if queue.broker_name == popped.broker_name]


class PopAssignment:
    """Consumes what one broker hands out of one topic."""

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData, group: PopAssignments) -> None:
        self.queue = queue
        self._subscription, self._group, self._way = subscription, group, group.way
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._cut: asyncio.Future[None] = self._loop.create_future()
        """Done when no handler is waited for any more."""
        self._acks = Acknowledging(
            group=group.member.name,
            brokers=group.member.brokers,
            stall_reasons=group.member.stalls,
            observe=group.member.observe,
        )
        self._queue: PopQueue[Message] = PopQueue(queue, self._acks.prompt, next(group.epochs))
        self.popped: PopQueue[Message] | None = self._queue
        self.process_queue: ProcessQueue[Message] | None = None
        self.is_clean: bool = True
        self._retries = RetryTimes()
        self._hiding = Hiding(
            self._queue,
            group=group.member.name,
            brokers=group.member.brokers,
            limits=group.member.limits,
            stall_reasons=group.member.stalls,
            tasks=group.member.tasks,
            observe=group.member.observe,
        )
        self._consuming: tuple[Popper, PopDelivery, QueueFlow] | None = None

    def __repr__(self) -> str:
        return f"<PopAssignment {self._queue}>"

    @property
    def is_ending(self) -> bool:
        return self._ended.done()

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def hand_over(self) -> None:
        """Other members need nothing of us."""
        self.end()

    def is_of_another(self) -> None:
        """It is always."""

    def cut(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    def look_at_pulls(self) -> None:
        """Its requests never end by themselves."""

    def pull_anew(self) -> None:
        """The next request asks for it: discarding the one under way could hide messages from everyone."""

    def limits_changed(self) -> None:
        self._hiding.limits_changed()
        if self._consuming is not None:
            self._consuming[2].change(self._limits())

    def move(self, offset: int) -> None:
        """Its broker keeps the offsets of what it hands out, and moves them itself."""

    async def run(self) -> None:
        """Until it has been given back."""
        group = self._group
        group.member.brokers.hold(self.queue.broker_name)
        try:
            await asyncio.wait([group.begun, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if await self._starts_are_fixed():
                await self._consume()
        finally:
            group.member.stalls.forget(self.queue)
            group.member.brokers.release(self.queue.broker_name)

    async def _starts_are_fixed(self) -> bool:
        """Wait until the group has an offset in each queue: a broker would choose another one. False: given back."""
        group = self._group
        while not self.is_ending:
            try:
                for queue in group.queues_of(self.queue):
                    await group.starts.fix(queue)
                return True
            except RocketAppError as error:
                group.member.stalls.blocked(self.queue, f"its offset cannot be read: {error}", kind="offset")
            except Exception as error:
                group.member.observe(LoopFailed(f"start of {self.queue}", f"{type(error).__name__}: {error}"))
            await asyncio.wait([self._ended], timeout=_TRY_AGAIN)
        return False

    async def _consume(self) -> None:
        group, queue = self._group, self._queue
        delivery = self._way.begin(queue, self._judge, self._hiding.give_back)
        config = group.member.limits.of(self.queue.topic)
        flow = group.flow_control.open(group.member.name, queue, config, self._limits())
        give_back = self._hiding.give_back
        popper = Popper(
            queue, self._subscription, delivery.deliver, flow, group.member, give_back=give_back, retries=self._retries
        )
        self._consuming, self.process_queue = (popper, delivery, flow), queue
        group.member.observe(Assigned(group.member.name, self.queue, 0, queue.epoch))
        group.member.pausing.watch(self.queue.topic, self._look_at_pauses)
        self._look_at_pauses()
        loops = [
            group.member.tasks.start(coroutine, f"{what} {self.queue}")
            for coroutine, what in (
                (popper.run(), "pop"),
                (popper.look_for_retries(), "look for retries of"),
                (self._hiding.keep_hidden(), "keep hidden what is in hand of"),
                (self._acks.run(queue), "acknowledge"),
            )
        ]
        try:
            await self._ended
            loops[0].cancel()
            loops[1].cancel()
            await self._give_back(popper, delivery, loops[3])
        except asyncio.CancelledError:
            # Not by us: the loop is being closed, and a handler must not keep it.
            delivery.discard()
            raise
        finally:
            for each in loops:
                each.cancel()
            group.member.pausing.unwatch(self.queue.topic, self._look_at_pauses)
            self._way.over(queue)
            flow.close()
            self._consuming = self.process_queue = None
        group.member.observe(Released(group.member.name, self.queue, "released"))

    def _limits(self) -> QueueLimits:
        config, queue = self._group.member.limits.of(self.queue.topic), self._queue
        most = config.pop_max_messages

        def is_full(share: float) -> str | None:
            count = len(queue)
            return f"{count} messages are in hand, limit pop_max_messages {most}" if count >= most * share else None

        return QueueLimits(config.queue_max_messages + most, config.queue_max_bytes, None, is_full)

    def _judge(self, handler: Handler, keep: Keep) -> Judging:
        return Judging(
            self._queue,
            handler,
            keep,
            hiding=self._hiding,
            comes_again=self._comes_again,
            member=self._group.member,
            redelivery=self._group.redelivery,
            stopping=self._group.stopping,
        )

    def _comes_again(self, at: float) -> None:
        self._retries.add(at)
        if self._consuming is not None:
            self._consuming[0].look_soon()

    def _look_at_pauses(self) -> None:
        if self._consuming is not None:
            self._consuming[0].gate.follow(self._group.member.pausing.pauses, (self.queue.topic,))

    async def _give_back(self, popper: Popper, delivery: PopDelivery, acknowledging: asyncio.Task[None]) -> None:
        """Finish and acknowledge what was started; the rest is hidden no longer."""
        self._hiding.end()
        delivery.end()
        for coming in filter(None, (popper.coming, popper.looking)):
            coming.answer.add_done_callback(partial(self._answered_late, popper, coming))
        drained = self._group.member.tasks.start(delivery.drained(), f"drain {self.queue}")
        await asyncio.wait([drained, self._cut], return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            drained.cancel()
            self.is_clean = False
        acknowledging.cancel()
        await asyncio.wait([acknowledging])
        self.is_clean = await self._acks.finally_(self._queue, _LAST_ACKS) and self.is_clean
        delivery.discard()

    def _answered_late(self, popper: Popper, coming: Coming, _: asyncio.Future[Command]) -> None:
        """A request that was under way, perhaps for longer than the session, has brought messages: not for us."""
        with contextlib.suppress(RocketAppError, asyncio.CancelledError):
            self._hiding.give_back(popper.took(coming))
