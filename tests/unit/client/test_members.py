"""Who is in which group, as heartbeats tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rocketapp.client.members import Members
from rocketapp.errors import SetupError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.requests.clients import ConsumerData
from rocketapp.wire.requests.direct import NOT_TAKEN, DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import CONSUME_TYPE, RunningInfo


class Member:
    def __init__(self, group: str) -> None:
        self.group, self.heard = group, list[str]()

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(self.group)

    def running_info(self, *, with_stacks: bool = False, brief: bool = False) -> RunningInfo:
        return RunningInfo({CONSUME_TYPE: "CONSUME_PASSIVELY"}, ())

    def done_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic, "broker-a", 0): 7}

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        self.heard.append(f"moved to {list(offsets.values())}")

    async def consume_directly(self, request: DirectRequest, record: bytes) -> DirectResult:
        return DirectResult(NOT_TAKEN, f"not {request.offset_message_id}")

    def members_changed(self) -> None:
        self.heard.append("members")

    def routes_changed(self) -> None:
        self.heard.append("routes")

    def broker_lost(self, broker_names: Sequence[str]) -> None:
        self.heard.append("lost")

    def broker_back(self, broker_names: Sequence[str]) -> None:
        self.heard.append("back")


def test_a_client_without_members_has_nothing_to_tell() -> None:
    members = Members("me")
    assert members.beat() is None
    members.add_producer("p")
    beat = members.beat()
    assert beat is not None
    assert (beat.client_id, beat.producers, beat.consumers) == ("me", ("p",), ())


def test_the_second_consumer_of_a_group_is_refused() -> None:
    members = Members("me")
    members.add_consumer("g", Member("g"))
    with pytest.raises(SetupError, match="group 'g' is registered twice"):
        members.add_consumer("g", Member("g"))
    members.consumers.pop("g")
    members.add_consumer("g", Member("g"))


def test_producers_may_share_a_group_and_the_last_one_to_leave_leaves_it() -> None:
    members = Members("me")
    members.add_producer("p")
    members.add_producer("p")
    assert not members.remove_producer("p")
    assert members.beat() is not None
    assert members.remove_producer("p")
    assert not members.remove_producer("p")
    assert members.beat() is None
