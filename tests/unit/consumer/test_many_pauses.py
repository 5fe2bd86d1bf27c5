"""A pause costs its own topic, however many topics a group has."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from tests.unit.consumer.members import member_alone
from tests.unit.cpu import cheapest
from tests.unit.scripted import in_virtual_time

TOPICS = tuple(f"topic-{number}" for number in range(1000))


@in_virtual_time
async def test_a_pause_of_one_topic_takes_a_millisecond_and_of_a_thousand_fifty() -> None:
    member, control = member_alone(), FlowControl(1 << 30)
    member.topics = tuple(replace(member.topics[0], topic=topic) for topic in TOPICS)
    pauses, limits = member.pauses, QueueLimits(max_messages=100, max_bytes=1 << 20, max_span=None)
    for topic in (*TOPICS, "%RETRY%group"):
        for number in range(4):
            QueueFlow(control, member, ProcessQueue(MessageQueue(topic, "broker-a", number), 0), limits)

    def change(*topics: str) -> float:
        began = process_time()
        for topic in topics:
            pauses.pause(topic, "test")
        for topic in topics:
            pauses.resume(topic, "test")
        return (process_time() - began) / 2

    assert cheapest(lambda: change(TOPICS[500]), within=0.001) < 0.001
    assert cheapest(lambda: change(*TOPICS), within=0.05) < 0.05
