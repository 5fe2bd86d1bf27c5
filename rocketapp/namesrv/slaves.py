"""The slaves that have registered with the name server.

Codes REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322 (Java: RouteInfoManager). Only slaves of the
broker in the same process are taken, and only when it lets its log be copied. They say again every 30 s that they are
there; one that is silent for long, or whose connection ends, is forgotten. Their topics are those of the master.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketapp.errors import BrokerError
from rocketapp.model.route import MASTER_ID, BrokerData
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.registration import BrokerRequest, Registered

EXPIRY = 120.0
"""Seconds without a registration after which a slave is forgotten (Java: heartbeatTimeoutMillis)."""
MOST_SLAVES = 16


class _Slave(NamedTuple):
    address: str
    connection: Connection
    seen: float


class SlaveTable:
    """Broker id -> where that slave is."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` in seconds, by a clock that never goes back."""
        self._now = now
        self._slaves: dict[int, _Slave] = {}

    def __repr__(self) -> str:
        return f"<SlaveTable of {len(self._slaves)}>"

    def addresses(self) -> Mapping[int, str]:
        """Of those that are there, by broker id."""
        self._expire()
        return {broker_id: slave.address for broker_id, slave in sorted(self._slaves.items())}

    def is_known(self, host: str) -> bool:
        """Whether a slave has registered from this host."""
        self._expire()
        return any(split_address(slave.connection.peer)[0] == host for slave in self._slaves.values())

    def register(self, request: BrokerRequest, master: BrokerData, connection: Connection) -> None:
        """Note a slave. Raises BrokerError for what is no slave of this master."""
        problem = None
        if (request.cluster_name, request.broker_name) != (master.cluster, master.broker_name):
            problem = f"only slaves of {master.broker_name} in {master.cluster} are taken"
        elif request.broker_id <= MASTER_ID:
            problem = f"{master.broker_name} has a master, at {master.master}: a slave's brokerId is above 0"
        elif request.broker_id not in self.addresses() and len(self._slaves) >= MOST_SLAVES:
            problem = f"there are {MOST_SLAVES} slaves already"
        try:
            split_address(request.address)
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"register broker failed: {problem}")
        self._slaves[request.broker_id] = _Slave(request.address, connection, self._now())

    def unregister(self, request: BrokerRequest) -> None:
        known = self._slaves.get(request.broker_id)
        if known is not None and known.address == request.address:
            del self._slaves[request.broker_id]

    def connection_lost(self, connection: Connection) -> None:
        gone = [broker_id for broker_id, slave in self._slaves.items() if slave.connection is connection]
        for broker_id in gone:
            del self._slaves[broker_id]

    def _expire(self) -> None:
        now = self._now()
        for broker_id in [broker_id for broker_id, slave in self._slaves.items() if now - slave.seen > EXPIRY]:
            del self._slaves[broker_id]


class RegistrationProcessor:
    """Answers brokers that register."""

    def __init__(self, slaves: SlaveTable, master: Callable[[], BrokerData], ha_address: Callable[[], str]) -> None:
        """`ha_address`: where slaves copy the log."""
        self._slaves, self._master, self._ha_address = slaves, master, ha_address

    def table(self) -> Mapping[int, Callable[[Connection, Command], Command]]:
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.QUERY_DATA_VERSION: self.version,
        }

    def register(self, connection: Connection, command: Command) -> Command:
        master = self._master()
        self._slaves.register(BrokerRequest.from_fields(command.fields), master, connection)
        fields = Registered(self._ha_address(), master.master or "").to_fields()
        return Command.response(command, ResponseCode.SUCCESS, fields=fields, body=b'{"table":{}}')

    def unregister(self, connection: Connection, command: Command) -> Command:
        self._slaves.unregister(BrokerRequest.from_fields(command.fields))
        return Command.response(command, ResponseCode.SUCCESS, fields={})

    def version(self, connection: Connection, command: Command) -> Command:
        """Whatever version its topics have, it may register: that costs nothing here."""
        return Command.response(command, ResponseCode.SUCCESS, fields={"changed": "true"}, body=b"{}")
