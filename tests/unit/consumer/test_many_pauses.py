"""A pause costs its own topic, however many topics a group has."""

from __future__ import annotations

from time import process_time

from rocketapp.consumer.blocked import BlockedQueues
from rocketapp.consumer.pull.flow import Gate
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.pauses import EVERY, Pauses
from tests.unit.cpu import cheapest
from tests.unit.scripted import Events, in_virtual_time

TOPICS = tuple(f"topic-{number}" for number in range(1000))


class Room:
    """Limits that are never reached."""

    def look_again(self) -> None: ...


@in_virtual_time
async def test_a_pause_of_one_topic_takes_a_millisecond_and_of_a_thousand_fifty() -> None:
    pauses, blocked = Pauses(), BlockedQueues("group", Events())
    for name, topics in [*((topic, (topic,)) for topic in TOPICS), (EVERY, TOPICS)]:
        for number in range(4):
            queue = MessageQueue(name or "%RETRY%group", "broker-a", number)
            gate = Gate(queue, Room(), blocked)  # type: ignore[arg-type]
            pauses.watch(name, lambda gate=gate, topics=topics: gate.follow(pauses, topics))  # type: ignore[misc]

    def change(*topics: str) -> float:
        began = process_time()
        for topic in topics:
            pauses.pause(topic, "test")
        for topic in topics:
            pauses.resume(topic, "test")
        return (process_time() - began) / 2

    assert cheapest(lambda: change(TOPICS[500]), within=0.001) < 0.001
    assert cheapest(lambda: change(*TOPICS), within=0.05) < 0.05
