"""The brokers that the name server knows: the one in the same process, and those that have registered.

Codes REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322 (Java: RouteInfoManager). Slaves of the broker
in the same process are taken when it lets its log be copied, brokers of other names when an option says so. They say
again every 30 s that they are there; one that is silent for long, or whose connection ends, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rocketapp.errors import BrokerError
from rocketapp.model.route import MASTER_ID, BrokerData
from rocketapp.namesrv.name_server import Shown
from rocketapp.transport.answers import CHANGE_CLUSTER, DONE, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.registration import HA_ADDRESS, BrokerRequest, Registered, TopicQueues, decode_topics

EXPIRY = 120.0
"""Seconds without a registration after which a broker is forgotten (Java: heartbeatTimeoutMillis)."""
MOST_BROKERS = 64
"""Slaves and other brokers."""


class _Known(NamedTuple):
    request: BrokerRequest
    ha_address: str
    connection: Connection
    seen: float
    body: bytes
    topics: Mapping[str, TopicQueues]
    """Of a broker of another name; those of a slave are its master's."""


class BrokerTable:
    """Answers brokers that register, and joins the broker of this process with those that have registered."""

    def __init__(
        self,
        own: Callable[[], Shown],
        now: Callable[[], float],
        *,
        ha_address: Callable[[], str],
        takes_others: bool = False,
    ) -> None:
        """`now` in seconds, by a clock that never goes back.

        `ha_address`: where slaves of `own` copy the log; empty where none may.
        """
        self._own, self._now, self._ha_address = own, now, ha_address
        self._takes_others = takes_others
        self._known: dict[tuple[str, int], _Known] = {}
        """By name and id."""

    def __repr__(self) -> str:
        return f"<BrokerTable: {len(self._known)} have registered>"

    def shown(self) -> Iterator[Shown]:
        """The broker of this process, and those of other names: each with its slaves, and the topics of its master.

        Or of a slave while there is no master.
        """
        own, topics = self._own()
        yield BrokerData(own.cluster, own.broker_name, {**own.addresses, **self._addresses(own.broker_name)}), topics
        alive = self._alive()
        for name in sorted({name for name, _ in alive if not self._is_ours(name)}):
            addresses = self._addresses(name)
            first = alive[name, min(addresses)]
            yield BrokerData(first.request.cluster_name, name, addresses), first.topics

    def is_known(self, host: str) -> bool:
        """Whether a slave of the broker of this process has registered from this host."""
        return any(
            self._is_ours(name) and split_address(known.connection.peer)[0] == host
            for (name, _), known in self._alive().items()
        )

    # What brokers say.

    @answers(RequestCode.REGISTER_BROKER, needs=CHANGE_CLUSTER)
    def register(self, connection: Connection, command: Command) -> Answer:
        """Note a broker; tell it where its master is."""
        request, body = BrokerRequest.from_fields(command.fields), command.body
        key = request.broker_name, request.broker_id
        problem = self._problem(request)
        if problem is None and key not in self._alive() and len(self._known) >= MOST_BROKERS:
            problem = f"{MOST_BROKERS} brokers are known already"
        if problem is not None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"register broker failed: {problem}")
        before = self._known.get(key)
        topics: Mapping[str, TopicQueues] = {}
        if not self._is_ours(request.broker_name):
            topics = before.topics if before is not None and before.body == body else decode_topics(body)
        for other, known in list(self._known.items()):  # a slave that has become the master
            if other[0] == key[0] and known.request.address == request.address:
                del self._known[other]
        ha_address, kept = (command.fields or {}).get(HA_ADDRESS, ""), body if topics else b""
        self._known[key] = _Known(request, ha_address, connection, self._now(), kept, topics)
        fields = self._master_of(request.broker_name).to_fields()
        return Command.response(command, ResponseCode.SUCCESS, fields=fields, body=b'{"table":{}}')

    @answers(RequestCode.UNREGISTER_BROKER, needs=CHANGE_CLUSTER, reads=BrokerRequest)
    def unregister(self, request: BrokerRequest) -> Answer:
        key = request.broker_name, request.broker_id
        known = self._known.get(key)
        if known is not None and known.request.address == request.address:
            del self._known[key]
        return DONE

    @answers(RequestCode.QUERY_DATA_VERSION, needs=CHANGE_CLUSTER)
    def version(self, connection: Connection, command: Command) -> Answer:
        """Whatever version its topics have, it may register: an equal table costs nothing here."""
        return Command.response(command, ResponseCode.SUCCESS, fields={"changed": "true"}, body=b"{}")

    def connection_lost(self, connection: Connection) -> None:
        self._known = {key: known for key, known in self._known.items() if known.connection is not connection}

    def _problem(self, request: BrokerRequest) -> str | None:
        own, _ = self._own()
        is_ours = request.broker_name == own.broker_name
        if (is_ours and request.cluster_name != own.cluster) or not (self._takes_others or is_ours):
            return f"only slaves of {own.broker_name} in {own.cluster} are taken"
        if is_ours and not self._ha_address():
            return f"{own.broker_name} lets nobody copy its log"
        if is_ours and request.broker_id <= MASTER_ID:
            return f"{own.broker_name} has a master, at {own.master}: a slave's brokerId is above 0"
        try:
            split_address(request.address)
        except ValueError as error:
            return str(error)
        return None

    def _master_of(self, name: str) -> Registered:
        if self._is_ours(name):
            return Registered(self._ha_address(), self._own()[0].master or "")
        master = self._known.get((name, MASTER_ID))
        return Registered() if master is None else Registered(master.ha_address, master.request.address)

    def _is_ours(self, name: str) -> bool:
        return self._own()[0].broker_name == name

    def _addresses(self, name: str) -> dict[int, str]:
        alive = sorted(self._alive().items())
        return {broker_id: known.request.address for (of, broker_id), known in alive if of == name}

    def _alive(self) -> Mapping[tuple[str, int], _Known]:
        now = self._now()
        for key in [key for key, known in self._known.items() if now - known.seen > EXPIRY]:
            del self._known[key]
        return self._known
