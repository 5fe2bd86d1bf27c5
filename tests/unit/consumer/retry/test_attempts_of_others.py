"""A queue whose next message is of another tag pays for what its owner before had counted, for its whole session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rocketapp.consumer.member import Member
from rocketapp.consumer.retry.attempts import Failed, FailedAttempts, encode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ORDERLY
from tests.unit.scripted import in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


@in_virtual_time
async def test_a_message_that_is_done_leaves_nothing_to_count() -> None:
    async def committed(*_: object, **__: object) -> int:
        return encode(Failed(51, 0))

    topic = SimpleNamespace(topic="topic", kind=ORDERLY, broadcast=False)
    member = SimpleNamespace(topics=[topic], brokers=SimpleNamespace(committed=committed))
    attempts = FailedAttempts(cast(Member, member), *cast(Any, (None, None)))
    await attempts.recall(QUEUE)
    assert attempts.take(QUEUE, 51) == {}, "no message is looked up and called one by one for this"
