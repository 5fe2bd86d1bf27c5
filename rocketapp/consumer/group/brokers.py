"""What one group asks of brokers: each question finds the right broker by itself.

Everything here raises TransportError or BrokerError when there is no answer; nothing
turns "no answer" into "none".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

from rocketapp.client.calls import clients, locks, offsets, pull, send_back
from rocketapp.client.instance import ClientInstance
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import SubscriptionData
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUSPEND, PullRequest
from rocketapp.wire.requests.send_back import SendBackRequest

_MEMBERS_TIMEOUT = 3.0
"""Seconds that a list of members may take (Java: mqClientApiTimeout)."""


class Brokers:
    """The brokers of a cluster, as one group sees them."""

    def __init__(
        self, *, group: str, client: ClientInstance, config: ConsumerConfig, random: Random, tasks: Tasks
    ) -> None:
        """`tasks`: the owner of what is asked beside the caller."""
        self._group, self._client, self._config, self._random = group, client, config, random
        self._tasks = tasks
        self._beating: asyncio.Task[Any] | None = None
        self._suspend_ms = int(config.long_poll * 1000)

    async def _master(self, broker_name: str) -> Connection:
        address = self._client.broker_address(broker_name)
        if address is None:
            raise TransportError(broker_name, "no address of its master is known")
        return await self._client.connection(address)

    # Offsets.

    async def committed(self, queue: MessageQueue, *, exact: bool = False) -> int | None:
        """The group's offset; None when the broker says that there is none.

        Not `exact`: of a young queue, whose first message is still in memory, a broker says 0 instead of none.
        """
        connection = await self._master(queue.broker_name)
        zero = False if exact else None
        return await offsets.query(
            connection, self._group, queue, self._config.commit_timeout, set_zero_if_not_found=zero
        )

    async def committed_for_start(self, queue: MessageQueue) -> offsets.Committed:
        """The group's offset, and whether that answer is certain: see `client.calls.offsets.Committed`."""
        connection = await self._master(queue.broker_name)
        return await offsets.query_certain(connection, self._group, queue, self._config.commit_timeout)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Everything below `offset` is done; returns when the broker has confirmed it."""
        connection = await self._master(queue.broker_name)
        await offsets.commit(connection, self._group, queue, offset, self._config.commit_timeout)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next stored message gets."""
        return await offsets.max_offset(await self._master(queue.broker_name), queue, self._config.commit_timeout)

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
        commits = commit_offset is not None and commit_offset > 0 and broker_id == MASTER_ID
        config = self._config
        request = PullRequest(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=config.pull_batch_size,
            sys_flag=FLAG_SUSPEND | FLAG_COMMIT if commits else FLAG_SUSPEND,
            commit_offset=-1 if commit_offset is None else commit_offset,
            suspend_ms=self._suspend_ms,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            max_bytes=config.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return pull.start(await self._client.connection(address), request, config.pull_timeout)

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

    async def members(self, broker_name: str) -> list[str]:
        """The client ids of the group's members, as this broker knows them."""
        return await clients.member_list(await self._master(broker_name), self._group, _MEMBERS_TIMEOUT)

    async def lock(self, broker_name: str, queues: Iterable[MessageQueue], *, sign: bool = False) -> set[MessageQueue]:
        """Lock queues, or renew their locks; which are ours. `sign`: see `hand_over`."""
        connection, name = await self._master(broker_name), self._lock_name(sign)
        return await locks.lock(connection, name, self._client.client_id, queues, self._config.lock_timeout)

    async def unlock(self, broker_name: str, queues: Iterable[MessageQueue], *, sign: bool = False) -> None:
        """Give locks back."""
        connection, name = await self._master(broker_name), self._lock_name(sign)
        await locks.unlock(connection, name, self._client.client_id, queues, self._config.lock_timeout)

    def _lock_name(self, sign: bool) -> str:
        return f"%HANDOVER%{self._group}" if sign else self._group

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
