"""Which queue a message goes to: by its key, by name, or chosen by a function."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rocketapp import Client, MessageQueue, SendResult
from tests.conftest import on_apache
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient

KEYS = [
    "",
    "1",
    "key",
    "polygenelubricants",
    "Ünïcödé",
    "鍵",
    "x" * 300,
    *(f"customer-{number}" for number in range(40)),
]
"""The hash of the fourth one is Java's least Integer, which has no absolute value."""


@on_apache
def test_keys_go_to_the_queues_of_javas_selector(cluster: Cluster, java: JavaClient, topic: str) -> None:
    java.create_topic(topic, 7)
    theirs = [sent["queue"] for sent in java.send(topic, *({"text": "java", "order_key": key} for key in KEYS))]

    async def ours() -> list[SendResult]:
        async with Client(cluster.name_server) as client:
            return [await client.publish(topic, "ours", order_key=key) for key in KEYS]

    assert [result.queue.queue_id for result in asyncio.run(ours())] == theirs
    assert len(set(theirs)) == 7


@on_apache
def test_a_queue_is_named_or_chosen_by_a_function(cluster: Cluster, java: JavaClient, topic: str) -> None:
    java.create_topic(topic, 4)
    given: list[int] = []

    def third(queues: Sequence[MessageQueue]) -> MessageQueue:
        given.extend(queue.queue_id for queue in queues)
        return queues[2]

    async def story() -> None:
        async with Client(cluster.name_server) as client:
            first = await client.publish(topic, "0", queue=third)
            await asyncio.gather(*(client.publish(topic, str(number), queue=first.queue) for number in range(1, 9)))
            await client.publish_many(topic, ["9"], queue=third)

    asyncio.run(story())
    assert given == [0, 1, 2, 3] * 2
    assert sorted((one["queue"], int(one["body"])) for one in java.read(topic, least=10)) == [
        (2, number) for number in range(10)
    ]
