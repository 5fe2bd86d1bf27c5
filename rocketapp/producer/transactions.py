"""Transactional messages: end what was begun here, and answer brokers that ask how a transaction has ended.

A half message is stored, but no consumer sees it. Its producer commits it or rolls it back. When a broker hears
neither, it asks any member of the producer group, also after the process that sent the message died: so every member
keeps a connection to the brokers of the topics that it can answer for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from rocketapp.client.calls.send import end_transaction
from rocketapp.client.instance import ClientInstance
from rocketapp.errors import ConnectionLostError, ProtocolError, TransportError
from rocketapp.model.event import LoopFailed
from rocketapp.model.outgoing import SendResult
from rocketapp.state.open_transactions import OpenTransactions
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction, decision_of

Check = Callable[[Message], Awaitable[bool | None]]
"""How the transaction of a half message has ended: True committed, False rolled back, None not known yet."""

AT_ONCE = 16
"""Checks that run at once."""
MOST_WAITING = 2000
"""Questions that wait for one of them; brokers ask again what is dropped (Java: checkRequestHoldMax)."""


class _Asked(NamedTuple):
    """A transaction check that a broker sent, and the connection for its answer."""

    connection: Connection
    question: CheckTransaction


class Transactions:
    """The transactions of one producer group in one cluster."""

    def __init__(
        self,
        client: ClientInstance,
        *,
        group: str,
        max_inflated_bytes: int,
    ) -> None:
        self._client, self._group, self._observe = client, group, client.observe
        self._max_inflated_bytes = max_inflated_bytes
        self._checks: dict[str, Check] = {}
        self._open: OpenTransactions[_Asked] = OpenTransactions()
        self._tasks = Tasks(client.observe)
        self._turns = asyncio.Semaphore(AT_ONCE)

    def answer(self, topic: str, check: Check) -> None:
        """Register the check that answers brokers about half messages of this topic."""
        if not self._checks:
            self._client.inbound[RequestCode.CHECK_TRANSACTION_STATE] = self._serve
        if topic not in self._checks:
            # A broker asks only those that sent it heartbeats, and only brokers of known routes get them.
            self._client.routes.watch(topic)
        self._checks[topic] = check

    async def stop_checks(self) -> None:
        """Answer no more checks, because what they need closes: brokers ask another process, or ask again later."""
        self._client.inbound.pop(RequestCode.CHECK_TRANSACTION_STATE, None)
        await self._tasks.close()
        for topic in self._checks:
            self._client.routes.unwatch(topic)
        self._checks.clear()

    async def stop(self) -> None:
        """End all checks. Transactions that are still open are reported."""
        await self.stop_checks()
        for message_id in self._open.all():
            self._report(message_id, "open at the stop: the broker asks another process, or this one later")

    def begin(self, half: SendResult) -> None:
        """The local transaction of this half message begins; `end` or `leave_open` must follow."""
        self._open.begin(half.message_id)

    def leave_open(self, half: SendResult) -> None:
        """The outcome is unknown: the broker will ask the check."""
        self._open.end(half.message_id)

    async def end(self, half: SendResult, *, commit: bool, timeout: float) -> None:
        """Commit or roll back. If the broker cannot be told within `timeout` seconds that is reported, and it asks."""
        problem = await self._tell(half, self._open.end(half.message_id), decision_of(commit), timeout)
        if problem is not None:
            said = "committed" if commit else "rolled back"
            self._report(half.message_id, f"{said}, but {problem}: the broker will ask")

    async def _tell(self, half: SendResult, asked: Mapping[str, _Asked], decision: int, timeout: float) -> str | None:
        broker_name = half.queue.broker_name
        address = self._client.broker_address(broker_name)
        if address is None:
            return f"broker {broker_name} has no master"
        try:
            async with asyncio.timeout(timeout):
                connection = await self._client.connection(address)
                end_transaction(connection, self._request(half, asked.get(connection.peer), decision))
        except (ProtocolError, TransportError, TimeoutError) as error:
            return str(error) or f"{address} was not reached within {timeout:g} s"
        return None

    def _request(self, half: SendResult, asked: _Asked | None, decision: int) -> EndTransaction:
        """Raises ProtocolError when the broker did not say where the half message is."""
        if asked is not None:
            return asked.question.end(self._group, decision, half.message_id)
        return EndTransaction(
            group=self._group,
            topic=half.queue.topic,
            half_offset=half.queue_offset,
            physical_offset=parse_offset_id(half.offset_message_id)[2],
            decision=decision,
            message_id=half.message_id,
            transaction_id=half.message_id,
            broker_name=half.queue.broker_name,
        )

    def _serve(self, connection: Connection, request: Command) -> Command | None:
        """A broker sends a check. It is answered when the check has ended; a one-way request has no response."""
        question = CheckTransaction.from_fields(request.fields)
        if len(self._tasks) < MOST_WAITING:
            name = f"check of transaction {question.message_id}"
            self._tasks.start(self._answer(connection, question, request.body), name)
        return None

    async def _answer(self, connection: Connection, question: CheckTransaction, record: bytes) -> None:
        try:
            (message,) = decode_records(record, None, max_inflated_bytes=self._max_inflated_bytes)
        except (ProtocolError, ValueError) as error:
            self._report(question.message_id or "", f"the half message cannot be read: {error}")
            return
        message_id, check = message.message_id, self._checks.get(message.topic)
        if check is None or message.properties.get(names.PGROUP, self._group) != self._group:
            # Another member of the group may know it: the broker asks one after the other.
            self._report(message_id, f"a broker asks about topic {message.topic}, which has no transaction here")
            return
        if not self._open.asked(message_id, connection.peer, _Asked(connection, question)):
            return
        committed: bool | None = None
        try:
            async with self._turns:
                committed = await check(message)
        except Exception as error:
            self._report(message_id, f"its check raised {type(error).__name__}: {error}")
        finally:
            # Not what was asked first: a broker may have stored the half message again meanwhile.
            newest = self._open.checked(message_id)
        if committed is not None:
            for asking, about in newest.values():
                with suppress(ConnectionLostError):  # the broker asks again
                    end_transaction(asking, about.end(self._group, decision_of(committed), message_id))

    def _report(self, message_id: str, problem: str) -> None:
        self._observe(LoopFailed(f"transaction {message_id}", problem))
