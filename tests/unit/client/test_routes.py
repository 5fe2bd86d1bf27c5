"""Routes stay fresh whatever else is stuck."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rocketapp.client.name_servers import NameServers
from rocketapp.client.routes import AT_ONCE, RouteTable
from rocketapp.errors import TransportError
from rocketapp.model.event import LoopFailed
from rocketapp.model.route import TopicRoute
from rocketapp.state.route_cache import RouteCache
from rocketapp.transport.pool import Pool
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import RouteRequest
from tests.unit.scripted import Cluster, Events, eventually, in_virtual_time, outcome


class Fixture:
    """A route table that polls a scripted cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.events, self.changes = cluster, Events(), 0
        pool = Pool(dial=cluster.network.dial, dial_timeout=3.0, max_frame_bytes=1 << 20, random=Random(0))
        servers = NameServers([cluster.name_server.address], pool=pool, timeout=3.0, random=Random(0))
        self.table = RouteTable(servers, RouteCache(30.0), changed=self._changed, observe=self.events, random=Random(0))
        self.loop = asyncio.ensure_future(self.table.run())

    def _changed(self) -> None:
        self.changes += 1

    async def end(self) -> None:
        self.loop.cancel()
        await asyncio.wait([self.loop])

    def times_asked(self, topic: str) -> int:
        return self.cluster.name_server.topics_asked().count(topic)


@in_virtual_time
async def test_a_watched_topic_is_asked_for_every_30_seconds_and_changes_are_told() -> None:
    cluster = await Cluster().start()
    cluster.add_topic("t")
    fixture = Fixture(cluster)
    fixture.table.watch("t")
    await eventually(lambda: fixture.table.get("t") is not None)
    await asyncio.sleep(91)
    assert (fixture.times_asked("t"), fixture.changes) == (4, 1)
    cluster.add_topic("t", queues=8)
    await asyncio.sleep(30)
    assert fixture.changes == 2
    route = fixture.table.get("t")
    assert route is not None
    assert len(route.readable_queues("t")) == 8
    fixture.table.unwatch("t")
    await asyncio.sleep(120)
    assert fixture.times_asked("t") == 5
    await fixture.end()


@in_virtual_time
async def test_a_topic_that_appears_is_found_within_seconds_and_after_a_hint_at_once() -> None:
    loop = asyncio.get_running_loop()
    cluster = await Cluster().start()
    fixture = Fixture(cluster)
    fixture.table.watch("t")
    fixture.table.watch("u")
    await asyncio.sleep(100)
    cluster.add_topic("t")
    fixture.table.refresh_soon("t")
    await eventually(lambda: fixture.table.get("t") is not None)
    assert loop.time() < 100.1
    fixture.table.refresh_soon("u")
    await asyncio.sleep(0.25)
    cluster.add_topic("u")
    await eventually(lambda: fixture.table.get("u") is not None)
    assert loop.time() < 101.0
    await fixture.end()


@in_virtual_time
async def test_fetch_asks_now_and_tells_missing_from_unreachable() -> None:
    cluster = await Cluster().start()
    cluster.add_topic("t")
    fixture = Fixture(cluster)
    assert await fixture.table.fetch("nope") is None
    assert await fixture.table.fetch("t") == fixture.table.get("t") == cluster.route()
    assert fixture.changes == 1
    await cluster.name_server.stop()
    assert isinstance(await outcome(fixture.table.fetch("t")), TransportError)
    assert fixture.table.get("t") == cluster.route()
    await fixture.end()


@in_virtual_time
async def test_an_outage_of_the_name_server_is_told_and_outlived() -> None:
    cluster = await Cluster().start()
    fixture = Fixture(cluster)
    await cluster.name_server.stop()
    fixture.table.watch("t")
    await asyncio.sleep(3600)
    failures = fixture.events.of(LoopFailed)
    assert 300 < len(failures) < 1000
    cluster.add_topic("t")
    await cluster.name_server.start()
    start = asyncio.get_running_loop().time()
    await eventually(lambda: fixture.table.get("t") is not None, seconds=20)
    assert asyncio.get_running_loop().time() - start < 11
    await fixture.end()


@in_virtual_time
async def test_one_topic_that_cannot_be_read_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await Cluster().start()
    cluster.add_topic("good")
    route = cluster.name_server.answers[105]

    def answer(command):  # type: ignore[no-untyped-def]
        response = route(command)
        if response is not None and (command.fields or {}).get("topic") == "bad":
            response.code, response.body = 0, b"{nonsense"
        return response

    cluster.name_server.answers[105] = answer
    fixture = Fixture(cluster)
    fixture.table.watch("bad")
    fixture.table.watch("good")
    await eventually(lambda: fixture.table.get("good") is not None)
    await eventually(lambda: bool(fixture.events))
    cluster.add_topic("good", queues=8)
    await asyncio.sleep(60)
    assert fixture.changes == 2
    await fixture.end()


@in_virtual_time
async def test_a_thousand_topics_are_asked_for_in_portions() -> None:
    cluster = await Cluster().start()
    for number in range(1000):
        cluster.add_topic(f"t-{number}")
    answer = cluster.name_server.answers.pop(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    fixture = Fixture(cluster)
    for number in range(1000):
        fixture.table.watch(f"t-{number}")
    fetching = [asyncio.ensure_future(fixture.table.fetch(f"t-{number}")) for number in range(500)]
    await asyncio.sleep(1)
    assert len(cluster.name_server.asked) == AT_ONCE
    cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
    await eventually(lambda: all(fixture.table.get(f"t-{number}") is not None for number in range(1000)))
    assert all(
        isinstance(found, TransportError | TopicRoute) for found in await asyncio.gather(*map(outcome, fetching))
    )
    await fixture.end()


@pytest.mark.parametrize(("bad", "seconds"), [(1, 1), (AT_ONCE, 60)])
def test_topics_whose_routes_cannot_be_read_hold_up_no_other(bad: int, seconds: float) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = await Cluster().start()
        names = [f"t-{number:03}" for number in range(bad + AT_ONCE)]
        for name in names[bad:]:
            cluster.add_topic(name)
        known = cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

        def answer(command: Command) -> Command | None:
            is_bad = RouteRequest.from_fields(command.fields).topic in names[:bad]
            return Command.response(command, ResponseCode.SUCCESS, body=b"{") if is_bad else known(command)

        cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = answer
        fixture = Fixture(cluster)
        for name in names:
            fixture.table.watch(name)
        await eventually(lambda: all(fixture.table.get(name) is not None for name in names[bad:]), seconds)
        assert all(fixture.table.get(name) is None for name in names[:bad])
        await fixture.end()

    story()
