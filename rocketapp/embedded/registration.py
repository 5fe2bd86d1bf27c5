"""Registers the broker with name servers of Apache RocketMQ, so that clients find it there beside other brokers.

Each name server has a loop of its own: one that is away delays no other. It is told at the start, every 30 s, soon
after topics have changed, and anew when its connection was lost, because it forgets a broker then. At the stop all are
told at once that the broker is gone. They tell a slave where its master is (Java: BrokerOuterAPI).
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from functools import partial

import msgspec

from rocketapp.broker.broker import Broker
from rocketapp.client.calls.ask import ask
from rocketapp.client.name_servers import cluster_info, parse_name_servers
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError, RocketAppError
from rocketapp.model.event import BrokerRegistered, LoopFailed, Observe
from rocketapp.model.route import MASTER_ID
from rocketapp.tasks import Tasks
from rocketapp.transport.access import Access
from rocketapp.transport.connection import Connection
from rocketapp.transport.pool import Pool, PoolOwner
from rocketapp.transport.stream import is_loopback, split_address
from rocketapp.transport.tls import Tls
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.registration import BrokerRequest, Registered, Registration, encode_topics
from rocketapp.wire.signing import Keys

LOOK = 1.0
"""Seconds between two looks whether topics have changed, or a connection was lost."""
AGAIN = 5.0
"""Seconds after which a name server that could not be told is told again."""
_TIMEOUT, _LEAVING_TIMEOUT = 3.0, 1.0
"""Seconds that one answer may take; and that all may take together when the broker stops."""

_Version = dict[str, int]


def access_of(config: BrokerConfig, tls: Tls | None) -> Access:
    """Credentials and TLS for the broker's own requests to others. Raises ConfigError."""
    if not config.credentials:
        return Access(tls=tls)
    try:
        pair = msgspec.json.decode(config.credentials, type=dict[str, str])
        return Access(tls=tls, keys=Keys(pair["accessKey"], pair["secretKey"]))
    except (msgspec.MsgspecError, KeyError):
        raise ConfigError("broker.credentials", 'is not of the form {"accessKey":"...","secretKey":"..."}') from None


class Registrar(PoolOwner):
    """Registers the broker and its topics with name servers."""

    def __init__(self, broker: Broker, config: BrokerConfig, *, new_pool: partial[Pool], observe: Observe) -> None:
        """`new_pool` lacks the owner. Raises ConfigError for addresses that are none."""
        self._broker, self._config, self._observe = broker, config, observe
        self._addresses = parse_name_servers(config.name_server)
        self._pool = new_pool(owner=self)
        self._tasks = Tasks(observe)
        self._told: dict[str, _Version] = {}
        """Name servers that know the broker, and the version of the topics that they know."""
        self._rendered: tuple[_Version, bytes] = {}, b""

    def __repr__(self) -> str:
        return f"<Registrar at {len(self._told)} of {len(self._addresses)} name servers>"

    def start(self, address: str) -> None:
        """Begin to register. Raises ConfigError when a name server is elsewhere and the broker's address is loopback.

        `address`: the `host:port` at which clients reach the broker.
        """
        hosts = [split_address(each)[0] for each in self._addresses]
        elsewhere = next((host for host in hosts if not is_loopback(host)), None)
        if elsewhere is not None and is_loopback(split_address(address)[0]):
            problem = f"clients of {elsewhere} would look for this broker at {address} of their own machine"
            mend = "listen where they reach it (broker.listen, broker.host), with broker.authentication"
            raise ConfigError("broker.name_server", f"{problem}: {mend}")
        for each in self._addresses:
            self._tasks.start(self._keep_told(each), f"broker registers at {each}")

    async def stop(self) -> None:
        """Unregister the broker."""
        await self._tasks.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_TIMEOUT):
                await asyncio.gather(*map(self._leave, self._addresses))
        await self._pool.close()

    def lost(self, address: str, reason: str) -> None:
        self._told.pop(address, None)

    async def _keep_told(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        while True:
            version = self._broker.topic_table.version
            if self._told.get(address) != version or loop.time() >= due:
                try:
                    await self._tell(address, version)
                except RocketAppError as error:
                    self._told.pop(address, None)
                    self._observe(LoopFailed(f"registration at {address}", str(error)))
                    await asyncio.sleep(AGAIN)
                    continue
                due = loop.time() + self._config.register_interval
            await asyncio.sleep(LOOK)

    async def _tell(self, address: str, version: _Version) -> None:
        connection = await self._pool.get(address)
        is_new = address not in self._told
        if is_new:
            await self._check_place(address, connection)
        if self._rendered[0] != version:
            self._rendered = version, encode_topics(self._broker.topic_table.to_json())
        body, us = self._rendered[1], self._us()
        ha_address, crc = self._broker.ha_address, zlib.crc32(body) & 0x7FFFFFFF
        request = Registration(**msgspec.structs.asdict(us), ha_address=ha_address, compressed=False, body_crc32=crc)
        told = await ask(connection, RequestCode.REGISTER_BROKER, _TIMEOUT, request, body=body)
        if us.broker_id != MASTER_ID:
            self._broker.master_is(Registered.from_fields(told.fields).master_address)
        self._told[address] = version
        if is_new:
            self._observe(BrokerRegistered(us.broker_name, us.address, address))

    async def _check_place(self, address: str, connection: Connection) -> None:
        """Raises ConfigError when another broker has this name and id: only the later one would be known."""
        us = self._us()
        is_master = us.broker_id == MASTER_ID
        option, what, who = ("name", "name", "broker") if is_master else ("id", "number", f"slave {us.broker_id} of")
        for broker in await cluster_info(connection, _TIMEOUT):
            other = broker.addresses.get(us.broker_id, us.address)
            if broker.broker_name == us.broker_name and other != us.address:
                problem = f"{address} knows a {who} {us.broker_name} at {other}"
                raise ConfigError(f"broker.{option}", f"{problem}: stop that one, or choose another {what}")

    async def _leave(self, address: str) -> None:
        connection = self._pool.peek(address)
        if connection is not None:
            with contextlib.suppress(RocketAppError):  # it forgets the broker by itself
                await ask(connection, RequestCode.UNREGISTER_BROKER, _LEAVING_TIMEOUT, self._us())

    def _us(self) -> BrokerRequest:
        broker, _ = self._broker.shown()
        ((broker_id, address),) = broker.addresses.items()
        return BrokerRequest(broker.cluster, broker.broker_name, broker_id, address)
