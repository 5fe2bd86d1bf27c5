"""Send one prepared message to a broker, in several attempts within one timeout.

Three outcomes. Stored: a broker said so. Refused: certainly no broker stored it. Unknown: at least one
attempt went out and was not answered, and none succeeded. With several brokers no attempt may use up
the time of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from rocketapp.client.calls.offsets import max_offset
from rocketapp.client.calls.send import Sent, command, send
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    FrameTooLargeError,
    KeysRefused,
    NoRouteError,
    ProtocolError,
    SendRefused,
    SendUnknown,
    TransportError,
)
from rocketapp.model.event import Observe, SendAttemptFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import nearest_levels
from rocketapp.producer.in_flight import InFlight
from rocketapp.producer.selection import Choice, RoundRobin
from rocketapp.producer.targets import Targets
from rocketapp.state.backoff import Backoff
from rocketapp.state.broker_latency import BrokerLatency
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.send import SendRequest

NOT_STORED = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.VERSION_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""A broker that answers so did not store the message. Code 1 may mean anything, unless its text says more."""
NO_TIMERS_REMARK = "accurate timer message is not enabled"
NOT_STORED_REMARKS = (
    "[PC_SYNCHRONIZED]",
    "create mapped file failed",
    NO_TIMERS_REMARK,
    "timer message is under flow control",
)
_FIRST_PROBE, _LONGEST_PAUSE, _PROBE_TIMEOUT = 0.1, 1.0, 3.0
"""Seconds between probes of a broker that is silent, and for the answer to one."""
TIMERS_SINCE = 413
"""The first version with timers, V5_0_0 in Java's MQVersion. Brokers before it would deliver the message at once."""
RETRIED = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals that another attempt may not meet (Java: retryResponseCodes)."""
_NOT_AS_ROUTED = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER})
"""What a broker says when a route is out of date: no such topic, not to be written to, no such queue."""


class PreparedSend(NamedTuple):
    """A request that is ready to be sent; the same in every attempt."""

    request: SendRequest
    """Without its queue and the time of the attempt."""
    body: bytes
    reply: bool = False
    """Whether it answers a request: brokers hand it to the client that asked."""
    delay: float = 0.0
    """Seconds that a broker's timer holds it back, counted from the first attempt; 0: not at all."""

    @property
    def topic(self) -> str:
        return self.request.topic


class Accepted(NamedTuple):
    """A broker stored the message."""

    queue: MessageQueue
    """Where it was sent to; the broker's answer says where it is."""
    sent: Sent
    seconds: float
    """How long the attempt took that succeeded."""


class _AttemptError(Exception):
    """One attempt failed. `perhaps`: the message may be stored all the same."""

    def __init__(
        self,
        reason: object,
        *,
        perhaps: bool,
        final: bool = False,
        is_permanent: bool = False,
        is_silent: bool = False,
    ) -> None:
        """`is_silent`: the broker was not reached, or has not answered in time."""
        super().__init__(str(reason))
        self.reason, self.perhaps, self.final, self.is_permanent = str(reason), perhaps, final, is_permanent
        self.is_silent = is_silent


class Attempts:
    """Sends the messages of one producer group."""

    def __init__(
        self,
        client: ClientInstance,
        targets: Targets,
        *,
        clock: Clock,
        observe: Observe,
        group: str,
        retries: int,
        in_flight: InFlight,
        turns: RoundRobin,
        latency: BrokerLatency | None = None,
    ) -> None:
        """`turns`: is told which brokers are silent. `latency`: how long every send to a broker took."""
        self._in_flight, self._turns, self._latency = in_flight, turns, latency
        self._probes: Tasks | None = Tasks(client.observe)
        """None: the producer has stopped, and what still fails is followed by no probe."""
        self._client, self._targets, self._clock, self._observe = client, targets, clock, observe
        self._group, self._retries = group, retries

    async def stop(self) -> None:
        """End the probes. A send under way may outlive its producer: it ends with the connections of the client."""
        if self._probes is not None:
            probes, self._probes = self._probes, None
            await probes.close()

    async def queues(self, topic: str, timeout: float) -> Sequence[MessageQueue]:
        """The queues that this topic can be sent to.

        Raises SendRefused when that is not known within `timeout` seconds.
        """
        try:
            return await self._queues(topic, asyncio.get_running_loop().time() + timeout)
        except _AttemptError as problem:
            raise SendRefused(topic, problem.reason) from None

    async def connection(self, topic: str, broker_name: str, end: float) -> Connection:
        """The connection to the master of a broker. Raises SendRefused when it is not reached before `end`."""
        try:
            await self._queues(topic, end)
            return await self._connection(topic, broker_name, end)
        except _AttemptError as problem:
            raise SendRefused(topic, problem.reason) from None

    async def send(self, prepared: PreparedSend, choose: Choice, timeout: float) -> Accepted:
        """Send, with retries.

        Raises SendRefused or SendUnknown if it is not certainly stored within `timeout` seconds.
        """
        now, size = asyncio.get_running_loop().time(), len(prepared.body)
        if not self._in_flight.enter(size):
            try:
                await self._in_flight.wait(size, now + timeout)
            except TimeoutError:
                problem = f"its turn did not come within {timeout:g} s: {self._in_flight}"
                raise SendRefused(prepared.topic, problem) from None
        try:
            return await self._send(prepared, choose, end=now + timeout, due=now + prepared.delay)
        finally:
            self._in_flight.leave(size)

    async def _send(self, prepared: PreparedSend, choose: Choice, *, end: float, due: float) -> Accepted:
        loop = asyncio.get_running_loop()
        problems: list[_AttemptError] = []
        avoid: str | None = None
        for left in range(self._retries, -1, -1):
            if problems and (problems[-1].final or loop.time() >= end):
                break
            try:
                queues = await self._queues(prepared.topic, end)
                queue = choose(queues, avoid)
                avoid = queue.broker_name
                # Sorted by broker: there are several when the first and the last queue differ in it.
                shares = choose.moves and queues[0].broker_name != queues[-1].broker_name
                now = loop.time()
                stored = await self._attempt(prepared, queue, now + (end - now) / (left + 1) if shares else end, due)
            except _AttemptError as problem:
                if problem.is_silent and avoid is not None:
                    self._pass_over(queue)
                    if not choose.moves:
                        problem.reason += f" (its queue= or order_key= leaves it no broker but {avoid})"
                if self._latency is not None and avoid is not None and not problem.is_permanent:
                    self._latency.failed(avoid, loop.time())
                problems.append(problem)
                self._observe(SendAttemptFailed(self._group, prepared.topic, avoid or "", problem.reason))
            else:
                if self._latency is not None:
                    self._latency.sent(avoid, loop.time() - now, loop.time())
                self._targets.stored(prepared.topic)
                return stored
        raise _verdict(prepared.topic, problems)

    def _pass_over(self, queue: MessageQueue) -> None:
        """Avoid this broker in sends that may go elsewhere, until it answers a probe."""
        if self._probes is not None and queue.broker_name not in self._turns.silent:
            self._turns.silent.add(queue.broker_name)
            self._probes.start(self._probe(queue), f"probe of {queue.broker_name}")

    async def _probe(self, queue: MessageQueue) -> None:
        pauses, name = Backoff(_FIRST_PROBE, _LONGEST_PAUSE), queue.broker_name
        try:
            while (address := self._client.broker_address(name)) is not None:
                await asyncio.sleep(pauses.next(0.5))
                try:
                    async with asyncio.timeout(_PROBE_TIMEOUT):
                        await max_offset(await self._client.connection(address), queue, _PROBE_TIMEOUT)
                except (TransportError, TimeoutError):
                    continue
                except (BrokerError, ProtocolError):
                    pass  # an answer
                return
        finally:
            self._turns.silent.discard(name)

    async def post(self, prepared: PreparedSend, choose: Choice, timeout: float) -> None:
        """Send one-way: write it to one broker. Raises SendRefused when it could not even be written."""
        now = asyncio.get_running_loop().time()
        end = now + timeout
        try:
            queue = choose(await self._queues(prepared.topic, end), None)
            connection = await self._connection(prepared.topic, queue.broker_name, end)
            if prepared.delay:
                prepared = await self._timed(prepared, connection, end=end, due=now + prepared.delay)
            connection.send_one_way(command(self._request(prepared, queue), prepared.body, reply=prepared.reply))
        except (_AttemptError, ConnectionLostError, ProtocolError) as error:
            raise SendRefused(prepared.topic, str(error)) from None
        self._targets.stored(prepared.topic)

    def _request(self, prepared: PreparedSend, queue: MessageQueue) -> SendRequest:
        now_ms = int(self._clock.now() * 1000)
        return replace(prepared.request, queue_id=queue.queue_id, broker_name=queue.broker_name, born_ms=now_ms)

    async def _queues(self, topic: str, end: float) -> Sequence[MessageQueue]:
        # A timeout costs more than all the rest here: only what waits gets one.
        if known := self._targets.known(topic):
            return known
        try:
            async with asyncio.timeout_at(end):
                return await self._targets.queues(topic)
        except NoRouteError as error:
            raise _AttemptError(error.problem, perhaps=False, final=True) from None
        except TransportError as error:
            raise _AttemptError(f"no route: {error}", perhaps=False, final=True) from None
        except TimeoutError:
            raise _AttemptError("no route: the name server did not answer in time", perhaps=False, final=True) from None

    async def _timed(self, prepared: PreparedSend, connection: Connection, *, end: float, due: float) -> PreparedSend:
        """The request with the delay that is left until `due`. Requires a broker that is known to have timers."""
        try:
            # A broker that has refused the heartbeat is asked once more.
            async with asyncio.timeout_at(end):
                version = await self._client.version_at(connection)
        except TransportError as error:
            raise _AttemptError(error, perhaps=False) from None
        except TimeoutError:
            raise _AttemptError(f"{connection.peer} did not say in time whether it has timers", perhaps=False) from None
        if version is None or version < TIMERS_SINCE:
            said = f"the broker at {connection.peer} has no timers, which came with version 5.0, but delay levels alone"
            if version is None:
                said = f"the broker at {connection.peer} does not say whether it has timers"
            problem = f"delay={prepared.delay:g}: {said}; {nearest_levels(prepared.delay)}"
            raise _AttemptError(problem, perhaps=False, is_permanent=version is not None)
        left_ms = max(1, ceil((due - asyncio.get_running_loop().time()) * 1000))
        timer = f"{names.TIMER_DELAY_MS}{names.NAME_END}{left_ms}{names.ENTRY_END}"
        return prepared._replace(request=replace(prepared.request, properties=prepared.request.properties + timer))

    async def _attempt(self, prepared: PreparedSend, queue: MessageQueue, end: float, due: float) -> Accepted:
        connection = await self._connection(prepared.topic, queue.broker_name, end)
        if prepared.delay:
            prepared = await self._timed(prepared, connection, end=end, due=due)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            request = self._request(prepared, queue)
            sent = await send(connection, request, prepared.body, end - began, reply=prepared.reply)
        except KeysRefused as error:
            # Whatever the code: keys are looked at before anything else.
            raise _AttemptError(error, perhaps=False) from None
        except BrokerError as error:
            if error.code in _NOT_AS_ROUTED:
                self._targets.failed(prepared.topic)
            reason = str(error)
            if prepared.delay and (error.code == ResponseCode.MESSAGE_ILLEGAL or NO_TIMERS_REMARK in error.remark):
                reason += f" (delay={prepared.delay:g}: without timers {nearest_levels(prepared.delay)})"
            raise _AttemptError(
                reason,
                perhaps=not _is_not_stored(error),
                final=error.code not in RETRIED,
                is_permanent=error.code == ResponseCode.MESSAGE_ILLEGAL,
            ) from None
        except FrameTooLargeError as error:
            raise _AttemptError(error, perhaps=False, final=True, is_permanent=True) from None
        except ConnectError as error:
            self._targets.failed(prepared.topic)
            raise _AttemptError(error, perhaps=False, is_silent=True) from None
        except (TransportError, ProtocolError) as error:
            self._targets.failed(prepared.topic)
            raise _AttemptError(error, perhaps=True, is_silent=isinstance(error, TransportError)) from None
        return Accepted(queue, sent, loop.time() - began)

    async def _connection(self, topic: str, broker_name: str, end: float) -> Connection:
        address = self._client.broker_address(broker_name)
        if address is None:
            self._targets.failed(topic)
            raise _AttemptError(f"broker {broker_name} has no master", perhaps=False)
        if (living := self._client.living_connection(address)) is not None and living.room.is_set():
            return living
        try:
            async with asyncio.timeout_at(end):
                connection = living or await self._client.connection(address)
                # What is written stays unsent when its caller gives up; and one-way sends wait for nothing else.
                while not connection.room.is_set():
                    await connection.room.wait()
                    if connection.is_closed:
                        raise ConnectionLostError(address, connection.closed_reason)
                return connection
        except TransportError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"{address}: no connection in time"
            if living is not None:
                problem = f"{address} leaves {living.unsent} bytes unread"
        self._targets.failed(topic)
        raise _AttemptError(problem, perhaps=False, is_silent=True)


def _is_not_stored(error: BrokerError) -> bool:
    return error.code in NOT_STORED or error.remark.startswith(NOT_STORED_REMARKS)


def _verdict(topic: str, problems: list[_AttemptError]) -> SendRefused | SendUnknown:
    # Equal reasons are told once: three refused connections are one piece of news.
    reason = "; then ".join(dict.fromkeys(problem.reason for problem in problems))
    if any(problem.perhaps for problem in problems):
        return SendUnknown(topic, reason)
    return SendRefused(topic, reason, any(problem.is_permanent for problem in problems))
