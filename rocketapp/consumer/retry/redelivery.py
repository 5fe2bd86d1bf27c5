"""Failed messages go back to the broker, or to the dead letters, and stay ours until that is certain.

A failed message keeps its place in its process queue, so that its offset is not committed,
until a broker has confirmed that it stored the copy. A few attempts are in flight per broker: one
that is down holds up its own failures only, and no handler. Each message that was refused waits
for its own next round, twice as long each time, whatever becomes of the others.

Every attempt takes one path; `state.redelivery.after_failure` decides which path comes next. Java answers any error
with a copy of its own at once (DefaultMQPushConsumerImpl.sendMessageBack); after an answer that was lost, that makes
two copies.

A broadcast group has no retry topic and no dead letters: a copy would come to the members that have handled the
message as well. So its failed messages are dropped, and told.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rocketapp.consumer.brokers import AnotherQueueError
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.errors import (
    BrokerError,
    ConnectionLostError,
    KeysRefused,
    NoRouteError,
    ProtocolError,
    RequestTimeoutError,
    RocketAppError,
    SendRefused,
    SendUnknown,
    TransportError,
)
from rocketapp.model.event import DeadLettered, Dropped, Retried, SendBackFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.model.outgoing import SendResult
from rocketapp.state.backoff import Backoff
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import (
    Failure,
    Origin,
    Path,
    Problem,
    after_failure,
    attempt_timeout,
    dead_letter_properties,
    max_reconsume_times,
    not_taken_back,
    retry_level,
    retry_properties,
    seconds_of,
)
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.compression import COMPRESSED, KIND_MASK
from rocketapp.wire.record import Message
from rocketapp.wire.requests.send_back import DEAD

_SOURCE = "retry"
"""Source of the reasons of failed messages that wait to be sent back."""
_WIDTH = 16
"""Attempts in flight per broker."""
_LATE = 2.0
"""Seconds that a broker may be late with a retry (it looks at its delay levels every 100 ms)."""
_LONGEST = names.LONGEST - 64
"""Most bytes of a copy's properties: its sender may add a UNIQ_KEY."""
_LONG = 5.0
"""Seconds after which it is said that failed messages wait."""
_FIRST_WAIT, _MOST_WAIT = 0.5, 10.0
"""Seconds until a message that was refused is tried again."""


SendRaw = Callable[..., Awaitable[SendResult]]
"""Sends a message exactly as told (`Producer.send_raw`): it is stored when that returns."""


@dataclass(slots=True, eq=False)
class _Job:
    """A failed message whose copy is to be stored by a broker."""

    handler: Handler
    queue: ProcessQueue[Message]
    message: Message
    failure: Failure
    level: int | None = None
    """The delay level at which it is to come back; None: it is to be a dead letter."""
    stored: asyncio.Future[None] | None = None
    """Done when a broker has stored the copy."""
    path: Path = Path.DEAD_COPY
    """What the next round begins with."""
    unclear_since: float | None = None
    """The loop's time of the first unclear refusal."""
    is_refused: bool = False
    """A round of it has failed, and another one follows."""
    unknowns: int = 0
    """Attempts whose outcome is unknown."""
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_WAIT, _MOST_WAIT))
    is_bare: bool = False
    """A dead letter with all its properties was too large."""


class Redelivery:
    """Sends failed messages of one group back, or to the dead letters."""

    park: None = None

    def __init__(self, member: Member, send_raw: SendRaw) -> None:
        self._member, self._send_raw = member, send_raw
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_WIDTH))
        """By broker."""
        self._refused: Counter[MessageQueue] = Counter()
        """By queue the failed messages that wait for their next round."""
        self._jobs: set[_Job] = set()
        """Whose copies are not stored yet."""
        self._loop = asyncio.get_running_loop()
        self.due_until: float = 0.0
        """The loop's time until which a retry of this member may still come."""

    def __repr__(self) -> str:
        return f"<Redelivery {self._member.name}: {self._refused.total()} waiting>"

    def fail(self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure) -> None:
        """A concurrent handler failed: send the message back for a retry, or to the dead letters."""
        if not queue.holds(message):
            return  # it was sent back while its call ran
        about, times = handler.subscription, message.reconsume_times
        level = retry_level(failure, about.retry, reconsume_times=times, retries=about.retries)
        path = Path.DEAD_COPY if level is None else Path.SEND_BACK
        self._begin(_Job(handler, queue, message, failure, level, path=path))

    def store_dead_letter(
        self, handler: Handler, queue: ProcessQueue[Message], message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        """Send the message to the dead letters. The future is done when the copy is stored."""
        stored: asyncio.Future[None] = self._loop.create_future()
        self._begin(_Job(handler, queue, message, failure, stored=stored))
        return stored

    def _begin(self, job: _Job) -> None:
        if self._member.broadcast:
            job.handler.stats.dropped += 1
            self._give_up(job, Dropped)
            return
        self._member.tasks.start(self._see_to(job), f"send back to {job.queue.message_queue.broker_name}")

    def waiting(self) -> list[tuple[Handler, Message]]:
        """The failed messages of which no broker has the copy yet."""
        return [(job.handler, job.message) for job in self._jobs if _is_wanted(job)]

    async def _see_to(self, job: _Job) -> None:
        queue = job.queue.message_queue
        self._jobs.add(job)
        try:
            while _is_wanted(job):
                async with self._places[queue.broker_name]:
                    if not _is_wanted(job) or await self._round(job):
                        break
                await asyncio.sleep(job.backoff.next(self._member.random.random()))
        finally:
            self._jobs.discard(job)
        self._refused[queue] -= job.is_refused
        if not self._refused[queue]:
            del self._refused[queue]
            self._member.blocked.moving(queue, source=_SOURCE)

    async def _round(self, job: _Job) -> bool:
        """Try the paths in turn. True when a broker has the copy; False: another round follows."""
        path = job.path
        while True:
            try:
                await self._attempt(job, path)
            except Exception as error:
                # A bug here must not lose a message either: it stays, and another path is tried.
                problem = problem_of(error)
                job.unknowns += problem is Problem.UNKNOWN
                job.is_bare |= path is Path.DEAD_COPY and is_too_large(error)
                if problem is Problem.UNCLEAR and job.unclear_since is None:
                    job.unclear_since = self._loop.time()
                unclear_for = 0.0 if job.unclear_since is None else self._loop.time() - job.unclear_since
                first, at_once = after_failure(
                    path, problem, first=job.path, has_locks=self._member.has_locks, unclear_for=unclear_for
                )
                if first is Path.DEAD_COPY and job.level is not None:  # said once
                    job.level, job.failure = None, not_taken_back(job.failure, _text(error))
                    self._tell(job, f"{_text(error)}; no retry is possible, so it goes to the dead letters")
                job.path = first
                if at_once is not None:
                    path = at_once
                    continue
                self._failed(job, _text(error))
                return False
            self._stored(job)
            return True

    def _failed(self, job: _Job, problem: str) -> None:
        self._tell(job, f"{problem}; it is tried again")
        queue = job.queue.message_queue
        self._refused[queue] += not job.is_refused
        job.is_refused, count = True, self._refused[queue]
        if not job.queue.closed:
            text = f"{count} failed message{' waits' if count == 1 else 's wait'} to be sent back: {problem}"
            self._member.blocked.because(queue, text, kind="send back", patience=_LONG, source=_SOURCE)

    def _tell(self, job: _Job, problem: str) -> None:
        message = job.message
        self._member.observe(
            SendBackFailed(self._member.name, job.handler.name, message.topic, message.message_id, problem)
        )

    def _stored(self, job: _Job) -> None:
        if job.level is not None:
            job.queue.finish(job.message)
            delay = seconds_of(job.level)
            self.due_until = max(self.due_until, self._loop.time() + delay + _LATE)
            count_retry(self._member, job.handler, job.message, job.failure, delay)
        else:
            job.handler.stats.dead_lettered += 1
            self._give_up(job, DeadLettered)

    def _give_up(self, job: _Job, event: type[DeadLettered | Dropped]) -> None:
        """The message is stored as a dead letter, or dropped by this member of a broadcast group."""
        handler, message, failure = job.handler, job.message, job.failure
        job.queue.finish(message)
        if job.stored is not None and not job.stored.done():
            job.stored.set_result(None)
        about = self._member.name, handler.name, message.topic, message.message_id, message.attempt
        self._member.observe(event(*about, str(failure), message, failure.error))

    async def _attempt(self, job: _Job, path: Path) -> None:
        """Have a copy stored by this path. Raises when it is not certainly stored."""
        message = job.message
        retries = max_reconsume_times(job.handler.subscription.retries)
        timeout = attempt_timeout(self._member.config.send_back_timeout, job.unknowns)
        if path is Path.SEND_BACK or path is Path.DEAD_SEND_BACK:
            level = DEAD if job.level is None else job.level
            await self._member.brokers.send_back(
                message, job.queue.message_queue, delay_level=level, max_retries=retries, timeout=timeout
            )
            return
        properties = self._properties(job)
        most = message.reconsume_times if job.level is None else retries
        await self._send_raw(
            retry_topic(self._member.name),
            message.stored_body,
            properties,
            broker_name=job.queue.message_queue.broker_name,
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=most,
            sys_flag=message.sys_flag & (COMPRESSED | KIND_MASK),
            flag=message.flag,
            timeout=timeout,
        )

    def _properties(self, job: _Job) -> dict[str, str]:
        """The properties of a copy that we send ourselves. Raises UnsendableError when they are too large."""
        try:
            origin = _origin(job.message)
            if job.level is not None:
                retries = max_reconsume_times(job.handler.subscription.retries)
                properties = retry_properties(origin, level=job.level, retries=retries)
            else:
                properties = dead_letter_properties(
                    origin,
                    job.failure,
                    handler=job.handler.name,
                    app_version=self._member.app_version,
                    is_bare=job.is_bare,
                )
            size = len(names.encode(properties))
        except Exception as error:
            raise UnsendableError(_text(error)) from error
        if size > _LONGEST:
            raise UnsendableError(f"its properties have {size} bytes, limit {_LONGEST}")
        return properties


def _is_wanted(job: _Job) -> bool:
    """Whether the copy is still needed: not if the queue was given up, or a slow call has ended meanwhile."""
    return not job.queue.closed and job.queue.holds(job.message)


def _origin(message: Message) -> Origin:
    properties = message.properties
    message_id = properties.get(names.ORIGIN_MESSAGE_ID) or message.message_id
    return Origin(message.topic, message_id, message.reconsume_times, properties)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, RocketAppError) else f"{type(error).__name__}: {error}"


# What an error says about the copy: stored perhaps, not now, or never.

_PERHAPS = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
_LASTING = frozenset(
    {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.VERSION_NOT_SUPPORTED,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)
# Code 1 means anything; its remark is a sentence, or the name of Java's PutMessageStatus.
_PERHAPS_REMARKS = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "perhaps stored")
_TOO_LARGE_REMARKS = ("MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED")
_LASTING_REMARKS = ("look message by offset failed", *_TOO_LARGE_REMARKS)
_PASSING_REMARKS = (
    "OS_PAGE_CACHE_BUSY",
    "SERVICE_NOT_AVAILABLE",
    "CREATE_MAPPED_FILE_FAILED",
    "create mapped file failed",
    "IN_SYNC_REPLICAS_NOT_ENOUGH",
    "in-sync replicas not enough",
    "PUT_TO_REMOTE_BROKER_FAIL",
    "put to remote broker fail",
)


class UnsendableError(RocketAppError):
    """A copy could not be prepared, or is larger than brokers accept: nothing was sent."""


def problem_of(error: Exception) -> Problem:
    """What an error means for the copy."""
    match error:
        case SendUnknown() | RequestTimeoutError() | ConnectionLostError() | ProtocolError():
            return Problem.UNKNOWN
        case UnsendableError() | AnotherQueueError():
            return Problem.LASTING
        case KeysRefused() | SendRefused() | NoRouteError() | TransportError():
            return Problem.PASSING
        case BrokerError():
            return _of_code(error)
        case _:
            return Problem.UNCLEAR


def is_too_large(error: Exception) -> bool:
    """Whether a copy with fewer properties may be stored."""
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.MESSAGE_ILLEGAL or error.remark.startswith(_TOO_LARGE_REMARKS)
    return isinstance(error, UnsendableError)


def _of_code(error: BrokerError) -> Problem:
    if error.code in _PERHAPS:
        return Problem.UNKNOWN
    if error.code in _LASTING:
        return Problem.LASTING
    if error.code == ResponseCode.NO_PERMISSION:  # a broker may be read-only for a while, or for good
        return Problem.UNCLEAR
    if error.code != ResponseCode.SYSTEM_ERROR or error.remark.startswith(_PASSING_REMARKS):
        return Problem.PASSING
    if error.remark.startswith(_LASTING_REMARKS):
        return Problem.LASTING
    return Problem.UNKNOWN if error.remark.startswith(_PERHAPS_REMARKS) else Problem.UNCLEAR


def count_retry(member: Member, handler: Handler, message: Message, reason: object, delay: float) -> None:
    """Count and report a retry after `delay` seconds."""
    handler.stats.retried += 1
    about = message.topic, message.message_id, message.attempt
    member.observe(Retried(member.name, handler.name, *about, delay, str(reason), message))
