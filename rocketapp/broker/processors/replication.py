"""What a slave asks of its master: how far things are done; and what administrators ask about slaves.

Codes GET_ALL_CONSUMER_OFFSET 43, GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60, GET_TIMER_METRICS 61,
EXCHANGE_BROKER_HA_INFO 906, GET_BROKER_HA_STATUS 907 (Java: AdminBrokerProcessor, SlaveSynchronize).

Each of the first three describes the log as it is now: a delayed message counts as delivered because its copy is there.
A slave that knew it before it has that copy would lose the message when it becomes the master. So an answer waits until
each slave of the host that asks has the log that it describes; one that is far behind gets none, and asks again later.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.flushing import Flusher
from rocketapp.broker.replication.master import MOST_BEHIND, Master
from rocketapp.broker.request_dispatch import Process
from rocketapp.errors import BrokerError
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.replication import (
    LOG_ADDRESS,
    encode_copy_status,
    encode_ha_status,
    encode_timer_checkpoint,
)

_PATIENCE = 2.0
"""Seconds that an answer waits. A slave waits three."""


class ReplicationProcessor:
    """Answers slaves when they have the log that the answer describes."""

    def __init__(
        self, core: Core, master: Master | None, flusher: Flusher, tasks: Tasks, address: Callable[[], str]
    ) -> None:
        """`master`: its slaves; None at a slave. `address`: where the log is copied."""
        self._address = address
        self._core, self._master, self._flusher, self._tasks = core, master, flusher, tasks
        self._version = 0

    def table(self) -> dict[int, Process]:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._held(self._offsets),
            RequestCode.GET_ALL_DELAY_OFFSET: self._held(self._delays),
            RequestCode.GET_TIMER_CHECK_POINT: self._held(self._timers),
            RequestCode.GET_TIMER_METRICS: self._metrics,
            RequestCode.GET_BROKER_HA_STATUS: self._status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._log_address,
        }

    def _held(self, describe: Callable[[], bytes]) -> Process:
        def process(connection: Connection, command: Command) -> None:
            body, end = describe(), self._core.store.end_position
            self._tasks.start(self._answer(connection, command, body, end), "broker answers a slave")

        return process

    async def _answer(self, connection: Connection, command: Command, body: bytes, end: int) -> None:
        await self._flusher.log_first()
        host, master = split_address(connection.peer)[0], self._master
        if body and (master is None or await master.have(end, _PATIENCE, host)):
            response = Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)
        else:
            problem = f"the slave does not have the log up to {end} yet"
            response = Command.response(command, ResponseCode.SYSTEM_BUSY, fields={}, remark=problem)
        if not connection.is_closed:
            connection.reply(response)

    def _offsets(self) -> bytes:
        return msgspec.json.encode(self._core.offsets.to_json())

    def _delays(self) -> bytes:
        return msgspec.json.encode(self._core.delays.to_json())

    def _timers(self) -> bytes:
        progress = self._core.timers.progress
        if progress is None:
            return b""
        self._version += 1
        done = progress.done_ms, progress.first, progress.read_to
        return encode_timer_checkpoint(*done, self._version, self._core.now_ms())

    def _status(self, connection: Connection, command: Command) -> Command:
        end = self._core.store.end_position
        if self._master is None:
            body = encode_copy_status(end, self._address())
        else:
            body = encode_ha_status(end, self._master.status(), MOST_BEHIND)
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)

    def _log_address(self, connection: Connection, command: Command) -> Command:
        if self._master is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask its master")
        fields = {LOG_ADDRESS: self._address(), "masterAddress": self._core.address}
        return Command.response(command, ResponseCode.SUCCESS, fields=fields)

    def _metrics(self, connection: Connection, command: Command) -> Command:
        """How many timers wait of which topic is not counted here."""
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        body = msgspec.json.encode({"dataVersion": version, "timingCount": {}})
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=body)
