"""Failed messages go back to the broker, or to the dead letters, and stay ours until that is certain.

A failed message keeps its place in its process queue, so that its offset is not committed,
until a broker has confirmed that it stored the copy. There is a retry queue per broker, a few
attempts wide: a broker that is down holds up its own failures only, and no handler. Each message
that was refused waits for its own next round, twice as long each time, whatever becomes of the others.

Every attempt takes one path; `state.redelivery.after_failure` decides which path comes next.
"""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.counts import count_dead_letter, count_retry
from rocketapp.consumer.retry.job import Acknowledgement, Job, RetryQueue, new_backoff
from rocketapp.consumer.retry.problems import UnsendableError, is_too_large, problem_of
from rocketapp.consumer.retry.sender import RawSender
from rocketapp.consumer.retry.waiting import LONG, Waiting
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.errors import RocketAppError
from rocketapp.model.event import Observe, SendBackFailed
from rocketapp.model.names import retry_topic
from rocketapp.state.policy import delay_before
from rocketapp.state.redelivery import (
    Dead,
    Failure,
    Origin,
    Path,
    Problem,
    SendBack,
    after_failure,
    attempt_timeout,
    concurrent_step,
    dead_letter_properties,
    max_reconsume_times,
    not_taken_back,
    retry_properties,
)
from rocketapp.tasks import Tasks
from rocketapp.wire import properties as names
from rocketapp.wire.compression import COMPRESSED, KIND_MASK
from rocketapp.wire.record import Message
from rocketapp.wire.requests.send_back import DEAD

_WIDTH = 16
"""Attempts in flight per broker."""
_LATE = 2.0
"""Seconds that a broker may be late with a retry (it looks at its delay levels every 100 ms)."""
_LONGEST = names.LONGEST - 64
"""Most bytes of a copy's properties: its sender may add a UNIQ_KEY."""


class Redelivery:
    """Hands failed messages of one group back."""

    def __init__(
        self,
        *,
        group: str,
        brokers: Brokers,
        sender: RawSender,
        observe: Observe,
        stall_reasons: StallReasons,
        random: Random,
        send_timeout: float,
        has_locks: bool,
        app_version: str,
    ) -> None:
        """`send_timeout`: seconds of a first attempt; each attempt with an unknown outcome doubles it, up to 60.

        `has_locks`: the group locks queues; meanwhile brokers turn a send to its retry topic into a dead letter.
        """
        self._group, self._brokers, self._sender, self._observe = group, brokers, sender, observe
        self._random, self._send_timeout = random, send_timeout
        self._has_locks, self._app_version = has_locks, app_version
        self._tasks = Tasks(observe)
        self._waiting = Waiting(stall_reasons)
        self._retry_queues: dict[str, RetryQueue] = {}
        self._loop = asyncio.get_running_loop()
        self.due_until: float = 0.0
        """The loop's time until which a retry that we sent back may still come."""

    def __repr__(self) -> str:
        return f"<Redelivery {self._group}: {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """Failed messages that no broker has taken yet."""
        return sum(each.running + len(each.jobs) + len(each.later) for each in self._retry_queues.values())

    def fail(self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure) -> None:
        """A concurrent handler failed on this message: send it back for a retry, or to the dead letters."""
        retries = handler.subscription.retries
        times = message.reconsume_times
        delay = delay_before(handler.subscription.retry, times)
        step = concurrent_step(failure, reconsume_times=times, retries=retries, delay=delay)
        path = Path.SEND_BACK if isinstance(step, SendBack) else Path.DEAD_COPY
        self._begin(Job(handler, queue, message, failure, step, new_backoff(), self._loop.time(), path=path))

    def send_to_dlq(
        self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        """An orderly handler gave up: send the message to the dead letters. Done when the copy is stored."""
        settled: asyncio.Future[None] = self._loop.create_future()
        self._begin(Job(handler, queue, message, failure, Dead(), new_backoff(), self._loop.time(), settled))
        return settled

    async def stop(self) -> None:
        """Give up what is waiting: it was not committed, so the queue's next owner gets it again."""
        for retry_queue in self._retry_queues.values():
            for timer in retry_queue.later.values():
                timer.cancel()
            retry_queue.later.clear()
        await self._tasks.close()

    def _begin(self, job: Job) -> None:
        broker_name = job.queue.message_queue.broker_name
        retry_queue = self._retry_queues.get(broker_name)
        if retry_queue is None:
            retry_queue = self._retry_queues[broker_name] = RetryQueue(new_backoff())
        self._waiting.begin(job.queue.message_queue)
        self._add(retry_queue, job)

    def _add(self, retry_queue: RetryQueue, job: Job) -> None:
        broker_name = job.queue.message_queue.broker_name
        retry_queue.later.pop(job, None)
        retry_queue.jobs.append(job)
        if retry_queue.running < _WIDTH:
            retry_queue.running += 1
            self._tasks.start(self._run(retry_queue), f"send back to {broker_name}")

    async def _run(self, retry_queue: RetryQueue) -> None:
        try:
            while retry_queue.jobs:
                if (wait := retry_queue.not_before - self._loop.time()) > 0:
                    await asyncio.sleep(wait)
                    continue
                job = retry_queue.jobs.popleft()
                # Of a queue that was given up its next owner gets the message again.
                if job.queue.closed or await self._round(retry_queue, job):
                    self._waiting.end(job.queue.message_queue, was_late=job.is_late)
                else:
                    wait = job.backoff.next(self._random.random())
                    retry_queue.later[job] = self._loop.call_later(wait, self._add, retry_queue, job)
        finally:
            retry_queue.running -= 1

    async def _round(self, retry_queue: RetryQueue, job: Job) -> bool:
        """Try one path after the other until a broker has the copy, or another round has to follow."""
        path = job.path
        while True:
            try:
                await self._attempt(job, path)
            except Exception as error:
                # A bug here must not lose a message either: it stays, and another path is tried.
                problem = problem_of(error)
                job.unknowns += problem is Problem.UNKNOWN
                if path is Path.DEAD_COPY and is_too_large(error):
                    job.carried = job.carried.less
                if problem is Problem.UNCLEAR and job.unclear_since is None:
                    job.unclear_since = self._loop.time()
                unclear_for = 0.0 if job.unclear_since is None else self._loop.time() - job.unclear_since
                after = after_failure(path, problem, first=job.path, has_locks=self._has_locks, unclear_for=unclear_for)
                self._turn_dead(job, after.first, error)
                job.path = after.first
                if after.at_once is not None:
                    path = after.at_once
                    continue
                if problem is Problem.PASSING or problem is Problem.UNKNOWN:
                    self._wait_after(retry_queue)
                self._failed(job, _text(error))
                return False
            retry_queue.backoff.reset()
            retry_queue.not_before = 0.0
            self._settled(job)
            return True

    def _failed(self, job: Job, problem: str) -> None:
        self._tell(job, f"{problem}; it is tried again")
        if not job.queue.closed and self._loop.time() - job.since >= LONG:
            self._waiting.refused(job.queue.message_queue, problem, is_new=not job.is_late)
            job.is_late = True

    def _wait_after(self, retry_queue: RetryQueue) -> None:
        now = self._loop.time()
        if retry_queue.not_before <= now:
            # Attempts that fail side by side are one failure: their broker may be back in a moment.
            retry_queue.not_before = now + retry_queue.backoff.next(self._random.random())

    def _turn_dead(self, job: Job, first: Path, error: Exception) -> None:
        """Say so, once, when a message that was to be retried goes to the dead letters instead."""
        if first is Path.DEAD_COPY and isinstance(job.step, SendBack):
            job.step, job.failure = Dead(), not_taken_back(job.failure, _text(error))
            self._tell(job, f"{_text(error)}; no retry is possible, so it goes to the dead letters")

    def _tell(self, job: Job, problem: str) -> None:
        message = job.message
        self._observe(SendBackFailed(self._group, job.handler.name, message.topic, message.message_id, problem))

    def _settled(self, job: Job) -> None:
        message, handler = job.message, job.handler
        job.queue.finish(message)
        if job.settled is not None and not job.settled.done():
            job.settled.set_result(None)
        group, observe = self._group, self._observe
        if isinstance(job.step, SendBack):
            self.due_until = max(self.due_until, self._loop.time() + job.step.delay + _LATE)
            count_retry(handler, message, job.failure, delay=job.step.delay, group=group, observe=observe)
        else:
            count_dead_letter(handler, message, job.failure, group=group, observe=observe)

    async def _attempt(self, job: Job, path: Path) -> None:
        """Have a copy stored by this path; raises when it is not certain that it is."""
        message, step = job.message, job.step
        retries = max_reconsume_times(job.handler.subscription.retries)
        timeout = attempt_timeout(self._send_timeout, job.unknowns)
        if path is Path.SEND_BACK or path is Path.DEAD_SEND_BACK:
            level = step.level if isinstance(step, SendBack) else DEAD
            broker_name = job.queue.message_queue.broker_name
            await self._brokers.send_back(message, broker_name, delay_level=level, max_retries=retries, timeout=timeout)
            return
        properties = self._properties(job)
        most = retries if isinstance(step, SendBack) else message.reconsume_times
        await self._sender.send_raw(
            retry_topic(self._group),
            message.stored_body,
            properties,
            broker_name=job.queue.message_queue.broker_name,
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=most,
            sys_flag=message.sys_flag & (COMPRESSED | KIND_MASK),
            flag=message.flag,
            timeout=timeout,
        )

    def _properties(self, job: Job) -> dict[str, str]:
        """Those of a copy that we send ourselves; UnsendableError when they cannot travel."""
        try:
            origin = _origin(job.message)
            if isinstance(job.step, SendBack):
                retries = max_reconsume_times(job.handler.subscription.retries)
                properties = retry_properties(origin, level=job.step.level, retries=retries)
            else:
                properties = dead_letter_properties(
                    origin,
                    job.failure,
                    handler=job.handler.name,
                    attempts=job.message.attempt,
                    app_version=self._app_version,
                    carried=job.carried,
                )
            size = len(names.encode(properties))
        except Exception as error:
            raise UnsendableError(_text(error)) from error
        if size > _LONGEST:
            raise UnsendableError(f"its properties have {size} bytes, limit {_LONGEST}")
        return properties


def _origin(message: Message) -> Origin:
    properties = message.properties
    message_id = properties.get(names.ORIGIN_MESSAGE_ID) or message.message_id
    return Origin(message.topic, message_id, message.reconsume_times, properties)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, RocketAppError) else f"{type(error).__name__}: {error}"
