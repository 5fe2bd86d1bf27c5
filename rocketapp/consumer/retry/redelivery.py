"""Failed messages go back to the broker, or to the dead letters, and stay ours until that is certain.

A failed message keeps its place in its process queue, so that its offset is not committed,
until a broker has confirmed that it stored the copy. There is a retry_queue per broker, a few
attempts wide: a broker that is down holds up its own failures only, and no handler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.sender import RawSender
from rocketapp.errors import RocketAppError
from rocketapp.model.event import DeadLettered, Observe, Retried, SendBackFailed
from rocketapp.model.names import retry_topic
from rocketapp.state.backoff import Backoff
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import (
    Dead,
    Failure,
    Origin,
    SendBack,
    concurrent_step,
    dead_letter_properties,
    max_reconsume_times,
    retry_properties,
)
from rocketapp.tasks import Tasks
from rocketapp.wire.compression import COMPRESSED, KIND_MASK
from rocketapp.wire.properties import ORIGIN_MESSAGE_ID
from rocketapp.wire.record import Message
from rocketapp.wire.requests.send_back import DEAD

_LANE_WIDTH = 16
"""Attempts in flight per broker."""
_FIRST_WAIT, _MOST_WAIT = 0.5, 10.0
"""Seconds until a retry_queue tries again after a failure."""
_LATE = 2.0
"""Seconds that a broker may be late with a retry (it looks at its delay levels every 100 ms)."""


@dataclass(slots=True)
class _Job:
    """One failed message."""

    handler: Handler
    queue: ProcessQueue[Message]
    message: Message
    failure: Failure
    step: SendBack | Dead
    settled: asyncio.Future[None] | None = None
    """Tells whoever waits that a broker took it."""


class Redelivery:
    """Hands failed messages of one group back."""

    def __init__(
        self,
        *,
        group: str,
        brokers: Brokers,
        sender: RawSender,
        observe: Observe,
        random: Random,
        send_timeout: float,
        mixed: bool,
        app_version: str,
    ) -> None:
        """`mixed`: the group has an orderly topic, whose locks turn a send to the retry topic into a dead letter."""
        self._group, self._brokers, self._sender, self._observe = group, brokers, sender, observe
        self._random, self._send_timeout = random, send_timeout
        self._mixed, self._app_version = mixed, app_version
        self._tasks = Tasks(observe)
        self._retry_queues: dict[str, _RetryQueue] = {}
        self._loop = asyncio.get_running_loop()
        self.due_until = 0.0
        """The loop's time until which a retry that we sent back may still come."""

    def __repr__(self) -> str:
        return f"<Redelivery {self._group}: {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """Failed messages that no broker has taken yet."""
        return sum(len(retry_queue.jobs) + retry_queue.running for retry_queue in self._retry_queues.values())

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None:
        """A concurrent handler failed on it: decide, and see to it."""
        retries = handler.subscription.retries
        step = concurrent_step(failure, reconsume_times=message.reconsume_times, retries=retries)
        self._add(_Job(handler, queue, message, failure, step))

    def send_to_dlq(
        self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        """An orderly handler gave up: to the dead letters, however long it takes. The future tells when it is there."""
        settled: asyncio.Future[None] = self._loop.create_future()
        self._add(_Job(handler, queue, message, failure, Dead(), settled))
        return settled

    async def stop(self) -> None:
        """Give up what is waiting: it was not committed, so somebody gets it again."""
        await self._tasks.close()

    def _add(self, job: _Job) -> None:
        broker_name = job.queue.message_queue.broker_name
        retry_queue = self._retry_queues.get(broker_name)
        if retry_queue is None:
            retry_queue = self._retry_queues[broker_name] = _RetryQueue(Backoff(_FIRST_WAIT, _MOST_WAIT))
        retry_queue.jobs.append(job)
        if retry_queue.running < _LANE_WIDTH:
            retry_queue.running += 1
            self._tasks.start(self._run(retry_queue), f"send back to {broker_name}")

    async def _run(self, retry_queue: _RetryQueue) -> None:
        try:
            while retry_queue.jobs:
                if (wait := retry_queue.not_before - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                    continue
                job = retry_queue.jobs.popleft()
                # Of a queue that was given up somebody else gets the message again.
                if not job.queue.closed and not await self._attempt(retry_queue, job):
                    retry_queue.jobs.append(job)
        finally:
            retry_queue.running -= 1

    async def _attempt(self, retry_queue: _RetryQueue, job: _Job) -> bool:
        try:
            if isinstance(job.step, SendBack):
                await self._give_back(job, job.step)
            else:
                await self._send_to_dlq(job)
        except Exception as error:
            # A bug here must not lose a message either: it stays, and is tried again.
            now = self._loop.time()
            if retry_queue.not_before <= now:
                # Attempts that fail side by side are one failure: their broker may be back in a moment.
                retry_queue.not_before = now + retry_queue.backoff.next(self._random.random())
            message, name = job.message, job.handler.name
            text = str(error) if isinstance(error, RocketAppError) else f"{type(error).__name__}: {error}"
            self._observe(SendBackFailed(self._group, name, message.topic, message.message_id, text))
            return False
        retry_queue.backoff.reset()
        retry_queue.not_before = 0.0
        self._settled(job)
        return True

    def _settled(self, job: _Job) -> None:
        message, handler = job.message, job.handler
        about = self._group, handler.name, message.topic, message.message_id, message.attempt
        if isinstance(job.step, SendBack):
            handler.stats.retried += 1
            self.due_until = max(self.due_until, self._loop.time() + job.step.delay + _LATE)
            self._observe(Retried(*about, job.step.delay, str(job.failure)))
        else:
            handler.stats.dead_lettered += 1
            self._observe(DeadLettered(*about, str(job.failure)))
        job.queue.finish(message)
        if job.settled is not None and not job.settled.done():
            job.settled.set_result(None)

    async def _give_back(self, job: _Job, step: SendBack) -> None:
        message, broker_name = job.message, job.queue.message_queue.broker_name
        retries = max_reconsume_times(job.handler.subscription.retries)
        try:
            await self._brokers.send_back(message, broker_name, delay_level=step.level, max_retries=retries)
        except RocketAppError:
            if self._mixed:
                raise
            properties = retry_properties(_origin(message), level=step.level, retries=retries)
            await self._send(job, properties, message.reconsume_times + 1, retries)

    async def _send_to_dlq(self, job: _Job) -> None:
        message, handler = job.message, job.handler
        properties = dead_letter_properties(
            _origin(message),
            job.failure,
            handler=handler.name,
            attempts=message.attempt,
            app_version=self._app_version,
        )
        try:
            await self._send(job, properties, message.reconsume_times + 1, message.reconsume_times)
        except RocketAppError:
            # Without the reasons, but there: the broker copies the message itself.
            retries = max_reconsume_times(handler.subscription.retries)
            broker_name = job.queue.message_queue.broker_name
            await self._brokers.send_back(message, broker_name, delay_level=DEAD, max_retries=retries)

    async def _send(self, job: _Job, properties: dict[str, str], times: int, most: int) -> None:
        await self._sender.send_raw(
            retry_topic(self._group),
            job.message.stored_body,
            properties,
            broker_name=job.queue.message_queue.broker_name,
            reconsume_times=times,
            max_reconsume_times=most,
            sys_flag=job.message.sys_flag & (COMPRESSED | KIND_MASK),
            flag=job.message.flag,
            timeout=self._send_timeout,
        )


@dataclass(slots=True)
class _RetryQueue:
    """Failed messages of one broker."""

    backoff: Backoff
    jobs: deque[_Job] = field(default_factory=deque)
    running: int = 0
    """Attempts in flight."""
    not_before: float = 0.0
    """The loop's time before which nothing is tried."""


def _origin(message: Message) -> Origin:
    properties = message.properties
    message_id = properties.get(ORIGIN_MESSAGE_ID) or message.message_id
    return Origin(message.topic, message_id, message.reconsume_times, properties)
