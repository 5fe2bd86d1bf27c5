"""The brokers that the name server knows: the one in the same process, and those that have registered.

Codes REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322 (Java: RouteInfoManager). Slaves of the broker
in the same process are taken when it lets its log be copied, brokers of other names when an option says so. They say
again every 30 s that they are there; one that is silent for long, or whose connection ends, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rocketapp.errors import BrokerError
from rocketapp.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from rocketapp.namesrv.name_server import RouteSource
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
    """Joins the broker of this process with those that have registered."""

    def __init__(
        self,
        own: RouteSource,
        now: Callable[[], float],
        *,
        ha_address: Callable[[], str],
        takes_slaves: bool,
        takes_others: bool = False,
    ) -> None:
        """`now` in seconds, by a clock that never goes back. `ha_address`: where slaves of `own` copy the log."""
        self._own, self._now, self._ha_address = own, now, ha_address
        self._takes_slaves, self._takes_others = takes_slaves, takes_others
        self._known: dict[tuple[str, int], _Known] = {}
        """By name and id."""

    def __repr__(self) -> str:
        return f"<BrokerTable: {len(self._known)} have registered>"

    # What the name server asks.

    def route(self, topic: str) -> TopicRoute | None:
        own = self._own.route(topic)
        queues = [] if own is None else list(own.queues)
        brokers = [] if own is None else [self._with_slaves(broker) for broker in own.brokers]
        for broker, topics in self._others():
            config = topics.get(topic)
            if config is not None:
                data = config.read_queues, config.write_queues, config.perm, config.sys_flag
                queues.append(QueueData(broker.broker_name, *data))
                brokers.append(broker)
        return TopicRoute(tuple(queues), tuple(brokers), "" if own is None else own.order_conf) if brokers else None

    def brokers(self) -> tuple[BrokerData, ...]:
        own = tuple(map(self._with_slaves, self._own.brokers()))
        return own + tuple(broker for broker, _ in self._others())

    def topics(self, cluster: str | None = None) -> list[str]:
        others = {topic for broker, topics in self._others() if cluster in (None, broker.cluster) for topic in topics}
        own = self._own.topics(cluster)
        return sorted(others.union(own)) if others else own

    def is_known(self, host: str) -> bool:
        """Whether a slave of the broker of this process has registered from this host."""
        return any(
            self._is_ours(name) and split_address(known.connection.peer)[0] == host
            for (name, _), known in self._alive().items()
        )

    # What brokers say.

    def register(self, request: BrokerRequest, ha_address: str, body: bytes, connection: Connection) -> Registered:
        """Note a broker; return where its master is. Raises BrokerError for one that is not taken."""
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
        kept = body if topics else b""
        self._known[key] = _Known(request, ha_address, connection, self._now(), kept, topics)
        return self._master_of(request.broker_name)

    def unregister(self, request: BrokerRequest) -> None:
        key = request.broker_name, request.broker_id
        known = self._known.get(key)
        if known is not None and known.request.address == request.address:
            del self._known[key]

    def connection_lost(self, connection: Connection) -> None:
        self._known = {key: known for key, known in self._known.items() if known.connection is not connection}

    def _problem(self, request: BrokerRequest) -> str | None:
        (own,) = self._own.brokers()
        is_ours = request.broker_name == own.broker_name
        if (is_ours and request.cluster_name != own.cluster) or not (self._takes_others or is_ours):
            return f"only slaves of {own.broker_name} in {own.cluster} are taken"
        if is_ours and not self._takes_slaves:
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
            return Registered(self._ha_address(), self._own.brokers()[0].master or "")
        master = self._known.get((name, MASTER_ID))
        return Registered() if master is None else Registered(master.ha_address, master.request.address)

    def _is_ours(self, name: str) -> bool:
        return any(broker.broker_name == name for broker in self._own.brokers())

    def _with_slaves(self, broker: BrokerData) -> BrokerData:
        addresses = {**broker.addresses, **self._addresses(broker.broker_name)}
        return BrokerData(broker.cluster, broker.broker_name, addresses)

    def _others(self) -> Iterator[tuple[BrokerData, Mapping[str, TopicQueues]]]:
        """The brokers of other names, each with the topics of its master, or of a slave while there is none."""
        alive = self._alive()
        for name in sorted({name for name, _ in alive if not self._is_ours(name)}):
            addresses = self._addresses(name)
            first = alive[name, min(addresses)]
            yield BrokerData(first.request.cluster_name, name, addresses), first.topics

    def _addresses(self, name: str) -> dict[int, str]:
        alive = sorted(self._alive().items())
        return {broker_id: known.request.address for (of, broker_id), known in alive if of == name}

    def _alive(self) -> Mapping[tuple[str, int], _Known]:
        now = self._now()
        for key in [key for key, known in self._known.items() if now - known.seen > EXPIRY]:
            del self._known[key]
        return self._known


class RegistrationProcessor:
    """Answers brokers that register."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    @answers(RequestCode.REGISTER_BROKER, needs=CHANGE_CLUSTER)
    def register(self, connection: Connection, command: Command) -> Answer:
        request, ha_address = BrokerRequest.from_fields(command.fields), (command.fields or {}).get(HA_ADDRESS, "")
        answer = self._brokers.register(request, ha_address, command.body, connection)
        return Command.response(command, ResponseCode.SUCCESS, fields=answer.to_fields(), body=b'{"table":{}}')

    @answers(RequestCode.UNREGISTER_BROKER, needs=CHANGE_CLUSTER, reads=BrokerRequest)
    def unregister(self, request: BrokerRequest) -> Answer:
        self._brokers.unregister(request)
        return DONE

    @answers(RequestCode.QUERY_DATA_VERSION, needs=CHANGE_CLUSTER)
    def version(self, connection: Connection, command: Command) -> Answer:
        """Whatever version its topics have, it may register: an equal table costs nothing here."""
        return Command.response(command, ResponseCode.SUCCESS, fields={"changed": "true"}, body=b"{}")
