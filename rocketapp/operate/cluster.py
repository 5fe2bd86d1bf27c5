"""What brokers know about an app's groups: topics, members and lag. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocketapp.admin.cluster import at_once
from rocketapp.client.calls.admin import owned_queues
from rocketapp.client.calls.clients import member_list
from rocketapp.client.calls.offsets import max_offset, query
from rocketapp.client.instance import ClientInstance
from rocketapp.errors import BrokerError, RocketAppError
from rocketapp.model.event import QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.operate.health import Finding, mend_of_offset
from rocketapp.plugins.log_lines import line_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.requests.assignment import ALL_QUEUES

_NO_MEMBERS = 1
"""The code of a broker's answer about a group that it does not know, or that has no members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """The committed offset and the end of one queue of a group."""

    queue: MessageQueue
    committed: int | None
    """None: the group has committed nothing of it yet."""
    end: int

    @property
    def lag(self) -> int:
        """Messages behind the committed offset; 0 when the group has committed nothing."""
        return 0 if self.committed is None else max(0, self.end - self.committed)


@dataclass(slots=True, kw_only=True)
class GroupState:
    """One group of one cluster, as its brokers report it."""

    group: str
    members: set[str] = field(default_factory=set)
    queues: list[QueueLag] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def lag(self) -> int:
        """The sum of the lag of all queues."""
        return sum(one.lag for one in self.queues)

    def without(self, other: GroupState) -> GroupState:
        """This state without the queues of `other`."""
        left = {one.queue for one in other.queues}
        return replace(self, queues=[one for one in self.queues if one.queue not in left])


class ClusterInspector:
    """Asks the brokers of one cluster."""

    def __init__(self, client: ClientInstance, timeout: float, *, runs: bool = False) -> None:
        """`timeout`: seconds for each question. `runs`: the app itself has answered, so that it need not be started."""
        self._client, self._timeout, self._runs = client, timeout, runs

    async def group(self, group: str, topics: Sequence[str], *, broadcast: bool = False) -> GroupState:
        """What brokers tell of a group that subscribes these topics. Raises TransportError without a name server.

        `broadcast`: its members keep their offsets themselves, so brokers do not know what waits.
        """
        state = GroupState(group=group)
        queues, missing = list[MessageQueue](), list[str]()
        for topic in (*topics, retry_topic(group)):
            route = await self._client.routes.fetch(topic)
            if route is not None:
                queues += route.readable_queues(topic)
            elif topic in topics:
                missing.append(topic)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        await asyncio.gather(*(self._of_broker(state, name, some) for name, some in by_broker.items()))
        consumes = self._runs or bool(state.members)
        state.findings += (_missing(group, topic, needs_person=not consumes) for topic in missing)
        state.findings += _beyond_the_end(state)
        if not state.members and (by_broker or not self._runs):
            waiting = f", and {_waiting(state.lag)}" if state.lag and not broadcast else ""
            text = f"group {group} has no members: nothing consumes its topics{waiting}"
            mend = "its log says why it could not join" if self._runs else "start the app: rocketapp run"
            state.findings.append(Finding(text=text, mend=mend, needs_person=True))
        return state

    async def _of_broker(self, state: GroupState, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        address = self._client.broker_address(broker_name) or ""
        try:
            connection = await self._client.connection(address)
            state.members.update(await self._members(connection, state.group))

            async def look(queue: MessageQueue) -> QueueLag:
                known = await query(connection, state.group, queue, self._timeout, set_zero_if_not_found=None)
                end = await max_offset(connection, queue, self._timeout)
                return QueueLag(queue=queue, committed=known.offset, end=end)

            # A thousand queues of a broker that is far away, one after the other, take a minute.
            state.queues += await at_once(look, queues)
        except RocketAppError as error:
            text = f"broker {broker_name} cannot be asked: {error}"
            mend = "see that it runs and can be reached from here"
            state.findings.append(Finding(text=text, mend=mend, needs_person=True))

    async def unowned(self, state: GroupState) -> GroupState:
        """This state with only the queues that have messages and no owner.

        It has no queues when a member does not tell what it owns. A member is asked through one broker, then the next.
        """
        names = sorted({one.queue.broker_name for one in state.queues})
        addresses = [address for name in names if (address := self._client.broker_address(name))]

        async def of_member(member: str) -> frozenset[MessageQueue] | None:
            for address in addresses:
                try:
                    connection = await self._client.connection(address)
                    return await owned_queues(connection, state.group, member, self._timeout)
                except RocketAppError:
                    continue
            return None

        told = await at_once(of_member, sorted(state.members))
        owned = {queue for queues in told for queue in queues or ()}
        lost = [one for one in state.queues if one.lag and not {one.queue, _popped(one.queue)} & owned]
        return replace(state, queues=lost if None not in told else [])

    async def _members(self, connection: Connection, group: str) -> list[str]:
        try:
            return await member_list(connection, group, self._timeout)
        except BrokerError as error:
            if error.code == _NO_MEMBERS:
                return []
            raise


def stalled_queues(
    before: GroupState, after: GroupState, seconds: float, *, is_owned: bool = True
) -> Iterator[Finding]:
    """Findings for queues whose offset did not move between two looks although they have messages.

    `is_owned`: whether a member owns these queues.
    """
    if not after.members:
        return
    earlier: Mapping[MessageQueue, QueueLag] = {one.queue: one for one in before.queues}
    for one in after.queues:
        known = earlier.get(one.queue)
        if known is None or not known.lag or one.committed != known.committed:
            continue
        reason = f"{_waiting(one.lag)} from offset {one.committed} on, and nothing was committed for {seconds:g} s"
        mend = "the log of the member that owns it says why; with run --http this command does as well"
        if not is_owned:
            reason += ", for no member owns it"
            mend = "see that every member takes the topic (rocketapp group show) and has the same consumer.allocation"
        text = line_of(QueueBlocked(after.group, one.queue, reason)).text
        yield Finding(text=text, mend=mend, seconds=seconds, needs_person=True)


def _missing(group: str, topic: str, *, needs_person: bool) -> Finding:
    """The finding that a topic does not exist. `needs_person`: no member is running that would wait for it."""
    text = f"group {group}: topic {topic} does not exist yet: it is consumed as soon as it is created"
    mend = "the first message that is sent creates it, where brokers allow that; or: rocketapp topic create"
    return Finding(text=text, mend=mend, needs_person=needs_person)


def _beyond_the_end(state: GroupState) -> Iterator[Finding]:
    """Findings for queues that end before their committed offset: the store was replaced, or lost its tail.

    A member notices it with its next pull, and commits where it goes on.
    """
    for one in state.queues:
        if one.committed is not None and one.committed > one.end >= 0:
            text = (
                f"group {state.group}: {one.queue} is committed up to offset {one.committed}, "
                f"beyond the broker's end {one.end}"
            )
            mend = mend_of_offset(state.group, one.queue.topic)
            yield Finding(text=text, mend=mend, needs_person=True)


def _popped(queue: MessageQueue) -> MessageQueue:
    """The queue under which a broker lists all queues of a popped topic."""
    return queue._replace(queue_id=ALL_QUEUES)


def _waiting(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count} messages wait"
