"""Pull every queue of a topic, outside of any group: for `rocketapp tail`, and for scripts that look.

Nothing is committed, so no group's consumption changes. Queues that appear later are found,
and a broker that is gone is waited for. A reader that is slow holds the pulls up: of each queue at most one answer
waits for it, and a few more of all queues together.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import NamedTuple

from rocketapp.app.settings import Settings
from rocketapp.client.calls import offsets, pull
from rocketapp.client.calls.pull import PullResult
from rocketapp.client.instance import ClientInstance
from rocketapp.errors import NoRouteError, RocketAppError, TransportError
from rocketapp.model.event import Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import Start
from rocketapp.state.backoff import Backoff
from rocketapp.state.start_position import correct
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest

GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for tools: every broker knows it, and nothing of it is stored."""
ROUTE_INTERVAL = 2.0
"""Seconds between looks for queues that have appeared."""
OFFSET_TIMEOUT = 5.0
LONGEST_PAUSE = 10.0
_LOST_PATIENCE = 1.0
"""Seconds that a queue may be without its broker before it is told."""
_AHEAD = 16
"""Answers that may wait for the reader, of all queues together."""


class Reading(ABC):
    """Reads one topic once."""

    def __init__(self, idle: float | None) -> None:
        """`idle`: ends when no message came for so many seconds; None goes on for ever."""
        self._idle = idle

    @abstractmethod
    async def start(self) -> None:
        """Begin to pull. Raises what stopped it; then nothing is left running."""

    async def next(self) -> list[Message]:
        """The next messages of one queue, in order; empty at the end. Calling it says that those before are done."""
        try:
            async with asyncio.timeout(self._idle):
                return await self._next()
        except TimeoutError:
            return []

    @abstractmethod
    async def _next(self) -> list[Message]:
        """As `next`, without the idle limit."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop pulling. Idempotent."""


class Wanted(NamedTuple):
    """The checked arguments of `messages`."""

    topic: str
    expression: str
    tags: frozenset[str]
    """Empty for all."""
    start: Start
    """Of the queues that are there at first; later ones are read whole."""
    idle: float | None
    group: str | None
    place: str
    """`file:line` of the call."""


class Following(Reading):
    """Reads all queues of a topic concurrently, outside of any group, without committing."""

    def __init__(
        self,
        client: ClientInstance,
        settings: Settings,
        wanted: Wanted,
        *,
        observe: Observe,
        say: Callable[[str], None],
    ) -> None:
        """`say`: receives a line about what keeps it from going on."""
        super().__init__(wanted.idle)
        self._random, self._say = Random(), say
        self._client, self._topic, self._tags, self._start = client, wanted.topic, wanted.tags, wanted.start
        self._config = settings.consumer
        self._expression = " || ".join(sorted(wanted.tags)) or "*"
        self._max_inflated_bytes = settings.client.max_inflated_bytes
        self._now = asyncio.get_running_loop().time
        self._tasks = Tasks(observe)
        self._followed: set[MessageQueue] = set()
        self._pulled: asyncio.Queue[list[Message]] = asyncio.Queue(_AHEAD)
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Look for queues, and pull from them."""
        self._tasks.start(self._look_for_queues(), f"queues of {self._topic}")

    async def stop(self) -> None:
        """Pull no more, and end the wait for messages. May be called again."""
        self._stopped.set()
        await self._tasks.close()
        if self._pulled.empty():
            self._pulled.put_nowait([])

    async def _next(self) -> list[Message]:
        return [] if self._stopped.is_set() else await self._pulled.get()

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
            await asyncio.sleep(ROUTE_INTERVAL)

    async def _queues(self) -> list[MessageQueue]:
        """The queues that exist now. Raises RocketAppError when that is unknown."""
        route = await self._client.routes.fetch(self._topic)
        return route.readable_queues(self._topic) if route is not None else []

    async def _follow(self, queue: MessageQueue, start: Start) -> None:
        offset, broker_id = await self._first_offset(queue, start), MASTER_ID
        failing_since, told = None, ""
        while True:
            try:
                result = await self._pull(queue, offset, broker_id)
                messages = self._wanted(result, queue, offset)
            except RocketAppError as error:
                failing_since = self._now() if failing_since is None else failing_since
                lasts = not isinstance(error, TransportError) or self._now() >= failing_since + _LOST_PATIENCE
                if lasts and told != str(error):
                    told = str(error)
                    self._say(f"{queue}: {error}: trying again")
                broker_id = MASTER_ID  # the slave that it sent us to may be gone
                await asyncio.sleep(self._config.pull_retry_delay)
                continue
            if told:
                self._say(f"{queue}: it goes on")
            failing_since, told = None, ""
            if result.status == "illegal" and broker_id == MASTER_ID:
                correction = correct(
                    offset,
                    next_offset=result.next_offset,
                    min_offset=result.min_offset,
                    max_offset=result.max_offset,
                    is_same=True,
                )
                self._say(f"{queue}: {correction.reason}")
                offset = correction.offset
            elif result.status != "illegal":
                offset = result.next_offset
            # A slave may be behind, and holds no pull until there is a message: its master knows better.
            broker_id = result.suggested_broker_id if result.status == "found" else MASTER_ID
            if messages:
                await self._pulled.put(messages)

    async def _pull(self, queue: MessageQueue, offset: int, broker_id: int) -> PullResult:
        """A pull whose subscription comes along, because no heartbeat has told it to the broker."""
        config = self._config
        request = PullRequest(
            group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=config.pull_batch_size,
            sys_flag=FLAG_SUSPEND | FLAG_SUBSCRIPTION,
            suspend_ms=int(config.long_poll * 1000),
            expression=self._expression,
            max_bytes=config.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return pull.read(await pull.start(await self._connection(queue, broker_id), request, config.pull_timeout))

    def _wanted(self, result: PullResult, queue: MessageQueue, offset: int) -> list[Message]:
        found = decode_records(result.body, queue, max_inflated_bytes=self._max_inflated_bytes) if result.body else []
        # The broker compares hashes of tags only, and answers with whole batches.
        return [each for each in found if each.offset >= offset and (not self._tags or each.tag in self._tags)]

    async def _connection(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> Connection:
        """To the queue's broker. Raises NoRouteError without an address."""
        address = self._client.broker_address(queue.broker_name, broker_id)
        if address is None:
            address = self._client.broker_address(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name} has no address")
        return await self._client.connection(address)

    async def _first_offset(self, queue: MessageQueue, start: Start) -> int:
        """The first offset to read; asks until a broker has answered."""
        pauses = Backoff(0.2, LONGEST_PAUSE)
        while True:
            try:
                connection = await self._connection(queue)
                if isinstance(start, datetime):
                    return await offsets.search(connection, queue, start.timestamp(), OFFSET_TIMEOUT)
                ask = offsets.min_offset if start == "first" else offsets.max_offset
                return await ask(connection, queue, OFFSET_TIMEOUT)
            except RocketAppError as error:
                self._say(f"{queue}: {error}: trying again")
                await asyncio.sleep(pauses.next(self._random.random()))
