"""Pull every queue of a topic, outside of any group: for `rocketapp tail`, and for scripts that look.

Nothing is committed, so no group's consumption changes. Queues that appear later are found,
and a broker that is gone is waited for. Messages that were not shown yet count as unfinished,
so flow control bounds what is held for a reader that is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random

from rocketapp.client.calls import offsets, pull
from rocketapp.client.instance import ClientInstance
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.pull.puller import PullContext, Puller
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.errors import NoRouteError, RocketAppError
from rocketapp.model.event import Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import Start, SubscriptionData
from rocketapp.state.backoff import Backoff
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest

GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for tools: every broker knows it, and nothing of it is stored."""
ROUTE_INTERVAL = 2.0
"""Seconds between looks for queues that have appeared."""
OFFSET_TIMEOUT = 5.0
LONGEST_PAUSE = 10.0


class ToolSource:
    """Sends pulls whose subscription comes along, because no heartbeat has told it to the broker."""

    def __init__(self, client: ClientInstance, config: ConsumerConfig) -> None:
        self._client, self._config = client, config

    async def connection(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> Connection:
        """To the queue's broker. Raises NoRouteError without an address."""
        address = self._client.broker_address(queue.broker_name, broker_id)
        if address is None:
            address = self._client.broker_address(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name} has no address")
        return await self._client.connection(address)

    async def start_pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        commit_offset: int | None,
        broker_id: int = MASTER_ID,
    ) -> asyncio.Future[Command]:
        config = self._config
        request = PullRequest(
            group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=config.pull_batch_size,
            sys_flag=FLAG_SUSPEND | FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_ms=int(config.long_poll * 1000),
            sub_version=0,
            expression=subscription.expression,
            max_bytes=config.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return pull.start(await self.connection(queue, broker_id), request, config.pull_timeout)


class Following:
    """Every queue of one topic, followed at once."""

    def __init__(
        self,
        client: ClientInstance,
        config: ConsumerConfig,
        topic: str,
        tags: frozenset[str],
        *,
        start: Start,
        max_inflated_bytes: int,
        random: Random,
        observe: Observe,
        say: Callable[[str], None],
    ) -> None:
        """`tags`: empty for all. `start`: in the queues that are there at first; later ones are read whole. `say`: is
        told, in one line, what keeps it from going on.
        """
        self._random, self._say = random, say
        self._client, self._topic, self._tags, self._start = client, topic, tags, start
        self._config = config
        self._subscription = SubscriptionData(topic, " || ".join(sorted(tags)) or "*", tags)
        self._source = ToolSource(client, config)
        self._flow_control = FlowControl(config.cache_max_bytes)
        self._stall_reasons = StallReasons(GROUP, observe, asyncio.get_running_loop().time)
        self._context = PullContext(
            source=self._source,
            commits=None,
            stall_reasons=self._stall_reasons,
            observe=observe,
            retry_delay=config.pull_retry_delay,
            max_inflated_bytes=max_inflated_bytes,
            heartbeat=lambda: None,
            refresh=lambda topic: None,  # routes are fetched again and again
        )
        self._tasks = Tasks(observe)
        self._followed: set[MessageQueue] = set()
        self._pulled: asyncio.Queue[tuple[ProcessQueue[Message], list[Message]] | None] = asyncio.Queue()

    def start(self) -> None:
        """Look for queues, and pull from them."""
        self._tasks.start(self._look_for_queues(), f"queues of {self._topic}")

    async def stop(self) -> None:
        """Pull no more, and end the wait for messages. May be called again."""
        self._pulled.put_nowait(None)
        await self._tasks.close()

    async def next(self) -> list[Message]:
        """The next messages of some queue, in its order; none after `stop`."""
        pulled = await self._pulled.get()
        if pulled is None:
            return []
        process_queue, messages = pulled
        process_queue.finish_all(messages)
        return messages

    async def _look_for_queues(self) -> None:
        is_first, told = True, ""
        while True:
            try:
                queues = await self._queues()
            except RocketAppError as error:
                # Not looked yet: the first queues that are found are those that were there at first.
                if told != str(error):
                    told = str(error)
                    self._say(f"topic {self._topic}: {error}: trying again")
                await asyncio.sleep(ROUTE_INTERVAL)
                continue
            told = ""
            if is_first and not queues:
                self._say(f"topic {self._topic} does not exist yet: waiting for it")
            for queue in queues:
                if queue not in self._followed:
                    self._followed.add(queue)
                    # A queue that appears while we look is shown from its first message.
                    follow = self._follow(queue, self._start if is_first else "first")
                    self._tasks.start(follow, f"follow {queue}")
            is_first = False
            self._stall_reasons.tell()
            await asyncio.sleep(ROUTE_INTERVAL)

    async def _queues(self) -> list[MessageQueue]:
        """Those that exist now. Raises RocketAppError when that cannot be told."""
        route = await self._client.routes.fetch(self._topic)
        return route.readable_queues(self._topic) if route is not None else []

    async def _follow(self, queue: MessageQueue, start: Start) -> None:
        offset = await self._first_offset(queue, start)
        limits = QueueLimits(self._config.queue_max_messages, self._config.queue_max_bytes, max_span=None)
        while True:
            process_queue: ProcessQueue[Message] = ProcessQueue(queue, offset)
            flow = self._flow_control.open(GROUP, process_queue, self._config, limits)

            def deliver(messages: Sequence[Message], process_queue: ProcessQueue[Message] = process_queue) -> None:
                # The broker compares hashes of tags only.
                wanted = [message for message in messages if not self._tags or message.tag in self._tags]
                if len(wanted) < len(messages):
                    process_queue.finish_all(message for message in messages if message.tag not in self._tags)
                if wanted:
                    self._pulled.put_nowait((process_queue, wanted))

            try:
                correction = await Puller(process_queue, self._subscription, deliver, flow, self._context).run()
            finally:
                flow.close()
            self._say(f"{queue}: {correction.reason}")
            offset = correction.offset

    async def _first_offset(self, queue: MessageQueue, start: Start) -> int:
        """Where to begin; asked until a broker has answered."""
        pauses = Backoff(0.2, LONGEST_PAUSE)
        while True:
            try:
                connection = await self._source.connection(queue)
                if isinstance(start, datetime):
                    return await offsets.search(connection, queue, start.timestamp(), OFFSET_TIMEOUT)
                ask = offsets.min_offset if start == "first" else offsets.max_offset
                return await ask(connection, queue, OFFSET_TIMEOUT)
            except RocketAppError as error:
                self._say(f"{queue}: {error}: trying again")
                await asyncio.sleep(pauses.next(self._random.random()))
