"""A plugin's offset store is opened before the first queue is taken, and closed after the last commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from rocketapp import ConfigError, Message, MessageQueue, RocketApp, SetupError
from rocketapp.app.run.extensions import offset_store_of
from rocketapp.app.settings import Settings
from rocketapp.hooks.manager import Plugins
from rocketapp.plugin import PluginError, Surface, Taken, hookimpl
from rocketapp.testing import TestApp
from tests.unit.app.parts import lifecycle_of


class Noted:
    """A store that writes down what is asked of it."""

    def __init__(self, *, broken: bool = False) -> None:
        self.calls: list[str] = []
        self.offsets: dict[MessageQueue, int] = {}
        self._broken = broken

    async def open(self) -> None:
        self.calls.append("open")
        if self._broken:
            raise OSError("no such host")

    async def close(self) -> None:
        self.calls.append("close")

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        self.calls.append("take")
        return Taken(1, self.offsets.get(queue))

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        self.calls.append("read")
        return self.offsets.get(queue)

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        self.calls.append("write")
        self.offsets[queue] = offset
        return True


class Keeps:
    def __init__(self, store: Any) -> None:
        self._store = store

    @hookimpl
    def offset_store(self) -> Any:
        return self._store


def shop(store: Noted, clusters: Mapping[str, str] | None = None) -> RocketApp:
    app = RocketApp("shop", plugins=[Keeps(store)], clusters=clusters or {})

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    return app


def test_an_app_with_a_store_keeps_its_offsets_there() -> None:
    store = Noted()
    with TestApp(shop(store)) as t:
        t.publish("orders", b"1")
        t.publish("orders", b"2")
        t.settle()
    assert (store.calls[0], store.calls[-1], store.calls.count("open")) == ("open", "close", 1)
    assert sum(offset for queue, offset in store.offsets.items() if queue.topic == "orders") == 2


def test_a_store_that_does_not_open_stops_the_start_and_is_closed() -> None:
    store = Noted(broken=True)
    with pytest.raises(SetupError, match="the offset store did not open: OSError: no such host"), TestApp(shop(store)):
        pass
    assert store.calls == ["open", "close"]


async def test_a_store_that_was_not_opened_is_not_closed() -> None:
    store = Noted()
    with pytest.raises(ConfigError, match=r"client\.name_server: is not set"):
        await lifecycle_of(shop(store), settings=Settings()).start()
    assert store.calls == []


def test_a_store_whose_close_is_no_coroutine_is_logged_and_the_rest_of_the_stop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Plain(Noted):
        def close(self) -> None:  # type: ignore[override]
            self.calls.append("close")

    store = Plain()
    app = shop(store)
    for _ in range(2):
        with TestApp(app):
            pass
    assert store.calls.count("close") == 2
    assert "the offset store did not close" in caplog.text


def test_a_store_that_cannot_tell_two_clusters_apart_refuses_the_start() -> None:
    store = Noted()
    app = shop(store, {"eu": "eu.example:9876"})

    @app.subscribe("orders", cluster="eu")
    async def copy(message: Message) -> None: ...

    problem = "keeps the offsets of one cluster, and handlers subscribe on (the unnamed one, eu|eu, the unnamed one)"
    with pytest.raises(SetupError, match=problem), TestApp(app):
        pass
    assert store.calls == []


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (
            ["here"],
            "offset_store returned 'here': return an OffsetStore, this has no open, close, take, read, write",
        ),
        ([Noted(), Noted()], "plugin plugin1: offset_store: plugin plugin0 keeps the offsets already"),
    ],
)
def test_a_wrong_answer_names_its_plugin(answers: list[Any], problem: str) -> None:
    plugins = Plugins()
    for number, answer in enumerate(answers):
        plugins.register(Keeps(answer), f"plugin{number}")
    with pytest.raises(PluginError, match=problem):
        offset_store_of(plugins, cast(Surface, None))
