"""The pull loop of one process queue.

The next pull is under way before the present batch is handed over, and carries the offset
that is done by then. Every failure is waited out and reported; the loop ends only when it
is cancelled, or when another offset takes the place of its own: the broker calls that illegal, or has another queue.
What its broker has deleted before it was pulled is passed over.

A master suggests its slave to readers that are far behind. While a master cannot be reached, a slave is read in its
place, and the master again as soon as it is connected. A slave may be behind, or have less than its master.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from rocketapp.client.calls import pull
from rocketapp.client.calls.pull import PullResult
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import LOST_DELAY, LOST_PATIENCE, AnotherQueueError, is_busy
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.commits import Session
from rocketapp.consumer.pull.flow import QueueFlow
from rocketapp.errors import RocketAppError, TransportError
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.start_position import Correction, correct
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest


class Decode(Protocol):
    """Makes of the body of an answer what a process queue holds: messages, or records, each of several messages."""

    def __call__(self, data: bytes, queue: MessageQueue, /, *, max_inflated_bytes: int) -> Sequence[Any]: ...


_ANSWER_TIME = 1.0
"""Seconds after which a pull that was not answered is held by a broker that works."""
_HANGS = 120.0
"""Seconds after which what comes before a pull is given up, whatever the bug is (Java: pullMaxIdleTime)."""


class _HangsError(Exception):
    """What comes before a pull has taken _HANGS seconds."""


@contextlib.asynccontextmanager
async def _limited() -> AsyncIterator[None]:
    """Give up what hangs. Raises _HangsError; a TimeoutError of what runs in here stays what it is."""
    try:
        async with asyncio.timeout(_HANGS) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise _HangsError(f"it was not pulled for {_HANGS:g} s: what it waited for is given up") from error


class Puller:
    """Pulls the messages of one session into its process queue."""

    def __init__(
        self,
        member: Member,
        session: Session,
        *,
        decode: Decode,
        deliver: Callable[[Sequence[Any]], None],
        flow: QueueFlow,
        passes_over: bool = True,
    ) -> None:
        """`session`: its pulls carry its offset to the broker. `decode`: that of its consume mode.

        `deliver` is given what was just put into the queue, in offset order. `passes_over`: what was deleted.
        """
        process_queue: ProcessQueue[Any] = session.process_queue
        self._member, self._queue, self._decode, self._deliver = member, process_queue, decode, deliver
        self._subscription = member.subscriptions[process_queue.message_queue.topic]
        self.flow: QueueFlow = flow
        """How much it may pull ahead."""
        self.session: Session = session
        self._committer, self._passes_over = session.committer, passes_over
        self._now = asyncio.get_running_loop().time
        self._slaves, self._broker_name = member.brokers.slaves, process_queue.message_queue.broker_name
        self._suggested = self._asked = MASTER_ID
        """The copy that the master says to read, and the one that the pull under way asks."""
        self._carried: int | None = None
        """The offset that travels with the pull under way."""
        member.brokers.begins_session(process_queue.message_queue)
        self._coming: asyncio.Future[Command] | None = None
        """The pull under way."""

    def __repr__(self) -> str:
        return f"<Puller {self._queue.message_queue} at {self._queue.end_offset}>"

    @property
    def _config(self) -> ConsumerConfig:
        """The settings of the topic now."""
        return self._member.limits.of(self._queue.message_queue.topic)

    def start_over(self) -> None:
        """Discard the pull under way: it asks for less than is wanted by now."""
        if self._coming is not None:
            self._coming.cancel()

    async def run(self) -> None:
        """Pull until cancelled, or until our offset means nothing to the broker, when the session is given up."""
        queue = self._queue.message_queue
        self.flow.moves()
        while True:
            try:
                correction = await self._pull_on()
                self._committer.give_up(self.session, correction)
                return
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                # It was the pull under way: see `start_over`.
            except AnotherQueueError as other:
                self._committer.give_up(self.session, other.correction(self._queue.end_offset))
                return
            except RocketAppError as error:
                is_instead = self._broker_name in self._slaves.instead
                patience = LOST_PATIENCE if is_instead or isinstance(error, TransportError) else 0.0
                also = "its master cannot be reached, and its slave says: " if is_instead else ""
                self.flow.stops(f"pull failed: {also}{error}", "pull failed", patience)
                await asyncio.sleep(self._delay(error))
            except _HangsError as error:
                self._member.observe(LoopFailed(f"pull {queue}", str(error)))
                await asyncio.sleep(self._member.config.pull_retry_delay)
            except Exception as error:
                # A bug must not stop the queue for good without a report.
                self._member.failed(f"pull {queue}", error)
                await asyncio.sleep(self._member.config.pull_retry_delay)

    def _answered(self, result: PullResult, *, is_master: bool) -> None:
        """Take note of what a copy said of itself, and choose the one to ask next."""
        process_queue = self._queue
        if is_master:
            if self._carried:  # 0 does not travel
                self._committer.arrived(self.session, self._carried)
            process_queue.broker_end, process_queue.answered_at = result.max_offset, self._now()
        if is_master or result.min_offset <= process_queue.end_offset:
            self.flow.moves()
        else:
            reason = f"pull failed: the slave of {self._broker_name} has no messages before offset {result.min_offset}"
            self.flow.stops(reason, "slave", LOST_PATIENCE)
        if self._broker_name in self._slaves.instead:
            self._slaves.answered(self._broker_name)
        else:
            # A slave that calls an offset illegal may be behind: the master decides.
            self._suggested = MASTER_ID if result.status == "illegal" else result.suggested_broker_id

    def _delay(self, error: RocketAppError) -> float:
        """Seconds until the next try, and what else may help."""
        delay, slaves, name = self._member.config.pull_retry_delay, self._slaves, self._broker_name
        # The slave that a broker sent us to may be gone; the master says anew where to read.
        self._suggested = MASTER_ID
        if self._asked == MASTER_ID:
            if isinstance(error, TransportError) and slaves.stand_in(name, error):
                return min(LOST_DELAY, delay)
        elif name in slaves.instead and not slaves.are_over(name, error) and is_busy(error):
            return delay  # a slave that may not be read says the same, and goes on saying it
        return self._member.brokers.wait_after(error, self._queue.message_queue.topic)

    async def _pull_on(self) -> Correction:
        try:
            await self.flow.passed()
            self._coming = await self._start(self._queue.end_offset)
            if not (await asyncio.wait([self._coming], timeout=_ANSWER_TIME))[0]:
                # Neither answered nor refused: the broker holds the pull until there is a message.
                self.flow.moves()
            while True:
                # No local variable holds it: its answer may be large, and the next pull may have to wait.
                correction = await self._take(pull.read(await self._coming))
                if correction is not None:
                    return correction
        finally:
            # Discard the pull in flight and retrieve its exception.
            coming = self._coming
            self._coming = None
            if coming is not None and not coming.cancel() and not coming.cancelled():
                coming.exception()
            self.flow.release()

    async def _take(self, result: PullResult) -> Correction | None:
        """Make use of one answer, with the next pull under way; where to go on when its offset was illegal."""
        queue, flow = self._queue, self.flow
        is_master, interval = self._asked == MASTER_ID, 0.0
        if is_master and result.status == "illegal":
            brokers = self._member.brokers
            async with _limited():
                connection = await brokers.connection(self._broker_name)
                is_same = await brokers.recognise(queue.message_queue, connection)
            correction = correct(
                queue.end_offset,
                next_offset=result.next_offset,
                min_offset=max(0, result.min_offset),
                max_offset=result.max_offset,
                is_same=is_same,
            )
            if not (self._passes_over and queue.end_offset < result.min_offset <= result.max_offset):
                return correction
            # Of what was deleted, what was pulled before is handled all the same.
            self._member.blocked.corrected(queue.message_queue, correction.reason)
            result = result._replace(next_offset=correction.offset)
        self._member.stats.pulls += 1
        self._answered(result, is_master=is_master)
        is_at_end = result.next_offset >= result.max_offset
        if result.status != "found":
            flow.found_nothing(is_at_end=is_at_end)
            # A slave may be behind, or have less than its master: its bounds are not ours.
            if is_master or (result.status != "illegal" and result.min_offset <= queue.end_offset):
                queue.advance(result.next_offset)
        else:
            interval = self._config.pull_interval
            if flow.answered(len(result.body), is_at_end=is_at_end):
                is_early = not interval and flow.may_pull()
                if is_early:
                    self._coming = await self._start(result.next_offset)
                self._put(result, is_master=is_master)
                if is_early:
                    return None
        # The wait may be long: what was answered is not kept in memory for it.
        is_empty = result.status != "found"
        del result
        self._coming = None
        if is_empty and self._broker_name in self._slaves.instead:
            # A slave holds no pull until there is a message: it answers at once.
            await asyncio.sleep(self._member.config.pull_retry_delay)
        if interval:
            await asyncio.sleep(interval)
        await self.flow.passed()
        # Where the answer was discarded, this is the same offset again.
        self._coming = await self._start(queue.end_offset)
        return None

    def _put(self, result: PullResult, *, is_master: bool) -> None:
        queue = self._queue
        found = self._decode(result.body, queue.message_queue, max_inflated_bytes=self._member.max_inflated_bytes)
        before = len(queue)
        messages = queue.put(found)
        queue.advance(result.next_offset)
        if messages:
            self._member.stats.pulled[queue.message_queue.topic] += len(queue) - before
            self._member.brokers.has_read(queue.message_queue, result, messages, is_master=is_master)
            try:
                self._deliver(messages)
            except Exception:
                # What was not delivered would never be finished: it is pulled again.
                queue.withdraw(messages[0].offset)
                raise

    async def _start(self, offset: int) -> asyncio.Future[Command]:
        """Send a pull. Raises AnotherQueueError."""
        member, queue = self._member, self._queue.message_queue
        broker_id = self._suggested
        if broker_id != MASTER_ID or self._slaves.instead:
            broker_id = self._slaves.reader(self._broker_name, broker_id)
        self._asked = broker_id
        connection = None if broker_id != MASTER_ID else member.brokers.recognised_at(queue)
        if connection is None:
            async with _limited():
                connection = await member.brokers.to_pull(queue, broker_id)
                await self._committer.look_before_pull(self.session)
        # Only now: reaching the broker may take long, and meanwhile more is committed, and settings change. Of what
        # is done the master alone is told.
        self._carried = carried = None if broker_id != MASTER_ID else self._committer.travelling(self.session)
        config, asked = self._config, member.brokers.carried.get(queue.topic)
        request = PullRequest(
            group=member.name,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=config.pull_batch_size,
            sys_flag=FLAG_SUSPEND | (FLAG_COMMIT if carried else 0) | (FLAG_SUBSCRIPTION if asked else 0),
            commit_offset=-1 if carried is None else carried,
            suspend_ms=int(member.config.long_poll * 1000),
            sub_version=self._subscription.version,
            expression=None if asked is None else asked.expression,
            expression_type=self._subscription.expression_type,
            max_bytes=config.pull_batch_bytes,
            broker_name=queue.broker_name,
        )
        return pull.start(connection, request, config.pull_timeout)
