from __future__ import annotations

import asyncio
import gc
import inspect
import re
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from rocketapp import ConfigError, Message, RocketApp, Router, SendUnknown, SetupError, TransportError
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.app import AppConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer.watch.slow_calls import BlockedLoop
from rocketapp.errors import ConnectError, ConnectionLostError, TlsError
from rocketapp.hooks.surface import Surface
from rocketapp.model.event import Event, LoopBlocked, LoopFailed
from rocketapp.model.snapshot import HandlerStats
from rocketapp.plugin import PluginError, hookimpl
from tests.unit.app.given import line_of
from tests.unit.app.parts import QUEUE, Diary, NotedClient, container_of, lifecycle_of


def app_of(diary: Diary, **more: Any) -> RocketApp:
    app = RocketApp("shop", container=container_of(diary), **more)

    @app.subscribe("orders")
    def settle(message: Message) -> None: ...

    return app


class Noting:
    """A plugin that takes part in starting and stopping."""

    def __init__(self, diary: Diary, name: str) -> None:
        self.diary, self.name = diary, name

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        self.diary.note(f"plugin {self.name} starts with {app.name}")

    @hookimpl
    def app_shutdown(self) -> None:
        self.diary.note(f"plugin {self.name} stops")


class Other(Noting):
    """The same under another name."""


async def test_everything_starts_in_order_and_stops_in_the_reverse() -> None:
    diary = Diary()
    app = app_of(diary, plugins=[Noting(diary, "one"), Other(diary, "two")], clusters={"eu": "eu:1"})
    router = Router(group="billing", cluster="eu")
    router.subscribe("bills")(lambda message: None)
    app.include(router)
    app.on_startup(lambda: diary.note("first on_startup"))

    @app.lifespan
    async def database(app: RocketApp) -> AsyncIterator[None]:
        diary.note(f"lifespan of {app.name} begins")
        yield
        diary.note("lifespan ends")

    @app.on_startup
    async def warm_up(anything: RocketApp) -> None:
        await anything.publish("orders", "warm")

    app.on_shutdown(lambda: diary.note("first on_shutdown"))
    app.on_shutdown(lambda: diary.note("second on_shutdown"))
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    started, diary.lines = diary.lines, []
    assert sorted(started[:2]) == ["client eu:1 starts", "client h:1 starts"]
    assert started[2:] == [
        "producer shop starts",
        "producer shop starts",
        "consumer shop joins",
        "consumer billing joins",
        "plugin one starts with shop",
        "plugin two starts with shop",
        "first on_startup",
        "lifespan of shop begins",
        "send orders warm to h:1",
        "consumer shop begins",
        "consumer billing begins",
    ]
    assert await lifecycle.stop(asyncio.Event())
    assert diary.lines[:9] == [
        "consumer shop stops",
        "consumer billing stops",
        "second on_shutdown",
        "first on_shutdown",
        "lifespan ends",
        "plugin two stops",
        "plugin one stops",
        "producer shop stops",
        "producer shop stops",
    ]
    assert sorted(diary.lines[9:]) == ["client eu:1 stops", "client h:1 stops"]


async def test_an_app_may_be_started_again() -> None:
    diary = Diary()
    app = app_of(diary)
    for _ in range(2):
        lifecycle = lifecycle_of(app)
        await lifecycle.start()
        await lifecycle.stop(asyncio.Event())
    assert diary.lines.count("consumer shop begins") == 2


async def test_stopping_what_is_not_started_does_nothing() -> None:
    diary = Diary()
    lifecycle = lifecycle_of(app_of(diary))
    assert await lifecycle.stop(asyncio.Event())
    assert diary.lines == []


# Failures on the way.


async def test_a_startup_function_that_raises_names_its_line_and_everything_is_stopped() -> None:
    diary = Diary()
    app = app_of(diary, plugins=[Noting(diary, "one")])

    @app.lifespan
    @asynccontextmanager
    async def database() -> AsyncIterator[None]:
        yield
        diary.note("lifespan ends")

    @app.on_startup
    def broken() -> None:
        raise ValueError("no database")

    app.on_startup(lambda: diary.note("never"))
    app.on_shutdown(lambda: diary.note("never"))
    with pytest.raises(SetupError, match="broken raised ValueError: no database") as caught:
        await lifecycle_of(app).start()
    assert caught.value.place == line_of(broken)
    assert diary.lines == [
        "client h:1 starts",
        "producer shop starts",
        "consumer shop joins",
        "plugin one starts with shop",
        "consumer shop stops",
        "lifespan ends",
        "plugin one stops",
        "producer shop stops",
        "client h:1 stops",
    ]
    assert "not running" in repr(app)


async def test_a_plugin_that_fails_to_start_is_named_and_not_stopped() -> None:
    diary = Diary()
    diary.failing["plugin two starts with shop"] = KeyError("token")
    app = app_of(diary, plugins=[Noting(diary, "one"), Other(diary, "two")])
    with pytest.raises(PluginError, match=r"plugin two: app_startup raised KeyError: 'token'"):
        await lifecycle_of(app).start()
    assert "plugin one stops" in diary.lines
    assert "plugin two stops" not in diary.lines


@pytest.mark.parametrize("line", ["client h:1 starts", "producer shop starts", "consumer shop joins"])
async def test_what_started_before_a_failure_is_stopped(line: str) -> None:
    diary = Diary()
    diary.failing[line] = ConfigError("client.name_server", "bad")
    with pytest.raises(ConfigError):
        await lifecycle_of(app_of(diary)).start()
    begun = [one.removesuffix(" starts").removesuffix(" joins") for one in diary.lines if not one.endswith("stops")]
    ended = [one.removesuffix(" stops") for one in diary.lines if one.endswith("stops")]
    assert ended[::-1] == begun[: len(ended)]
    assert len(ended) >= len(begun) - 1


async def test_a_cancelled_start_is_undone() -> None:
    diary = Diary()
    app = app_of(diary)
    reached = asyncio.Event()

    @app.lifespan
    async def slow() -> AsyncIterator[None]:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            diary.note("slow is over")
        yield

    starting = asyncio.ensure_future(lifecycle_of(app).start())
    await reached.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert diary.lines[-4:] == ["slow is over", "consumer shop stops", "producer shop stops", "client h:1 stops"]


async def test_a_start_or_stop_function_that_exits_the_process_is_told_and_everything_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave() -> None:
        sys.exit("no database")

    diary = Diary()
    app = app_of(diary)
    app.on_startup(leave)
    with pytest.raises(SetupError, match="raised SystemExit: no database"):
        await lifecycle_of(app).start()
    assert diary.lines[-1] == "client h:1 stops"

    app = app_of(diary)
    app.on_shutdown(leave)
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    assert not await lifecycle.stop(asyncio.Event())
    assert "raised SystemExit: no database" in caplog.text


async def test_a_shutdown_function_that_raises_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    diary = Diary()
    app = app_of(diary)
    app.on_shutdown(lambda: diary.note("the others still run"))

    @app.on_shutdown
    def broken() -> None:
        raise ValueError("too late")

    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    assert not await lifecycle.stop(asyncio.Event())
    assert "the others still run" in diary.lines
    assert diary.lines[-1] == "client h:1 stops"
    assert f"{line_of(broken)}: on_shutdown function" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_cut_waits_for_no_handler(caplog: pytest.LogCaptureFixture) -> None:
    diary = Diary()
    app = app_of(diary)
    entered = asyncio.Event()

    @app.on_shutdown
    async def hangs() -> None:
        entered.set()
        await asyncio.Event().wait()

    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    cut = asyncio.Event()
    stopping = asyncio.ensure_future(lifecycle.stop(cut))
    await entered.wait()
    cut.set()
    assert not await stopping
    assert diary.lines[-1] == "client h:1 stops"
    assert f"{line_of(hangs)}: cut off" in caplog.text


async def test_a_shutdown_function_gets_the_drain_s_time_and_no_more() -> None:
    app = app_of(Diary())
    app.on_shutdown(asyncio.Event().wait)
    settings = Settings(client=ClientConfig(name_server="h:1"), app=AppConfig(drain_timeout=0.02))
    lifecycle = lifecycle_of(app, settings=settings)
    await lifecycle.start()
    assert not await lifecycle.stop(asyncio.Event())


# Reaching the cluster.


async def test_a_cluster_that_comes_up_late_is_waited_for() -> None:
    diary = Diary()
    diary.unreachable = 2
    lifecycle = lifecycle_of(app_of(diary))
    await lifecycle.start()
    assert diary.unreachable == 0
    await lifecycle.stop(asyncio.Event())


async def test_a_cluster_that_is_not_reached_in_time_is_a_transport_error() -> None:
    diary = Diary()
    diary.unreachable = 1000
    settings = Settings(client=ClientConfig(name_server="h:1"), app=AppConfig(connect_timeout=0.2))
    with pytest.raises(TransportError, match=r"h:1: not reached within 0.2 s .*connection refused"):
        await lifecycle_of(app_of(diary), settings=settings).start()


@pytest.mark.parametrize(("kind", "is_there"), [(ConnectError, False), (TlsError, True), (ConnectionLostError, True)])
@pytest.mark.parametrize("addresses", ["h:1", "h:1;h:2"])
async def test_only_a_server_that_is_not_there_is_to_be_started(
    kind: type[TransportError], is_there: bool, addresses: str
) -> None:
    async def dial(address: str, *_: Any) -> Any:
        raise kind(address, cause)

    cause = "as the test wants it"
    settings = Settings(client=ClientConfig(name_server=addresses), app=AppConfig(connect_timeout=0.2))
    lifecycle = Lifecycle(RocketApp("shop"), settings, Runtime(dial=dial, clock=SystemClock(), random=Random(1)))
    with pytest.raises(TransportError) as caught:
        await lifecycle.start()
    assert cause in caught.value.problem
    assert ("start the name server" in caught.value.problem) is not is_there


def test_nothing_is_left_of_a_start_when_it_has_ended() -> None:
    async def started() -> weakref.ref[asyncio.AbstractEventLoop]:
        lifecycle = lifecycle_of(app_of(Diary()))
        await lifecycle.start()
        await lifecycle.stop(asyncio.Event())
        return weakref.ref(lifecycle.loop)

    loops = [asyncio.run(started()) for _ in range(3)]
    gc.collect()
    # The last one may be remembered by others, as by an error that is shown.
    assert [loop() for loop in loops[:2]] == [None, None]


async def test_a_silent_address_server_holds_the_start_up_no_longer_than_a_silent_cluster() -> None:
    url = "http://conf.example/rocketmq/nsaddr"

    async def silent(asked: str, timeout: float) -> str:
        return await asyncio.get_running_loop().create_future()

    settings = Settings(client=ClientConfig(name_server=url), app=AppConfig(connect_timeout=0.2))
    lifecycle = lifecycle_of(RocketApp("shop"), settings=settings, read_url=silent)
    with pytest.raises(TransportError, match=rf"{url}: not reached within 0.2 s \(app.connect_timeout\)"):
        await lifecycle.start()


async def test_a_start_that_waits_for_its_cluster_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rocketapp.app.run.lifecycle.QUIET", 0.05)
    diary = Diary()
    diary.unreachable = 3
    lifecycle = lifecycle_of(app_of(diary))
    await lifecycle.start()
    await lifecycle.stop(asyncio.Event())
    told = [record.getMessage() for record in caplog.records if "not reached" in record.getMessage()]
    assert len(told) == 1
    assert re.fullmatch(r"cluster not reached: .*: tried for up to 60 s \(app.connect_timeout\)", told[0])


async def test_a_client_has_the_address_that_its_machine_has_when_the_cluster_is_reached() -> None:
    diary, addresses = Diary(), iter(["127.0.0.1", "10.0.0.7"])
    diary.unreachable = 1

    class Addressed(NotedClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(diary, **options)
            self.client_id = next(addresses)

    lifecycle = lifecycle_of(RocketApp("shop", container=container_of(diary)), client=Addressed)
    await lifecycle.start()
    assert lifecycle.snapshot().client_ids == {"": "10.0.0.7"}
    assert diary.lines[:2] == ["client h:1 stops", "client h:1 starts"]
    await lifecycle.stop(asyncio.Event())


async def test_a_client_whose_start_is_broken_off_is_stopped() -> None:
    diary = Diary()
    diary.failing["client h:1 starts"] = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await lifecycle_of(app_of(diary)).start()
    assert diary.lines[-2:] == ["client h:1 starts", "client h:1 stops"]


async def test_without_a_name_server_the_unnamed_cluster_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match=r"client.name_server: is not set"):
        await lifecycle_of(app_of(Diary()), settings=Settings()).start()


async def test_an_app_of_named_clusters_needs_no_unnamed_one() -> None:
    diary = Diary()
    app = RocketApp("shop", clusters={"eu": "eu:1"}, container=container_of(diary))
    app.subscribe("orders", cluster="eu")(lambda message: None)
    lifecycle = lifecycle_of(app, settings=Settings())
    await lifecycle.start()
    await app.publish("orders", "x", cluster="eu")
    assert "send orders x to eu:1" in diary.lines
    with pytest.raises(SetupError, match="the unnamed cluster has no name server"):
        await app.publish("orders", "x")
    with pytest.raises(SetupError, match=r"cluster='us' is unknown.*names eu"):
        await app.publish("orders", "x", cluster="us")
    await lifecycle.stop(asyncio.Event())


# Two phases.


async def test_nothing_is_declared_while_the_app_runs() -> None:
    app = app_of(Diary())
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    late: list[Callable[[], object]] = [
        lambda: app.subscribe("late")(lambda message: None),
        lambda: app.include(Router()),
        lambda: app.on_startup(lambda: None),
        lambda: app.on_shutdown(lambda: None),
        lambda: app.lifespan(lambda: None),
    ]
    for declare in late:
        with pytest.raises(SetupError, match="had started: declare everything before it runs") as caught:
            declare()
        assert caught.value.place == line_of(declare)
    with pytest.raises(SetupError, match="is running already"):
        await lifecycle_of(app).start()
    await lifecycle.stop(asyncio.Event())


async def test_a_router_included_before_the_start_cannot_grow_after_it() -> None:
    app, router = app_of(Diary()), Router()
    app.include(router)
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    with pytest.raises(SetupError, match="had started"):
        router.subscribe("late")(lambda message: None)
    await lifecycle.stop(asyncio.Event())


# Publishing.


async def test_publish_sync_works_from_threads_and_refuses_the_loop() -> None:
    diary = Diary()
    app = app_of(diary)

    @app.on_startup
    def in_a_thread() -> None:
        assert threading.current_thread() is not threading.main_thread()
        app.publish_sync("orders", "from on_startup")

    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    assert "send orders from on_startup to h:1" in diary.lines
    result = await asyncio.to_thread(app.publish_sync, "orders", "from a thread")
    assert result.queue_offset == 1
    with pytest.raises(SetupError, match="use `await` with `publish` here") as caught:
        app.publish_sync("orders", "x")
    assert caught.value.place == f"{__file__}:{inspect.currentframe().f_lineno - 1}"  # type: ignore[union-attr]
    await lifecycle.stop(asyncio.Event())


async def test_a_keyword_that_publishing_does_not_take_is_refused_with_those_it_takes() -> None:
    app: Any = app_of(Diary())
    all_of_them = "tag, keys, properties, order_key, queue, delay, rounding, recallable, content_type, cluster"
    with pytest.raises(TypeError, match=rf"publish\(\) takes no keyword 'tags': it takes {all_of_them}, timeout$"):
        await app.publish("orders", "x", tags="paid")
    with pytest.raises(TypeError, match=rf"publish\(\) takes no keyword 'tags': it takes {all_of_them}, timeout$"):
        app.publish_sync("orders", "x", tags="paid")
    for call in (app.publish_many, app.publish_one_way):
        with pytest.raises(TypeError, match=rf"takes no keyword 'timeout': it takes {all_of_them}$"):
            await call("orders", "x", timeout=1)


async def test_publish_sync_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp.app.publishing._ANSWER_GRACE", 0.01)
    app = app_of(Diary())
    settings = Settings(client=ClientConfig(name_server="h:1"), producer=ProducerConfig(send_timeout=0.05))
    lifecycle = lifecycle_of(app, settings=settings)
    await lifecycle.start()

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(lifecycle.producer(""), "send", never)
    with pytest.raises(SendUnknown, match="did not answer within"):
        await asyncio.to_thread(app.publish_sync, "orders", "x")
    await lifecycle.stop(asyncio.Event())


async def test_publishing_without_a_running_app_says_where_it_is_possible() -> None:
    app = app_of(Diary())
    with pytest.raises(SetupError, match="is not running: publish from handlers"):
        await app.publish("orders", "x")
    with pytest.raises(SetupError, match="is not running"):
        app.publish_sync("orders", "x")


# What others see.


async def test_counters_and_idleness_are_those_of_all_consumers() -> None:
    app = app_of(Diary())
    app.subscribe("orders", group="billing")(lambda message: None)
    lifecycle = lifecycle_of(app, expected_members=3)
    await lifecycle.start()
    assert lifecycle.counters == HandlerStats(handled=4, retried=2, dead_lettered=2, unmatched=6)
    idle = await lifecycle.idle()
    assert idle.owned == frozenset()
    assert idle.wanted == {f"shop {QUEUE}", f"billing {QUEUE}"}
    assert idle.reasons == ("shop is busy", "billing is busy")
    await lifecycle.stop(asyncio.Event())


async def test_plugins_are_set_up_at_every_run_before_they_are_asked_for_anything_else() -> None:
    asked: list[str] = []

    class Limits:
        @hookimpl
        def app_setup(self, app: Surface) -> None:
            asked.append(f"set up for {app.options(AppConfig).group}")
            app.observe(LoopFailed("limits", "nobody hears it yet"))

        @hookimpl
        def observe_events(self) -> None:
            asked.append("observers")

        @hookimpl
        def handler_wrapper(self) -> None:
            asked.append("wrapper")

        @hookimpl
        def app_startup(self) -> None:
            asked.append("start")

    app = app_of(Diary(), plugins=[Limits()])
    settings = Settings(client=ClientConfig(name_server="h:1"), app=AppConfig(group="billing"))
    for _ in range(2):
        lifecycle = lifecycle_of(app, settings=settings)
        await lifecycle.start()
        await lifecycle.stop(asyncio.Event())
    assert asked == ["set up for billing", "observers", "wrapper", "start"] * 2


async def test_a_plugin_that_cannot_be_set_up_stops_the_start() -> None:
    class Broken:
        @hookimpl
        def app_setup(self) -> None:
            raise KeyError("limit")

    with pytest.raises(PluginError, match=r"Broken: app_setup raised KeyError: 'limit'"):
        await lifecycle_of(app_of(Diary(), plugins=[Broken()])).start()


async def test_plugins_see_the_app_and_its_events_and_cannot_disturb_it(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    surfaces: list[Any] = []
    ticked = asyncio.Event()

    class Watching:
        @hookimpl
        def observe_events(self, app: Surface) -> Any:
            surfaces.append(app)
            seen.extend([app.name, app.version, len(app.subscriptions), app.options(AppConfig).group])
            app.every(0.01, ticked.set)
            app.every(0.001, lambda: print(1 / 0))
            return seen.append

    class Raising:
        @hookimpl
        def observe_events(self) -> Any:
            return lambda event: 1 / 0

    app = app_of(Diary(), plugins=[Raising(), Watching()], version="1.2")
    settings = Settings(client=ClientConfig(name_server="h:1"), app=AppConfig(version="1.2", group="from-settings"))
    lifecycle = lifecycle_of(app, settings=settings)
    await lifecycle.start()
    event = LoopFailed("routes", "refused")
    surfaces[0].observe(event)
    assert seen == ["shop", "1.2", 1, "from-settings", event]
    surfaces[0].observe(event)
    (line,) = [record for record in caplog.records if "Raising" in record.getMessage()]
    assert re.match(
        r"test_lifecycle\.py:\d+: plugin \S*Raising failed at the event LoopFailed: ZeroDivisionError: ",
        line.getMessage(),
    )
    assert line.exc_info is None
    await asyncio.wait_for(ticked.wait(), 10)
    ticked.clear()
    await lifecycle.stop(asyncio.Event())
    assert ticked.is_set(), "each periodic call comes a last time at the end"
    assert caplog.text.count("a plugin failed at a periodic call: ZeroDivisionError") == 1


@pytest.mark.parametrize("when", ["startup", "shutdown"])
async def test_what_blocks_the_loop_before_and_after_consumers_is_named(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, is_named = list[LoopBlocked](), threading.Event()

    def observe(event: Event) -> None:
        if isinstance(event, LoopBlocked) and event.place == f"test_lifecycle.py:{block.__code__.co_firstlineno + 2}":
            told.append(event)
            is_named.set()

    class Watching:
        @hookimpl
        def observe_events(self, app: Surface) -> Callable[[Event], None]:
            return observe

    monkeypatch.setattr("rocketapp.app.run.wiring.BlockedLoop", partial(BlockedLoop, after=0.1))
    app = RocketApp("shop", container=container_of(Diary()), plugins=[Watching()])

    async def block() -> None:
        while not is_named.is_set():
            is_named.wait(1.0)
            await asyncio.sleep(0.05)  # the loop ticks: a busy machine may have kept it from that before

    (app.on_startup if when == "startup" else app.on_shutdown)(block)
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    await lifecycle.stop(asyncio.Event())
    assert not told[0].is_over
