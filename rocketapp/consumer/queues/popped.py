"""One topic of one broker, popped: from the moment it is acquired until it has been given back.

Other members pop the same queues at the same time; the broker hands each message to one of them. So there is nothing
to hand over, and no offset to commit: what this member has in flight is its own until it is acknowledged, or until its
invisible time is over. Its broker keeps its offsets, and moves them itself. What its requests ask for changes with the
next one: discarding the one under way could hide messages from everyone.

Brokers also share out the queues of a popped topic among the members.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable

from rocketapp.client.calls import pop
from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.pop.acks import REQUEST_TIMEOUT, PopAcks
from rocketapp.consumer.pop.delivery import PopDelivery
from rocketapp.consumer.pop.popper import Coming, Popper
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.consumer.queues.start import Starts
from rocketapp.errors import BrokerError, RocketAppError, TransportError
from rocketapp.model.event import Assigned, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.pop_queue import PopQueue
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.assignment import POP, AssignedQueue, AssignmentQuestion

_LAST_ACKS = 2 * REQUEST_TIMEOUT
"""Seconds that the last acknowledgements may take."""
_ASSIGNED_TIMEOUT = 3.0
"""Seconds that a broker may take to share out a topic (Java: the same)."""


class PopAssignment(Owned):
    """Consumes what one broker hands out of one topic."""

    def __init__(self, queue: MessageQueue, mode: MessageMode, *, starts: Starts, flow_control: FlowControl) -> None:
        member = mode.context.member
        super().__init__(queue, member)
        self._mode, self._starts, self._flow_control = mode, starts, flow_control
        self._acks = PopAcks(queue, member, mode.context.redelivery)
        self.popped: PopQueue[Message] | None = self._acks.queue
        self._consuming: tuple[Popper, QueueFlow] | None = None

    def __repr__(self) -> str:
        return f"<PopAssignment {self._acks.queue}>"

    @property
    def asked(self) -> SubscriptionData | None:
        coming = None if self._consuming is None else self._consuming[0].coming
        return None if coming is None else coming.wanted

    def limits_changed(self) -> None:
        if self._consuming is not None:
            self._consuming[1].change(self._limits())

    async def _session(self) -> None:
        """Begins when the group has an offset in each queue where a broker would choose another one than `start=`."""
        member, queue = self._member, self._acks.queue
        route = member.client.routes.get(self.queue.topic)
        for there in () if route is None else route.readable_queues(self.queue.topic):
            if there.broker_name == self.queue.broker_name and not self.is_ending:
                await self._starts.fix(there)
        if self.is_ending:
            return
        delivery = PopDelivery(self._acks, self._mode)
        flow = self._flow_control.open(member, queue, self._limits())
        popper = Popper(member, self._acks, delivery, flow)
        self._consuming = popper, flow
        self.process_queue: PopQueue[Message] | None = queue
        member.observe(Assigned(member.name, self.queue, 0, queue.epoch))
        loops = [
            member.tasks.start(coroutine, f"{what} {self.queue}")
            for coroutine, what in (
                (popper.run(), "pop"),
                (self._acks.keep_hidden(), "keep hidden what is in flight of"),
                (self._acks.run(), "acknowledge"),
            )
        ]
        try:
            await self._ended
            loops[0].cancel()
            await self._give_back(popper, delivery, loops[2])
        except asyncio.CancelledError:
            # Not by us: the loop is being closed, and a handler must not keep it.
            delivery.discard()
            raise
        finally:
            for each in loops:
                each.cancel()
            flow.close()
            self._consuming = self.process_queue = None
        member.observe(Released(member.name, self.queue, "released"))

    def _limits(self) -> QueueLimits:
        config = self._member.limits.of(self.queue.topic)
        told = f"limit pop_max_messages {config.pop_max_messages}"
        return QueueLimits(config.pop_max_messages, config.queue_max_bytes, None, limit_told=told)

    async def _give_back(self, popper: Popper, delivery: PopDelivery, acknowledging: asyncio.Task[None]) -> None:
        """Finish and acknowledge what was started; the rest is hidden no longer."""
        self._acks.end()
        delivery.end()
        late = self._give_back_late(popper, popper.coming)
        self._member.tasks.start(late, f"give back the late answer of {self.queue}")
        drained = self._member.tasks.start(delivery.drained(), f"drain {self.queue}")
        await asyncio.wait([drained, self._cut], return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            drained.cancel()
            self.is_clean: bool = False
        acknowledging.cancel()
        await asyncio.wait([acknowledging])
        self.is_clean = await self._acks.finally_(_LAST_ACKS) and self.is_clean
        delivery.discard()

    async def _give_back_late(self, popper: Popper, coming: Coming | None) -> None:
        """What the request under way brings, perhaps long after the session, is not for us.

        Until the broker has taken it back its address is kept, also while no route names it.
        """
        routes, broker_name = self._member.client.routes, self.queue.broker_name
        routes.hold_broker(broker_name)
        try:
            if coming is not None:
                await asyncio.wait([coming.answer])
                with contextlib.suppress(RocketAppError, asyncio.CancelledError):
                    self._acks.give_back(popper.took(coming))
            await self._acks.settled()
        finally:
            if coming is not None:
                coming.answer.cancel()
            routes.release_broker(broker_name)


async def shared_out(
    member: Member, topic: str, connected: Iterable[str], present: Iterable[MessageQueue]
) -> tuple[frozenset[MessageQueue], str | None]:
    """The queues that brokers let this member pop; if a broker did not tell, its `present` queues, and why.

    `connected`: names of brokers that can be asked. `present`: the queues until now, of brokers of the topic.
    """
    names = sorted(connected)
    asked = await asyncio.gather(*(_popped_at(member, topic, name) for name in names), return_exceptions=True)
    mine, problem = {queue for queue in present if queue.broker_name not in names}, None
    for name, answer in zip(names, asked, strict=True):
        if isinstance(answer, RocketAppError):
            mine.update(queue for queue in present if queue.broker_name == name)
            problem = problem or str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            mine.update(answer)
    return frozenset(mine), problem


async def _popped_at(member: Member, topic: str, broker_name: str) -> set[MessageQueue]:
    """A broker pulls unless it was told otherwise, so it is told. Once it pops, what an operator has set stays."""
    connection = await member.brokers.connection(broker_name)
    question = AssignmentQuestion(topic, member.name, member.client_id)
    try:
        answer = await pop.assigned(connection, question, _ASSIGNED_TIMEOUT)
        if answer is not None and not _are_popped(answer):
            await pop.set_mode(connection, topic, member.name, POP, _ASSIGNED_TIMEOUT)
            answer = await pop.assigned(connection, question, _ASSIGNED_TIMEOUT)
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            lacks = 'it cannot be popped (mode="pop"): Apache RocketMQ 5.0 and later can'
            raise TransportError(broker_name, lacks) from None
        raise
    if answer is None or not _are_popped(answer):
        raise TransportError(broker_name, f"it does not share out {topic} yet")
    return {each.queue for each in answer if each.queue.broker_name == broker_name}


def _are_popped(answer: Collection[AssignedQueue]) -> bool:
    return bool(answer) and all(each.mode == POP for each in answer)
