"""What one group asks of brokers: each question finds the right broker by itself.

Everything here raises TransportError or BrokerError when a broker does not answer; nothing
turns a missing answer into an empty one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from rocketapp.client.calls import clients, locks, offsets, pull, send_back
from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.group.slaves import Slaves
from rocketapp.consumer.limits import Limits
from rocketapp.errors import TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import SubscriptionData
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest
from rocketapp.wire.requests.send_back import SendBackRequest

_MEMBERS_TIMEOUT = 1.0
"""Seconds that a list of members may take: one that comes later is out of date."""


class Brokers:
    """The brokers of a cluster, as one group sees them."""

    travels: bool = True

    def __init__(
        self,
        *,
        group: str,
        client: ClientInstance,
        limits: Limits,
        random: Random,
        tasks: Tasks,
        slaves: Slaves,
    ) -> None:
        """`tasks`: the owner of what is asked beside the caller. `slaves` stand in for masters that are away."""
        self._slaves, self._limits, config = slaves, limits, limits.config
        self._group, self._client, self._config, self._random = group, client, config, random
        self._tasks = tasks
        self._beating: asyncio.Task[Any] | None = None
        self._suspend_ms = int(config.long_poll * 1000)
        self._carried: Mapping[str, SubscriptionData] = {}

    def carry(self, subscriptions: Mapping[str, SubscriptionData]) -> None:
        """From now on pulls of these topics say what they ask for, whatever the broker has heard of the group.

        The others go by what it has heard. The guard of the group decides it.
        """
        self._carried = subscriptions

    def carried(self, topic: str) -> SubscriptionData | None:
        """What pulls of the topic say that they ask for; None: they leave it to the broker."""
        return self._carried.get(topic)

    def is_connected(self, broker_name: str) -> bool:
        """Whether there is a living connection to its master."""
        address = self._client.broker_address(broker_name)
        return address is not None and self._client.living_connection(address) is not None

    async def _master(self, broker_name: str, *, dial: bool = True) -> Connection:
        """A connection to the master; with `dial` False TransportError unless there is one already."""
        address = self._client.broker_address(broker_name)
        if address is None:
            raise TransportError(broker_name, "no address of its master is known")
        if dial:
            return await self._client.connection(address)
        connection = self._client.living_connection(address)
        if connection is None:
            raise TransportError(broker_name, "its master is not connected")
        return connection

    async def connection(self, broker_name: str) -> Connection:
        """A connection to its master; TransportError when it cannot be reached."""
        return await self._master(broker_name)

    def hold(self, broker_name: str) -> None:
        """Keep its addresses, whatever the routes say, until as many calls of `release`."""
        self._client.routes.hold_broker(broker_name)

    def release(self, broker_name: str) -> None:
        """The counterpart of `hold`."""
        self._client.routes.release_broker(broker_name)

    # Offsets.

    async def take(self, queue: MessageQueue) -> None:
        """Brokers know no sessions: what one commits late is told by reading before writing."""

    async def committed(
        self, queue: MessageQueue, *, exact: bool = False, timeout: float | None = None, dial: bool = True
    ) -> int | None:
        """The group's offset; None when the broker has none.

        Not `exact`: of a young queue, whose first message is still in memory, a broker says 0 instead.
        """
        connection = await self._master(queue.broker_name, dial=dial)
        zero, timeout = False if exact else None, self._config.commit_timeout if timeout is None else timeout
        return await offsets.query(connection, self._group, queue, timeout, set_zero_if_not_found=zero)

    async def committed_for_start(self, queue: MessageQueue) -> offsets.Committed:
        """The group's offset, and whether that answer is certain: see `client.calls.offsets.Committed`.

        Of a master that the name server does not name any more, the slave's answer counts if it knows an offset.
        """
        try:
            connection = await self._master(queue.broker_name)
        except TransportError:
            slave = self._slaves.of_lost_master(queue)
            if slave is None:
                raise
            known = await offsets.query_certain(slave, self._group, queue, self._config.commit_timeout)
            if known.offset is None or not known.is_certain:
                # It may be behind its master: an offset that it lacks may still be at the master.
                raise
            return known
        return await offsets.query_certain(connection, self._group, queue, self._config.commit_timeout)

    async def commit(
        self, queue: MessageQueue, offset: int, *, timeout: float | None = None, dial: bool = True
    ) -> None:
        """Everything below `offset` is done; returns when the broker has confirmed it."""
        connection = await self._master(queue.broker_name, dial=dial)
        timeout = self._config.commit_timeout if timeout is None else timeout
        await offsets.commit(connection, self._group, queue, offset, timeout)

    async def max_offset(self, queue: MessageQueue, *, timeout: float | None = None, dial: bool = True) -> int:
        """The offset that the next stored message gets."""
        connection = await self._master(queue.broker_name, dial=dial)
        return await offsets.max_offset(connection, queue, self._config.commit_timeout if timeout is None else timeout)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await offsets.min_offset(await self._master(queue.broker_name), queue, self._config.commit_timeout)

    async def offset_at(self, queue: MessageQueue, timestamp: float) -> int:
        """The offset of the first message stored at `timestamp` (seconds since 1970) or later."""
        connection = await self._master(queue.broker_name)
        return await offsets.search(connection, queue, timestamp, self._config.commit_timeout)

    # Pulls.

    async def start_pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        commit_offset: int | None,
        broker_id: int = MASTER_ID,
    ) -> asyncio.Future[Command]:
        """Send a pull; `commit_offset` travels with it and is stored by the master."""
        address = self._client.broker_address(queue.broker_name, broker_id)
        if address is None:
            broker_id, address = MASTER_ID, self._client.broker_address(queue.broker_name)
        if address is None:
            raise TransportError(queue.broker_name, "no address of it is known")
        connection = await self._client.connection(address)
        # Only now: what is carried may have changed meanwhile.
        carried = self._carried.get(queue.topic)
        commits = commit_offset is not None and commit_offset > 0 and broker_id == MASTER_ID
        config = self._limits.of(queue.topic)
        flags = FLAG_SUSPEND if carried is None else FLAG_SUSPEND | FLAG_SUBSCRIPTION
        request = PullRequest(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=config.pull_batch_size,
            sys_flag=flags | FLAG_COMMIT if commits else flags,
            commit_offset=-1 if commit_offset is None else commit_offset,
            suspend_ms=self._suspend_ms,
            sub_version=subscription.version,
            expression=None if carried is None else carried.expression,
            expression_type=subscription.expression_type,
            max_bytes=config.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return pull.start(connection, request, config.pull_timeout)

    # The group.

    def brokers_of(self, topic: str) -> list[str]:
        """Names of the brokers that hold the topic, in a random order."""
        route = self._client.routes.get(topic)
        names = [data.broker_name for data in route.brokers] if route is not None else []
        self._random.shuffle(names)
        return names

    def heartbeat_soon(self) -> None:
        """Tell every broker who we are; a heartbeat that is under way is enough."""
        if self._beating is None or self._beating.done():
            self._beating = self._tasks.start(self._client.heartbeat(), f"heartbeat {self._group}")

    def is_new_stand_in(self, broker_name: str) -> bool:
        """Whether the members of this broker are asked of a slave since the last call, or of another connection."""
        return self._slaves.is_new_stand_in(broker_name)

    async def members(self, broker_name: str) -> list[str]:
        """The client ids of the group's members, as this broker knows them; an empty list when it knows none.

        Members tell slaves of themselves as well: while the master is not connected, a slave is asked.
        """
        if (slave := self._slaves.connection(broker_name)) is not None:
            return await clients.member_list(slave, self._group, _MEMBERS_TIMEOUT)
        try:
            async with asyncio.timeout(_MEMBERS_TIMEOUT):
                connection = await self._master(broker_name)
        except TimeoutError:
            raise TransportError(broker_name, f"not reached within {_MEMBERS_TIMEOUT:g} s") from None
        return await clients.member_list(connection, self._group, _MEMBERS_TIMEOUT)

    async def greet(self) -> frozenset[str]:
        """Send a heartbeat to every connected broker; the names of those that accepted it."""
        accepted = await self._client.heartbeat(dial=False)
        return frozenset(name for address in accepted for name in self._client.names_at(address))

    async def lock(self, broker_name: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, or renew their locks, in one request to a connected broker; which are ours."""
        connection = await self._master(broker_name, dial=False)
        return await locks.lock(connection, self._group, self._client.client_id, queues, self._config.lock_timeout)

    async def unlock(self, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, in one request to a connected broker."""
        connection = await self._master(broker_name, dial=False)
        await locks.unlock(connection, self._group, self._client.client_id, queues, self._config.lock_timeout)

    async def send_back(
        self, message: Message, broker_name: str, *, delay_level: int, max_retries: int, timeout: float
    ) -> None:
        """Hand a failed message back; returns when the broker has stored it for later."""
        request = SendBackRequest(
            message.physical_offset,
            self._group,
            delay_level,
            message.message_id,
            message.topic,
            max_retries,
            broker_name,
        )
        await send_back.send_back(await self._master(broker_name), request, timeout)
