"""What follows a topic begins where it was told to, whatever happens at the first look."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.app.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.scripts.following import Following
from rocketapp.scripts.reading import wanted_of
from rocketapp.wire.codes import RequestCode
from tests.unit.scripted import Cluster, Events, eventually, in_virtual_time, refuse


@in_virtual_time
async def test_a_first_look_that_fails_does_not_move_the_begin() -> None:
    cluster, said = await Cluster().start(), list[str]()
    client = ClientInstance(
        config=ClientConfig(name_server=cluster.name_server.address),
        dial=cluster.network.dial,
        clock=SystemClock(),
        random=Random(0),
        observe=Events(),
    )
    await client.start()
    tell = cluster.name_server.answers.pop(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(1, "starting")
    cluster.add_topic("t", queues=1)
    cluster.brokers[0].answers[RequestCode.GET_MIN_OFFSET] = refuse(1)
    cluster.brokers[0].answers[RequestCode.GET_MAX_OFFSET] = refuse(1)
    wanted = wanted_of("t", {}, "here")
    following = Following(client, Settings(), wanted, observe=Events(), say=said.append)
    await following.start()
    await asyncio.sleep(5)
    assert len(said) == 1 and "starting: trying again" in said[0]
    cluster.name_server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = tell
    broker = cluster.brokers[0]
    await eventually(lambda: RequestCode.GET_MAX_OFFSET in broker.codes())
    assert RequestCode.GET_MIN_OFFSET not in broker.codes()
    await following.stop()
    await client.stop()
