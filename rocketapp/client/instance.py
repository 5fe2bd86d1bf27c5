"""One process's view of one cluster: its routes, its connections, its groups.

Name servers and brokers have separate connections, even when one process is both, so that calls to one
never delay calls to the other. Starting: name server, then loops. Stopping: loops, then connections.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random

from rocketapp.client.calls import clients
from rocketapp.client.heartbeats import Heartbeats
from rocketapp.client.identity import local_ip, make_client_id
from rocketapp.client.members import ConsumerMember, Members
from rocketapp.client.name_servers import (
    AddressServer,
    AddressServerUrl,
    NameServers,
    address_server,
    parse_name_servers,
)
from rocketapp.client.routes import RouteTable
from rocketapp.clock import Clock
from rocketapp.config.client import ClientConfig
from rocketapp.errors import BrokerError, ConfigError, KeysRefused, RocketAppError, TransportError
from rocketapp.model.event import Connected, Disconnected, Observe
from rocketapp.model.route import MASTER_ID, BrokerData
from rocketapp.state.route_cache import RouteCache
from rocketapp.tasks import Tasks
from rocketapp.transport.access import access_of
from rocketapp.transport.connection import Connection, not_supported
from rocketapp.transport.http_get import ReadUrl, read_url, shown_url
from rocketapp.transport.pool import Pool, PoolOwner
from rocketapp.transport.stream import Dial
from rocketapp.transport.tls import Tls
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import VERSION_NAME, Command
from rocketapp.wire.requests.clients import OfGroup
from rocketapp.wire.requests.direct import NOT_TAKEN, DirectRequest
from rocketapp.wire.requests.reset_offset import ResetOffsetRequest, decode_reset
from rocketapp.wire.requests.running_info import (
    CLIENT_VERSION,
    NAME_SERVERS,
    STARTED,
    ConsumerStatusRequest,
    encode_status,
)

ServeRequest = Callable[[Connection, Command], Command | None]
"""Answers one request of a broker; None sends no answer."""


LEAVING_TIMEOUT = 1.0
"""Seconds that brokers may take, all at once, to confirm that a group is left. One that is frozen does not hold up a
stop: it notices when the client expires."""


class ClientInstance(PoolOwner):
    """Owns the pools and the loops that all producers and consumers of one cluster share."""

    def __init__(
        self,
        *,
        config: ClientConfig,
        dial: Dial,
        clock: Clock,
        random: Random,
        observe: Observe,
        client_ip: str | None = None,
        pid: int | None = None,
        subscribed: str = "",
        tls: Tls | None = None,
        read_url: ReadUrl = read_url,
    ) -> None:
        """`tls`: made before by `access.tls_of`; without it, it is made here. Raises ConfigError.

        `subscribed`: a digest of what this process subscribes, which its client id tells other members.

        `read_url` reads the addresses of name servers where `config.name_server` is a URL.
        """
        self._config = config
        self.observe: Observe = observe
        """Receives the events of this client, and of the producers beside it."""
        url = address_server(config.name_server)
        name_servers = parse_name_servers(config.name_server) if url is None else []
        self.client_ip: str = client_ip or local_ip(name_servers if url is None else [url.address])
        self.pid: int = os.getpid() if pid is None else pid
        name = config.instance_name
        self.client_id: str = make_client_id(self.client_ip, self.pid, name, clock.now(), random, subscribed=subscribed)
        self.inbound: dict[int, ServeRequest] = self._answers()
        """By code what answers requests of brokers. None of it may block."""
        self._started_ms = int(clock.now() * 1000)
        self._members = Members(self.client_id)
        self._cache = RouteCache(config.poll_name_server_interval)
        self._access = access_of(config, tls)
        pool = partial(
            Pool,
            dial=dial,
            dial_timeout=config.dial_timeout,
            max_frame_bytes=config.max_frame_bytes,
            random=random,
            access=self._access,
        )
        self._name_server_pool = pool(owner=_Reporting(observe))
        self._name_servers = NameServers(
            name_servers, pool=self._name_server_pool, timeout=config.request_timeout, random=random
        )
        self._address_server = self._new_address_server(url, read_url, random)
        self.routes: RouteTable = RouteTable(
            self._name_servers, self._cache, changed=self._routes_changed, observe=observe, random=random
        )
        self._brokers = pool(owner=self)
        self._heartbeats = Heartbeats(
            members=self._members,
            routes=self.routes,
            pool=self._brokers,
            interval=config.heartbeat_interval,
            timeout=config.request_timeout,
            observe=observe,
        )
        self._lost: set[str] = set()
        """Names of lost brokers: a master may come back at another address."""
        self._masters: dict[str, str] = {}
        """The last known address of every master."""
        self._tasks = Tasks(observe)

    def __repr__(self) -> str:
        return f"<ClientInstance {self.client_id}: {len(self._cache.brokers())} brokers>"

    def _answers(self) -> dict[int, ServeRequest]:
        """What brokers ask of this process as a member of its groups."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._group_changed,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._tell_running_info,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._tell_done_offsets,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._move_group,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _new_address_server(self, url: AddressServerUrl | None, read: ReadUrl, random: Random) -> AddressServer | None:
        if url is None:
            return None
        servers, timeout = self._name_servers, self._config.request_timeout
        return AddressServer(url, read=read, name_servers=servers, timeout=timeout, random=random, observe=self.observe)

    async def start(self) -> None:
        """Connect and start the loops.

        Raises TransportError when no name server can be reached, or an address server names none; every address
        was tried once. May be called again.
        """
        if self._address_server is not None:
            await self._address_server.look()
        await self._name_servers.connect()
        if self._address_server is not None:
            self._tasks.start(self._address_server.run(), f"addresses of {self.client_id}")
        self._tasks.start(self.routes.run(), f"routes of {self.client_id}")
        self._tasks.start(self._heartbeats.run(), f"heartbeats of {self.client_id}")

    async def check_keys(self) -> None:
        """Ask the first broker that can be reached whether it lets us in. Raises ConfigError when it does not.

        Takes `client.request_timeout` at most. A broker that cannot be reached is passed over; one that does not know
        the request lets us in.
        """
        try:
            async with asyncio.timeout(self._config.request_timeout):
                await self._ask_for_keys()
        except KeysRefused as error:
            refused = "the cluster refuses the keys" if self._config.access_key else "is not set, and brokers want keys"
            raise ConfigError("client.access_key", f"{refused}: {error}") from error
        except (TransportError, TimeoutError):
            return

    async def _ask_for_keys(self) -> None:
        from rocketapp.client.calls import admin

        for address in [one.addresses[MASTER_ID] for one in await self.brokers() if MASTER_ID in one.addresses]:
            try:
                await admin.check_keys(await self.connection(address), self._config.request_timeout)
            except KeysRefused:
                raise
            except TransportError:
                continue
            except BrokerError:
                pass
            return

    async def stop(self) -> None:
        """End the loops, then the connections. Call `unregister` for every group before."""
        await self._tasks.close()
        await self._heartbeats.stop()
        await asyncio.gather(self._brokers.close(), self._name_server_pool.close())

    def disown(self) -> None:
        """In a forked child: leave the connections to the parent."""
        self._brokers.disown()
        self._name_server_pool.disown()

    # Groups.

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Add a consumer to the next heartbeats. Raises SetupError when the group has one already."""
        self._members.add_consumer(group, member)

    def register_producer(self, group: str) -> None:
        self._members.add_producer(group)

    async def unregister(self, group: str, *, tell: bool = True) -> None:
        """Leave a consumer group and tell every connected broker. Others notice it when the client expires.

        `tell` False: brokers notice it when the connection is closed, and locks expire.
        """
        self._members.consumers.pop(group, None)
        if tell:
            await self._tell_leaving(consumer_group=group)

    async def unregister_producer(self, group: str) -> None:
        if self._members.remove_producer(group):
            await self._tell_leaving(producer_group=group)

    async def heartbeat(self) -> frozenset[str]:
        """Send a heartbeat to every known broker at once; return the addresses of those that accepted it."""
        return await self._heartbeats.everywhere()

    # The whole cluster.

    async def topics(self) -> list[str]:
        """The names of all topics, system topics included. Raises TransportError when no name server answers."""
        return await self._name_servers.topics()

    async def brokers(self) -> tuple[BrokerData, ...]:
        """All brokers with their addresses. Raises TransportError when no name server answers."""
        return await self._name_servers.brokers()

    # Brokers.

    async def connection(self, address: str) -> Connection:
        """The connection to a broker; TransportError when it cannot be reached."""
        return self._brokers.peek(address) or await self._brokers.get(address)

    async def version_at(self, connection: Connection) -> int | None:
        """The version of this broker, its number in Java's MQVersion; None when it does not say."""
        return await self._heartbeats.version_at(connection)

    def living_connection(self, address: str) -> Connection | None:
        """The connection to a broker if there is one; nothing is dialled."""
        return self._brokers.peek(address)

    def masters_at(self, address: str) -> list[str]:
        """Names of the brokers whose master is at this address, as far as the routes say."""
        known = self._cache.brokers().items()
        return [name for name, addresses in known if addresses.get(MASTER_ID) == address]

    def broker_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of this broker according to the known routes; None when no route names it."""
        return self._cache.address(broker_name, broker_id)

    def copies(self, broker_name: str) -> Mapping[int, str]:
        """The addresses of this broker's master (id 0) and slaves, by id; empty when no route names it."""
        return self._cache.brokers().get(broker_name, {})

    # As the owner of the connections to brokers.

    def serve(self, connection: Connection, request: Command) -> Command | None:
        serve = self.inbound.get(request.code)
        return not_supported(request) if serve is None else serve(connection, request)

    async def greet(self, address: str, connection: Connection) -> None:
        await self._heartbeats.greet(connection)

    def connected(self, address: str) -> None:
        self.observe(Connected(address))
        self._notice_back(self.masters_at(address))

    def lost(self, address: str, reason: str) -> None:
        self.observe(Disconnected(address, reason))
        lost = self.masters_at(address)
        self._tell_lost(lost)
        self._heartbeats.rejoin(address)

    # Inside.

    async def _tell_leaving(self, **group: str) -> None:
        timeout = min(self._config.request_timeout, LEAVING_TIMEOUT)
        connections = [self._brokers.peek(address) for address in self._brokers.addresses()]
        calls = [clients.unregister(each, self.client_id, timeout, **group) for each in connections if each]
        for problem in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(problem, BaseException) and not isinstance(problem, RocketAppError):
                raise problem

    def _group_changed(self, connection: Connection, request: Command) -> Command | None:
        if member := self._members.consumers.get(OfGroup.from_fields(request.fields).group):
            member.members_changed()
        return None

    def _tell_running_info(self, connection: Connection, request: Command) -> Command:
        """Answers an administrator: the subscriptions, state and start time of this member."""
        from rocketapp.wire.requests.admin import RunningInfoRequest

        asked = RunningInfoRequest.from_fields(request.fields)
        if (member := self._members.consumers.get(asked.group)) is None:
            remark = f"The Consumer Group <{asked.group}> not exist in this consumer"
            return Command.response(request, ResponseCode.SYSTEM_ERROR, remark=remark)
        info = member.running_info(with_stacks=asked.with_stacks, brief=asked.brief)
        if not asked.brief:
            said = {STARTED: str(self._started_ms), CLIENT_VERSION: VERSION_NAME}
            said[NAME_SERVERS] = shown_url(self._config.name_server)
            info = info._replace(properties={**info.properties, **said})
        body = self._access.body(info.encode())
        return Command.response(request, ResponseCode.SUCCESS, body=body)

    def _tell_done_offsets(self, connection: Connection, request: Command) -> Command:
        """Answers an administrator: this member's progress in the queues of one topic."""
        asked = ConsumerStatusRequest.from_fields(request.fields)
        member = self._members.consumers.get(asked.group)
        body = self._access.body(encode_status({} if member is None else member.done_offsets(asked.topic)))
        return Command.response(request, ResponseCode.SUCCESS, body=body)

    def _move_group(self, connection: Connection, request: Command) -> None:
        """An operator resets offsets through the members. Not answered, as in Java."""
        if member := self._members.consumers.get(ResetOffsetRequest.from_fields(request.fields).group):
            member.move(decode_reset(request.body))

    def _consume_directly(self, connection: Connection, request: Command) -> None:
        """Another member, or an administrator, asks this member to consume a message: answered later."""
        asked = DirectRequest.from_fields(request.fields)
        self._tasks.start(self._answer_directly(connection, request, asked), f"consume for {asked.group}")

    async def _answer_directly(self, connection: Connection, request: Command, asked: DirectRequest) -> None:
        member = self._members.consumers.get(asked.group)
        result = None if member is None else await member.consume_directly(asked, request.body)
        if result is None:
            # No answer of a member: a call that it took before may run all the same.
            remark = f"this process is not a member of group {asked.group}"
            answer = Command.response(request, ResponseCode.SYSTEM_ERROR, remark=remark)
        elif result.result == NOT_TAKEN and not asked.is_by_member:
            answer = Command.response(request, ResponseCode.SYSTEM_ERROR, remark=result.remark)
        else:
            answer = Command.response(request, ResponseCode.SUCCESS, body=result.encode())
        if not connection.is_closed:
            connection.reply(answer)

    def _routes_changed(self) -> None:
        self._notice_moves()
        for address in self._heartbeats.addresses():
            if self._brokers.peek(address) is None:
                self._heartbeats.rejoin(address)
        for member in list(self._members.consumers.values()):
            member.routes_changed()

    def _notice_moves(self) -> None:
        """Detect masters at a new address: a new process knows neither our membership nor our locks."""
        known = self._cache.brokers().items()
        masters = {name: addresses[MASTER_ID] for name, addresses in known if MASTER_ID in addresses}
        moved = [name for name, address in masters.items() if self._masters.get(name, address) != address]
        self._masters.update(masters)
        if lost := [name for name in moved if name not in self._lost]:
            self._tell_lost(lost)
        self._notice_back(name for name in moved if self._brokers.peek(masters[name]) is not None)

    def _tell_lost(self, names: Sequence[str]) -> None:
        self._lost.update(names)
        for member in list(self._members.consumers.values()):
            member.broker_lost(names)

    def _notice_back(self, names: Iterable[str]) -> None:
        if back := [name for name in names if name in self._lost]:
            self._lost.difference_update(back)
            for member in list(self._members.consumers.values()):
                member.broker_back(back)


class _Reporting(PoolOwner):
    """Reports connections to name servers as events."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    def connected(self, address: str) -> None:
        self._observe(Connected(address))

    def lost(self, address: str, reason: str) -> None:
        self._observe(Disconnected(address, reason))
