"""What a slave asks of its master: how far things are done; and what administrators ask about slaves.

Codes GET_ALL_CONSUMER_OFFSET 43, GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60, GET_TIMER_METRICS 61,
EXCHANGE_BROKER_HA_INFO 906, GET_BROKER_HA_STATUS 907 (Java: AdminBrokerProcessor, SlaveSynchronize).

Each of the first three describes the log as it is now: a delayed message counts as delivered because its copy is there.
A slave that knew it before it has that copy would lose the message when it becomes the master. So an answer waits until
each slave of the host that asks has the log that it describes; one that is far behind gets none, and asks again later.
"""

from __future__ import annotations

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.flushing import Flusher
from rocketapp.broker.replication.master import MOST_BEHIND, Master
from rocketapp.errors import BrokerError
from rocketapp.transport.answers import KEYS_ARE_ENOUGH, SEE_CLUSTER, Answer, answers
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

    def __init__(self, core: Core, master: Master | None, flusher: Flusher) -> None:
        """`master`: its slaves; None at a slave."""
        self._core, self._master, self._flusher = core, master, flusher

    async def _copied_to(self, connection: Connection, body: bytes) -> bytes:
        """The answer that describes the log as it is now, when the slaves of the host that asks have it."""
        end = self._core.store.end_position
        await self._flusher.log_first()
        host, master = split_address(connection.peer)[0], self._master
        if body and (master is None or await master.have(end, _PATIENCE, host)):
            return body
        raise BrokerError(ResponseCode.SYSTEM_BUSY, f"the slave does not have the log up to {end} yet")

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET, needs=KEYS_ARE_ENOUGH)
    def _offsets(self, connection: Connection, command: Command) -> Answer:
        return self._copied_to(connection, msgspec.json.encode(self._core.offsets.to_json()))

    @answers(RequestCode.GET_ALL_DELAY_OFFSET, needs=SEE_CLUSTER)
    def _delays(self, connection: Connection, command: Command) -> Answer:
        return self._copied_to(connection, msgspec.json.encode(self._core.delays.to_json()))

    @answers(RequestCode.GET_TIMER_CHECK_POINT, needs=SEE_CLUSTER)
    def _timers(self, connection: Connection, command: Command) -> Answer:
        body, progress = b"", self._core.timers.progress
        if progress is not None:
            done = progress.done_ms, progress.first, progress.read_to
            body = encode_timer_checkpoint(*done, self._core.now_ms())
        return self._copied_to(connection, body)

    @answers(RequestCode.GET_BROKER_HA_STATUS, needs=SEE_CLUSTER)
    def _status(self, connection: Connection, command: Command) -> Answer:
        end = self._core.store.end_position
        if self._master is None:
            return encode_copy_status(end, self._core.copies_from or "")
        return encode_ha_status(end, self._master.status(), MOST_BEHIND)

    @answers(RequestCode.EXCHANGE_BROKER_HA_INFO, needs=SEE_CLUSTER)
    def _log_address(self, connection: Connection, command: Command) -> Answer:
        if self._master is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "this broker is a slave: ask its master")
        return {LOG_ADDRESS: self._core.ha_address, "masterAddress": self._core.address}

    @answers(RequestCode.GET_TIMER_METRICS, needs=SEE_CLUSTER)
    def _metrics(self, connection: Connection, command: Command) -> Answer:
        """How many timers wait of which topic is not counted here."""
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return msgspec.json.encode({"dataVersion": version, "timingCount": {}})
