"""An app and its clusters in one process: the embedded broker in memory, streams in memory, time from a virtual loop.

The code is production's, all of it: what differs comes in from outside, as `Lifecycle` and `EmbeddedBroker` take it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import declared_of, read_settings
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import DEFAULT, Settings
from rocketapp.broker.broker import Pace
from rocketapp.client.name_servers import address_server, parse_name_servers
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import ConfigError
from rocketapp.model.event import unobserved
from rocketapp.model.subscription import Subscription
from rocketapp.testing.driver import CountedThreads, DrivenLoop
from rocketapp.testing.records import Recorder
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.access import ONLY_WITH_TLS
from rocketapp.transport.memory import MemoryNetwork, MemoryStream
from rocketapp.transport.stream import Receiver
from rocketapp.transport.tls import Tls

Tables = Mapping[str, Mapping[str, Any]]
OWN_ADDRESS = "127.0.0.1:9876"
"""The name server of the unnamed cluster, on the streams of a stage."""
APP = "app"
"""The app's link: its streams can be cut or held by this name."""
FEWER_ROUNDS: Tables = {
    "broker": {
        "clean_interval": 3600.0,
        "flush_interval": 60.0,
        "offsets_flush_interval": 60.0,
        "topic_queues": 2,
        "transaction_check_interval": 30.0,
    },
    "consumer": {"long_poll": 300.0, "pull_timeout": 330.0, "commit_interval": 15.0, "rebalance_interval": 40.0},
}
"""Defaults of the kit, where nothing else sets the option: hours pass faster with fewer rounds of what is not seen."""
_OF_REAL_CLUSTERS = (
    *("tls", "tls_verify", *ONLY_WITH_TLS),
    *("access_key", "secret_key", "security_token", "namespace"),
)
_PACE = Pace(expiry=30.0, traffic=60.0, delays=60.0, delivered=60.0, index=60.0)
_SHORTEST_STEP, _LONGEST_STEP = 0.001, 5.0
"""Seconds of virtual time between two looks whether anything is left to do."""


class Stage:
    """One app, from one start to the stop. Make it, start it and stop it on its loop."""

    def __init__(self, app: RocketApp, loop: DrivenLoop, *, settings: Settings, seed: int) -> None:
        self.app: RocketApp = app
        self.loop: DrivenLoop = loop
        settings = _in_memory(settings)
        self.settings: Settings = settings
        self.clock: VirtualClock = VirtualClock(loop)
        self.random: Random = Random(seed)
        self.network: MemoryNetwork = MemoryNetwork()
        self.recorder: Recorder = Recorder(loop, declared_of(app).payloads)
        self.brokers: dict[str, EmbeddedBroker] = {}
        """By address."""
        self._aliases: dict[str, str] = {}
        """Further name servers of a cluster, and the one that stands for all of them."""
        self.lifecycle: Lifecycle = Lifecycle(
            app,
            settings,
            Runtime(
                dial=self._dial,
                clock=self.clock,
                random=self.random,
                threads=lambda: CountedThreads(loop),
                read_url=self._read_url,
                consumer=self._consumer,
            ),
            plugins=(self.recorder,),
        )

    def __repr__(self) -> str:
        return f"<Stage of {self.app.name}: {len(self.brokers)} brokers>"

    @property
    def group(self) -> str:
        """The app's own group."""
        return self.settings.app.group or self.app.name

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the app subscribes to."""
        return frozenset(one.topic for one in self._subscriptions())

    def _subscriptions(self) -> list[Subscription]:
        declared = declared_of(self.app).subscribed(self.group, self.settings.consumer)
        return [one.subscription for one in declared]

    def address(self, cluster: str) -> str:
        """Where the broker of a cluster listens. Raises LookupError for one that the app does not have."""
        name_servers = {"": self.settings.client.name_server, **declared_of(self.app).clusters}
        if cluster not in name_servers:
            known = ", ".join(sorted(name for name in name_servers if name)) or "none"
            raise LookupError(f"cluster={cluster!r} is unknown: RocketApp(clusters=...) names {known}")
        return _name_servers(name_servers[cluster])[0]

    async def start(self) -> None:
        """Returns when messages flow. Raises what stopped the start, after undoing it."""
        addresses = (self.settings.client.name_server, *declared_of(self.app).clusters.values())
        try:
            for address in addresses:
                await self._start_broker(address)
            self._create_topics()
            with self.loop.waiting():
                await self.lifecycle.start()
        except BaseException:
            await self._stop_brokers()
            raise

    async def stop(self, cut: asyncio.Event) -> None:
        """The reverse. `cut`: set it, and handlers are not waited for; what the app has opened is closed anyway."""
        try:
            with self.loop.waiting():
                await self.lifecycle.stop(cut, code_cut=asyncio.Event())
        finally:
            await self._stop_brokers()

    async def settle(self, limit: float) -> None:
        """Let time pass until nothing is left to do. AssertionError when that takes longer than `limit` seconds."""
        end, step = self.loop.time() + limit, _SHORTEST_STEP
        while True:
            await asyncio.sleep(step)
            due = self._next_delayed()
            reasons = await self._reasons() if due is None else [f"a delayed message is due in {due:.0f} s"]
            if not reasons:
                return
            if self.loop.time() >= end:
                raise AssertionError(f"not settled within {limit:g} s: {'; '.join(reasons)}")
            step = min(step * 1.5, _LONGEST_STEP) if due is None else max(due, _SHORTEST_STEP)
            step = min(step, end - self.loop.time())

    def _next_delayed(self) -> float | None:
        """Seconds until a delayed message is delivered, a retry for example; None when no message waits."""
        now = self.clock.now()
        due = [due - now for broker in self.brokers.values() if (due := broker.running.next_delayed()) is not None]
        return min(due, default=None)

    async def _reasons(self) -> list[str]:
        """Why something else is left to do; empty: idle."""
        idle = await self.lifecycle.idle()
        left_open = sum(len(broker.running.halves) for broker in self.brokers.values())
        open_ones = [f"{left_open} transactions are open"] if left_open else []
        return [*idle.reasons, *open_ones, *(f"{queue} is not consumed" for queue in sorted(idle.wanted - idle.owned))]

    async def _start_broker(self, name_server: str) -> None:
        first, *others = _name_servers(name_server)
        self._aliases.update(dict.fromkeys(others, first))
        if first in self.brokers:
            return
        broker = EmbeddedBroker(
            config=replace(self.settings.broker, listen=first, name_server=""),
            clock=self.clock,
            random=self.random,
            observe=unobserved,
            memory=True,
            pace=_PACE,
        )
        await broker.start(self.network)
        broker.running.halves.on_committed = self.recorder.committed
        self.brokers[first] = broker

    def _create_topics(self) -> None:
        """What is subscribed exists, as it does in production most of the time: so the first message is awaited."""
        for one in self._subscriptions():
            self.brokers[self.address(one.cluster)].running.create_topic(one.topic)

    async def _stop_brokers(self) -> None:
        while self.brokers:
            _, broker = self.brokers.popitem()
            await broker.stop()

    def _consumer(self, member: Member, *, offset_store: OffsetStore | None, **parts: Any) -> PushConsumer:
        store: Any = offset_store and _Awaited(offset_store, self.loop)
        return PushConsumer(member, offset_store=store, **parts)

    async def _read_url(self, url: str, timeout: float) -> str:
        """An address server names itself: the name server of its cluster stands there as well."""
        return _name_servers(url)[0]

    async def _dial(self, address: str, receiver: Receiver, timeout: float, tls: Tls | None = None, /) -> MemoryStream:
        return await self.network.dial(self._aliases.get(address, address), receiver, timeout, link=APP)


class _Awaited:
    """A plugin's offset store, for whose answers virtual time waits as it does for handlers: it may ask a database."""

    def __init__(self, store: OffsetStore, loop: DrivenLoop) -> None:
        self._store, self._loop = store, loop

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def awaited(*given: Any) -> Any:
            with self._loop.waiting():
                return await method(*given)

        return awaited


def _name_servers(text: str) -> list[str]:
    url = address_server(text)
    return parse_name_servers(text) if url is None else [url.address]


def settings_of(app: RocketApp, given: Tables, file: str | None) -> Settings:
    """Defaults < the app's < the file's < `given`. Raises ConfigError, PluginError and SetupError.

    The environment and ./settings.toml are left out: a test means the same on every machine.
    """
    given = {**given, "client": {**given.get("client", {}), "name_server": OWN_ADDRESS}}
    if _is_idempotent(app) and "idempotency" not in given.get("app", {}).get("disabled_plugins", ()):
        # In memory unless the test says otherwise: marks in a file would let the next test skip its messages.
        given["idempotency"] = {"store": "memory", **given.get("idempotency", {})}
    try:
        settings = read_settings(app, {}, file=file or os.devnull, overrides=given)
    except ConfigError as error:
        # What comes before all others is the command line's everywhere else.
        raise error if error.place != "command line" else ConfigError("TestApp(settings=...)", error.problem) from None
    for table, options in FEWER_ROUNDS.items():
        left = {key: value for key, value in options.items() if settings.source_of(table, key) == DEFAULT}
        settings = replace(settings, **{table: replace(getattr(settings, table), **left)})
    return settings


def _is_idempotent(app: RocketApp) -> bool:
    """Whether a handler asks for it."""
    declared = declared_of(app).subscribed(app.name, ConsumerConfig())
    return any(one.subscription.idempotent for one in declared)


def _in_memory(settings: Settings) -> Settings:
    """The same without what only a real cluster asks for: tests need no certificates, keys or namespace of it."""
    plain = ClientConfig()
    asked = {name: getattr(plain, name) for name in _OF_REAL_CLUSTERS}
    return replace(settings, client=replace(settings.client, **asked))
