"""Starts and stops an app, in this order:

settings → resources → clients → producers → the offset store → consumers join (start positions fixed and committed) →
plugins → the app's own functions → consumers begin. When a step fails or is cancelled, the steps before it are undone
and the error is raised.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rocketapp.app.declare.changes import DEFAULT_REASON, LimitChange, TopicChange
from rocketapp.app.declare.phases import TwoPhases, begin, complete, declared_of, end, handlers_of, read_settings
from rocketapp.app.declare.registry import UNNAMED, ConsumedGroup
from rocketapp.app.places import place_of_call
from rocketapp.app.publishing import running_loop, through
from rocketapp.app.run.extensions import fold_publish
from rocketapp.app.run.wiring import Runtime, Wiring, resources
from rocketapp.app.settings import Settings, with_name_server
from rocketapp.app.sources import SWITCHER
from rocketapp.app.user_code import UserCode
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.consumer.rollout.check import digest
from rocketapp.errors import ConfigError, ConnectionLostError, SetupError, TlsError, TransportError
from rocketapp.hooks.hook_types import PublishCall
from rocketapp.model.snapshot import AppSnapshot, HandlerStats
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import scope
from rocketapp.transport.http_get import shown_url
from rocketapp.transport.tcp import dial_tcp

if TYPE_CHECKING:
    from rocketapp.client.instance import ClientInstance
    from rocketapp.consumer.offsets.stores import OffsetStore
    from rocketapp.consumer.push_consumer import PushConsumer
    from rocketapp.model.subscription import Subscription
    from rocketapp.producer.producer import Producer

log: logging.Logger = logging.getLogger("rocketapp.app")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between attempts to reach a name server at start."""
QUIET = 3.0
"""Seconds without a name server after which the log says that the start waits for one."""


class Lifecycle:
    """One run of an app, from start to stop.

    send: publishes; inside the wrappers of plugins from the moment that these have been asked.
    """

    def __init__(
        self,
        app: TwoPhases,
        settings: Settings,
        runtime: Runtime,
        *,
        expected_members: int = 1,
        plugins: Sequence[object] = (),
    ) -> None:
        """`expected_members`: processes of the app that start together. `plugins`: of this start, behind the app's."""
        self._app, self._settings, self._runtime = app, settings, runtime
        self._expected_members, self._more_plugins = expected_members, plugins
        self.loop: asyncio.AbstractEventLoop
        self.send_timeout: float = settings.producer.send_timeout
        self._wiring: Wiring | None = None
        self._clients: dict[str, ClientInstance] = {}
        self._producers: dict[str, Producer] = {}
        self.send: PublishCall = through(self.producer)
        self._plans: Sequence[ConsumedGroup] = ()
        self._consumers: list[PushConsumer] = []
        self._own: frozenset[int] = frozenset()
        """Which subscriptions are those of this app, by identity."""
        self._user_code: UserCode | None = None
        self._opened = AsyncExitStack()
        """What is stopped when no code of the user runs any more, in the reverse order of its start."""
        self._began = False
        self._is_assembled = False
        """The consumers of all groups are there."""

    def __repr__(self) -> str:
        return f"<Lifecycle {self._app.name}: {len(self._clients)} clients, {len(self._consumers)} consumers>"

    async def start(self) -> None:
        """Returns when messages flow. Raises what stopped the start, after undoing it.

        ConfigError, SetupError and PluginError: something declared is wrong. TransportError:
        a cluster was not reached within `app.connect_timeout`.
        """
        if sys.platform == "win32":
            raise SetupError("", "apps and commands run on Linux and macOS: on Windows use WSL 2 or a container")
        self.loop = asyncio.get_running_loop()
        self._settings = complete(self._app, self._settings)
        end_in_children(self)
        begin(self._app, self, self._settings)
        self._began = True
        self._opened.callback(end, self._app)
        try:
            await self._start()
        except BaseException:
            await self.stop(asyncio.Event())
            raise

    async def stop(self, cut: asyncio.Event, *, code_cut: asyncio.Event | None = None) -> bool:
        """Consumers drain and leave, then shutdown functions and plugins, producers, clients, offset store, resources.

        True when every handler finished, every offset was committed and no hook failed.
        `cut`: set it and nothing is waited for any more. `code_cut`: the same of shutdown functions and plugins alone;
        None: `cut`. Does nothing when nothing is started.
        """
        if not self._began:
            return True
        self._began = False
        try:
            clean = await self._stop_consumers(cut)
            for cluster in {one.cluster for one in declared_of(self._app).transactions} & self._producers.keys():
                await self.producer(cluster).transactions.stop_checks()
            if self._user_code is not None:
                clean &= await self._user_code.stop(code_cut or cut)
        finally:
            # What fails here only leaves a connection to the operating system.
            await self._opened.aclose()
        return clean

    def check_loop(self) -> None:
        """Raises SetupError outside of the event loop in which the app was started, unless that was closed."""
        if not self.loop.is_closed() and self.loop is not asyncio.get_running_loop():
            raise SetupError(place_of_call(), "the app was entered in another event loop: leave it there")

    async def leave(self) -> None:
        """Drain and stop. Cancellation cuts the drain: messages in flight will be delivered again."""
        if self.loop.is_closed():
            log.error("the event loop of %r was closed before the app was left: its messages are delivered again", self)
            end(self._app)
            return
        cut = asyncio.Event()
        async with scope(self.stop(cut)) as (stopping,):
            try:
                clean = await asyncio.shield(stopping)
            except asyncio.CancelledError:
                cut.set()
                await asyncio.wait({stopping})
                raise
        if not clean:
            log.error("%r was stopped before everything was finished; its messages are delivered again", self)

    def producer(self, cluster: str) -> Producer:
        """The producer of a cluster. Raises SetupError when it is unknown or not connected."""
        producer = self._producers.get(cluster)
        if producer is not None:
            return producer
        if not self._producers:
            problem = f"app {self._app.name!r} is not running, or not connected yet"
            raise SetupError("", f"{problem}: nothing can be published; a forked process makes a client of its own")
        if cluster == UNNAMED:
            raise SetupError("", "the unnamed cluster has no name server: set client.name_server, or name a cluster=")
        known = ", ".join(sorted(name for name in self._producers if name)) or "none"
        raise SetupError(
            "", f"cluster={cluster!r} is unknown, or not connected yet: RocketApp(clusters=...) names {known}"
        )

    def handles(self, subscription: Subscription) -> bool:
        return id(subscription) in self._own

    def change(self, change: TopicChange) -> None:
        """Pause, resume or adjust. Raises SetupError. May be called from any thread."""
        if not isinstance(change, LimitChange):
            if self._wiring is not None:
                change.named_in(self._plans)
            changing = partial(self._change_pauses, change)
        elif self._is_assembled:
            changing = partial(self._adjust, change.by_group(self._plans))
        else:
            change.refuse("the groups of the app are not there yet: call it from on_startup functions, or later")
        if running_loop() is self.loop:
            changing()
        else:
            self.loop.call_soon_threadsafe(changing)

    @property
    def subscribes(self) -> bool:
        """Whether the app has a handler."""
        return bool(self._consumers)

    @property
    def counters(self) -> HandlerStats:
        """The message counters of all consumers together."""
        return sum((consumer.counters for consumer in self._consumers), HandlerStats())

    async def idle(self) -> Idle:
        """Whether anything is left to do in any consumer."""
        reports = await asyncio.gather(*(consumer.idle() for consumer in self._consumers))
        plans = self._plans[: len(reports)]
        # The same in every worker of a group: their reports are put together.
        names = [f"{plan.group} on {plan.cluster}" if plan.cluster else plan.group for plan in plans]
        # By consumer: two groups may want the same queue.
        named = list(zip(names, reports, strict=True))
        owned = frozenset(f"{who} {queue}" for who, report in named for queue in report.owned)
        wanted = frozenset(f"{who} {queue}" for who, report in named for queue in report.wanted)
        return Idle(owned, wanted, tuple(str(reason) for report in reports for reason in report.reasons))

    def snapshot(self) -> AppSnapshot:
        """What every group is doing now."""
        groups = [consumer.snapshot() for consumer in self._consumers]
        limit = self._settings.consumer.cache_max_bytes
        client_ids = {name: client.client_id for name, client in self._clients.items()}
        now = AppSnapshot(cache_limit_bytes=limit, groups=tuple(groups), client_ids=client_ids)
        return now if self._wiring is None else replace(now, metrics=self._wiring.surface.metrics(now))

    def halt(self) -> None:
        """In a forked child: start nothing more, and send nothing."""
        if self._wiring is not None:
            self._wiring.surface.halt()
        for client in self._clients.values():
            client.disown()
        for consumer in self._consumers:
            consumer.halt()
        self._producers = {}

    # Starting.

    async def _start(self) -> None:
        plugins = declared_of(self._app).plugins
        if self._more_plugins:
            plugins = plugins.joined_by(self._more_plugins)
        wiring = Wiring(self._app, self._settings, self._runtime, plugins, snapshot=self.snapshot)
        self._plans, self._own = wiring.groups, frozenset(map(id, wiring.surface.subscriptions))
        self._wiring = wiring  # from now on other threads find the plans
        for change in declared_of(self._app).pauses:
            change.named_in(self._plans)
        wiring.blocked_loop.start()
        self._opened.callback(wiring.blocked_loop.stop)
        self._user_code = wiring.surface.user_code()
        self.send = fold_publish(self.send, plugins, wiring.surface)
        container, store = declared_of(self._app).container, wiring.offset_store if wiring.shared else None
        self._at_stop("a resource of the container did not close", lambda: [resources(container, "shutdown")])
        await resources(container, "init")
        if store is not None:
            self._at_stop("the offset store did not close", lambda: [store.close()] if self._is_assembled else [])
        self._at_stop("stopping", lambda: [client.stop() for client in self._clients.values()])
        await self._connect(wiring)
        self._at_stop("stopping", lambda: [producer.stop() for producer in self._producers.values()])
        for cluster, client in self._clients.items():
            producer = wiring.producer(client=client)
            await producer.start()
            self._producers[cluster] = producer
        for plan in self._plans:
            client, producer = self._clients[plan.cluster], self._producers[plan.cluster]
            self._consumers.append(wiring.consumer(plan, client, producer, expected_members=self._expected_members))
        self._is_assembled = True
        if store is not None:
            await opened(store)
        for change in declared_of(self._app).pauses:
            self._change_pauses(change)
        await all_of(consumer.join() for consumer in self._consumers)
        await self._user_code.start()
        # What a check needs is there when the startup functions have ended.
        for transaction in declared_of(self._app).transactions:
            self.producer(transaction.cluster).transactions.answer(transaction.topic_name, transaction.ask())
        self._opened.callback(wiring.surface.periodic.stop)
        wiring.surface.periodic.start(self.loop)
        for consumer in self._consumers:
            consumer.begin()

    async def _connect(self, wiring: Wiring) -> None:
        """Connect to every named cluster, and to the unnamed one if anything may use it."""
        declared, config = declared_of(self._app), self._settings.client
        clusters = dict(declared.clusters)
        if config.name_server:
            clusters[UNNAMED] = config.name_server
        elif declared.uses_unnamed_cluster(plan.cluster for plan in wiring.groups):
            raise ConfigError(
                "client.name_server", "is not set: give the cluster's name servers, host:port[;host:port]"
            )
        if config.tls and not config.tls_verify:
            log.warning("client.tls_verify is off: any server is trusted")
        await all_of(
            self._connect_one(wiring, name, replace(config, name_server=address)) for name, address in clusters.items()
        )

    async def _connect_one(self, wiring: Wiring, cluster: str, config: ClientConfig) -> None:
        """Connect to one cluster within `connect_timeout`. Later outages are waited out without limit."""
        limit, began = self._settings.app.connect_timeout, self.loop.time()
        pauses, is_told = Backoff(FIRST_PAUSE, LONGEST_PAUSE), False
        cause: TransportError | None = None
        groups = {plan.group: plan.topics for plan in wiring.groups if plan.cluster == cluster}
        subscribed = digest(groups, self._settings.consumer)
        try:
            async with asyncio.timeout(limit):
                while True:
                    # Made for each attempt: its id holds the address of this machine, which the network may just get.
                    # Known before it starts: a start that is broken off may just have connected.
                    client = self._clients[cluster] = wiring.client(config=config, subscribed=subscribed)
                    try:
                        await client.start()
                        break
                    except TransportError as error:
                        cause = error
                    if not is_told and self.loop.time() - began > QUIET:
                        is_told = True
                        log.warning("cluster not reached: %s: tried for up to %g s (app.connect_timeout)", cause, limit)
                    await client.stop()
                    await asyncio.sleep(pauses.next(self._runtime.random.random()))
        except TimeoutError:
            problem = f"not reached within {limit:g} s (app.connect_timeout): {cause or 'no answer'}"
            # A server that ended the connection, perhaps for want of TLS, is there, under this address.
            if not isinstance(cause, TlsError | ConnectionLostError):
                problem += ": start the name server, or correct --name-server or client.name_server"
            raise TransportError(shown_url(config.name_server), problem) from cause
        if config.access_key:  # later refusals are waited out like outages
            await client.check_keys()

    def _change_pauses(self, change: TopicChange) -> None:
        if not self._is_assembled:  # an operator may be earlier than the cluster
            declared_of(self._app).pauses.append(change)
            return
        for index, topic in change.named_in(self._plans):
            if change.kind == "pause":
                self._consumers[index].pause(topic.topic, change.reason or DEFAULT_REASON)
            else:
                self._consumers[index].resume(topic.topic, change.reason)

    def _adjust(self, changes: Mapping[int, Mapping[str, Mapping[str, float | None]]]) -> None:
        for index, topics in changes.items():
            self._consumers[index].adjust(topics)

    # Stopping.

    async def _stop_consumers(self, cut: asyncio.Event) -> bool:
        drain_timeout = self._settings.app.drain_timeout
        stopping = [consumer.stop(drain_timeout=drain_timeout, cut=cut) for consumer in self._consumers]
        return all(result is True for result in await _ended(stopping, "a consumer did not stop cleanly"))

    def _at_stop(self, what: str, ends: Callable[[], Iterable[Awaitable[Any]]]) -> None:
        """Await what `ends` returns at the stop, all at once. `what`: for the log when one fails."""
        self._opened.push_async_callback(lambda: _ended(ends(), what))


async def opened(store: OffsetStore) -> None:
    """Open a plugin's offset store. Raises SetupError with what it raises."""
    try:
        await store.open()
    except Exception as error:
        raise SetupError("", f"the offset store did not open: {type(error).__name__}: {error}") from error


async def _ended(works: Iterable[Awaitable[Any]], what: str) -> list[Any]:
    """Await all at once; returns results or exceptions. A failure is logged and does not disturb the others."""

    async def ended(work: Awaitable[Any]) -> Any:
        return await work  # a plugin's may be something else, which fails here

    results = await asyncio.gather(*map(ended, works), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            log.error("%s: %s", what, result, exc_info=result)
    return results


async def all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all at once. When one fails, the others are cancelled before its error is raised."""
    async with scope(*works) as tasks:
        await asyncio.gather(*tasks)


async def start_here(app: TwoPhases) -> Lifecycle:
    """Start an app inside a running loop, for `async with app:`. Returns when messages flow.

    Reads settings as `rocketapp run` does, but starts no process: without a configured cluster, an embedded broker must
    serve this folder already. Logging, signals and the kind of loop are left to the program. Raises what `start`
    raises.
    """
    settings = read_settings(app, os.environ)
    clusters = [one.subscription.cluster for one in handlers_of(app, settings)]
    if not settings.client.name_server and declared_of(app).uses_unnamed_cluster(clusters):
        settings = with_name_server(settings, await _embedded_broker(settings))
    lifecycle = Lifecycle(app, settings, Runtime(dial=dial_tcp, clock=SystemClock(), random=Random(), worker=1))
    await lifecycle.start()
    return lifecycle


async def _embedded_broker(settings: Settings) -> str:
    """The address of the embedded broker that serves this folder. Raises ConfigError without one."""
    from rocketapp.embedded.running import find_serving

    if settings.clusters:
        raise ConfigError(
            "client.name_server",
            f"is not set for environment {settings.environment}, but there is one in {', '.join(settings.clusters)}: "
            f"set it there, or choose another environment with {SWITCHER}",
        )
    directory = Path(settings.broker.dir)
    running = await find_serving(directory)
    if running is None:
        raise ConfigError(
            "client.name_server",
            f"is not set, and no embedded broker serves {directory}/: set it in settings.toml, as "
            "ROCKETAPP_CLIENT__NAME_SERVER or in RocketApp(settings=...), or start `rocketapp broker` in this folder",
        )
    log.info("no name server is set: using the embedded broker of %s/ at %s", directory, running.address)
    return running.address


def end_in_children(lifecycle: Lifecycle) -> None:
    """Make forked children harmless: a handler may fork, and its child must not consume as well.

    A child that runs another program (subprocess) or ends by itself (multiprocessing) is not disturbed. One that
    returns from the handler exits there with code 0. Its connections lead nowhere.
    """
    # What is registered stays for the life of the process: it keeps neither the app nor its event loop.
    thread, run = threading.get_ident(), weakref.ref(lifecycle)

    def in_child() -> None:
        if (halted := run()) is None:
            return
        halted.halt()
        if threading.get_ident() == thread and not halted.loop.is_closed():
            halted.loop.call_soon(os._exit, 0)

    os.register_at_fork(after_in_child=in_child)


@dataclass(frozen=True, slots=True)
class Idle:
    """Whether an app is idle: every wanted queue is owned, and no consumer has anything left to do."""

    owned: frozenset[str]
    wanted: frozenset[str]
    reasons: tuple[str, ...]
