"""`async with app:` against an embedded broker on a loopback port."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from rocketapp import ConfigError, Message, RocketApp, SetupError, Topic, TransportError
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.embedded.running import write_running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    for name in [name for name in os.environ if name.startswith("ROCKETAPP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Where a broker serves."""
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="127.0.0.1:0"),
        memory=True,
        clock=SystemClock(),
        random=Random(1),
        observe=lambda _: None,
    )
    yield await broker.start()
    await broker.stop()


def app_at(address: str, name: str = "shop", **app: float) -> RocketApp:
    return RocketApp(name, settings={"client": {"name_server": address}, "app": app})


async def test_a_script_publishes_and_its_handlers_consume(address: str) -> None:
    app, handled = app_at(address), asyncio.Event()

    @app.subscribe("orders", start="first")
    async def settle(message: Message) -> None:
        assert message.text() == "1"
        handled.set()

    async with app as entered:
        assert entered is app
        await app.publish("orders", "1")
        await handled.wait()
    with pytest.raises(SetupError, match=r"is not running: publish .* inside `async with app:`"):
        await app.publish("orders", "2")


async def test_leaving_waits_for_the_handlers(address: str) -> None:
    app, running, may_end, done = app_at(address), asyncio.Event(), asyncio.Event(), list[str]()

    @app.subscribe("orders", start="first")
    async def settle(message: Message) -> None:
        running.set()
        await may_end.wait()
        done.append(message.text())

    async with app:
        await app.publish("orders", "1")
        await running.wait()
        asyncio.get_running_loop().call_soon(may_end.set)
    assert done == ["1"]


async def test_cancelling_the_drain_cuts_it_and_leaves_nothing_running(address: str) -> None:
    app, running, tasks = app_at(address), asyncio.Event(), asyncio.all_tasks()

    @app.subscribe("orders", start="first")
    async def settle(message: Message) -> None:
        running.set()
        await asyncio.Event().wait()

    async def script() -> None:
        async with app:
            await app.publish("orders", "1")
            await running.wait()
            asyncio.get_running_loop().call_soon(scripts.cancel)

    scripts = asyncio.ensure_future(script())
    with pytest.raises(asyncio.CancelledError):
        await scripts
    assert asyncio.all_tasks() == tasks
    assert repr(app).endswith("not running>")


async def test_an_error_in_the_block_stops_the_app_and_goes_on(address: str) -> None:
    app, tasks = app_at(address), asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        async with app:
            raise ZeroDivisionError
    assert asyncio.all_tasks() == tasks
    async with app:  # and the app may run again
        await app.publish("orders", "1")


async def test_an_app_that_runs_cannot_be_entered_again(address: str) -> None:
    app = app_at(address)
    async with app:
        with pytest.raises(SetupError, match="is running already"):
            async with app:
                raise AssertionError("not reached")
        await app.publish("orders", "1")


async def test_two_apps_in_one_loop_consume_side_by_side(address: str) -> None:
    both = {name: asyncio.Event() for name in ("shop", "billing")}
    shop, billing = (app_at(address, name) for name in both)
    for app in (shop, billing):

        @app.subscribe("orders", start="first")
        async def settle(message: Message, name: str = app.name) -> None:
            both[name].set()

    async with shop, billing:
        await billing.publish("orders", "1")
        await asyncio.gather(*(event.wait() for event in both.values()))
    assert all(event.is_set() for event in both.values())


async def test_a_thread_runs_an_app_in_a_loop_of_its_own(address: str) -> None:
    handled = list[str]()

    async def script(name: str) -> None:
        app, done = app_at(address, name), asyncio.Event()

        @app.subscribe(f"{name}-orders", start="first")
        def settle(message: Message) -> None:
            handled.append(name)
            app.publish_sync(f"{name}-stock", "1")

        @app.subscribe(f"{name}-stock", start="first")
        async def move(message: Message) -> None:
            done.set()

        async with app:
            await app.publish(f"{name}-orders", "1")
            await asyncio.wait_for(done.wait(), 60)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, script(name)) for name in ("one", "other")))
    assert sorted(handled) == ["one", "other"]


async def test_settings_are_those_of_this_folder_and_of_the_environment(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "settings.toml").write_text(f'[client]\nname_server = "{address}"\n')
    app = RocketApp("shop")
    async with app:
        await app.publish("orders", "1")
    monkeypatch.setenv("ROCKETAPP_PRODUCER__NO_SUCH_KEY", "1")
    with pytest.raises(ConfigError, match=r"unknown key producer\.no_such_key"):
        await app.__aenter__()


async def test_without_a_name_server_the_embedded_broker_of_this_folder_is_used(address: str, folder: Path) -> None:
    (folder / ".rocketapp").mkdir()
    write_running(folder / ".rocketapp", address)
    app = RocketApp("shop")
    async with app:
        assert (await app.publish("orders", "1")).queue.topic == "orders"


async def test_without_any_broker_the_error_says_what_to_start() -> None:
    with pytest.raises(ConfigError, match=r"client.name_server: is not set, and no .* start `rocketapp broker` in"):
        await RocketApp("shop").__aenter__()


async def test_a_cluster_of_another_environment_is_not_mistaken_for_none(address: str, folder: Path) -> None:
    (folder / ".rocketapp").mkdir()
    write_running(folder / ".rocketapp", address)
    (folder / "settings.toml").write_text('[production.client]\nname_server = "10.0.0.1:9876"\n')
    with pytest.raises(ConfigError, match=r"not set for environment .*, but there is one in .*production"):
        await RocketApp("shop").__aenter__()


async def test_an_app_of_named_clusters_needs_no_other(address: str) -> None:
    app = RocketApp("shop", clusters={"eu": address})
    async with app:
        assert (await app.publish("orders", "1", cluster="eu")).queue.topic == "orders"


async def test_a_cluster_that_is_not_there_leaves_nothing_running() -> None:
    tasks = asyncio.all_tasks()
    app = app_at("127.0.0.1:1", connect_timeout=0.2)
    with pytest.raises(TransportError, match="not reached within"):
        await app.__aenter__()
    assert asyncio.all_tasks() == tasks
    assert repr(app).endswith("not running>")


async def test_a_topic_publisher_and_a_handler_of_one_topic_agree(address: str) -> None:
    class Order(msgspec.Struct):
        id: str

    app, orders, handled = app_at(address), Topic("orders", Order), list[str]()
    done = asyncio.Event()

    @app.subscribe(orders, start="first")
    async def settle(order: Order) -> None:
        handled.append(order.id)
        if len(handled) == 4:
            done.set()

    publisher = app.publisher(orders)
    async with app:
        await publisher.publish(Order("1"), keys=["1"])
        await publisher.publish_many([Order("2")])
        await publisher.publish_one_way(Order("3"))
        await asyncio.to_thread(publisher.publish_sync, Order("4"))
        await done.wait()
    assert sorted(handled) == ["1", "2", "3", "4"]


def elsewhere(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The same in a loop and a thread of its own."""
    return asyncio.to_thread(lambda: asyncio.run(work()))


async def test_another_loop_cannot_publish_with_it_nor_leave_it(address: str) -> None:
    app = app_at(address)
    async with app:
        for work in (
            lambda: app.publish("orders", "1"),
            lambda: app.publish_many("orders", ["1"]),
            lambda: app.publish_one_way("orders", "1"),
        ):
            with pytest.raises(SetupError, match="runs in another event loop: publish there, or with publish_sync"):
                await elsewhere(work)
        await elsewhere(lambda: asyncio.to_thread(app.publish_sync, "orders", "2"))


async def test_leaving_in_another_loop_is_refused(address: str) -> None:
    app = app_at(address)
    await app.__aenter__()
    with pytest.raises(SetupError, match="entered in another event loop: leave it there"):
        await elsewhere(app.__aexit__)
    await app.__aexit__()
    assert repr(app).endswith("not running>")


ABANDONED = """
import asyncio, logging, sys, threading
from rocketapp import RocketApp, SetupError

logging.basicConfig(level=logging.ERROR, stream=sys.stdout, format="%(message)s")
app = RocketApp("shop", settings={"client": {"name_server": sys.argv[1]}})
app.subscribe("orders")(lambda message: None)
asyncio.run(app.__aenter__())
for watch in [thread for thread in threading.enumerate() if thread.name == "blocked loop"]:
    watch.join(10)
    print("watch ended:", not watch.is_alive())
print(app)
try:
    app.publish_sync("orders", "1")
except SetupError as error:
    print(error)

async def again():
    async with app:
        await app.publish("orders", "1")
    print("published")

asyncio.run(again())
asyncio.run(app.__aenter__())
asyncio.run(app.__aexit__())
"""


async def test_an_app_whose_loop_was_closed_can_be_run_again(address: str) -> None:
    # In a process of its own: sockets of a closed loop complain whenever they are collected.
    arguments = [sys.executable, "-W", "ignore", "-c", ABANDONED, address]
    ended = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    watch, app, publishing, published, leaving = ended.stdout.splitlines()
    assert watch == "watch ended: True"
    assert app == "<RocketApp shop: 1 subscriptions, not running>"
    assert "app 'shop' is not running" in publishing
    assert published == "published"
    assert "was closed before the app was left" in leaving
