"""What may have ended a process: its dead letter, and a pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.journal import Journal
from rocketapp.model.names import dlq_topic
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed
from tests.unit.consumer.test_quarantine import CAUSE, MODES, journal_with, with_topic
from tests.unit.scripted import ClockAt, in_virtual_time


@pytest.mark.parametrize("options", MODES)
@in_virtual_time
async def test_a_cause_whose_dead_letter_is_not_stored_yet_is_not_called_by_the_next_process(
    options: dict[str, Any], tmp_path: Path
) -> None:
    cluster, called = await with_topic(), list[int]()

    async def handle(item: Any) -> None:
        called.extend(one.offset for one in ([item] if isinstance(item, Message) else item) if one.queue_id == 1)

    journal = journal_with(tmp_path, {"group topic@broker-a:1": {CAUSE: [3, 2, 1000.0, False]}})
    cluster.refuse(RequestCode.SEND_MESSAGE_V2, 14)
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, 14)
    member = await cluster.member(consumed(handle, retries=2, **options), journal=journal).start()
    await asyncio.sleep(8)
    assert CAUSE not in called
    await member.stop(drain_timeout=2.0)
    journal.close()
    cluster.behave()
    called.clear()
    again = Journal(tmp_path, ClockAt(1010.0), lambda _: None)
    member = await cluster.member(consumed(handle, retries=2, **options), journal=again).start()
    await asyncio.sleep(30)
    assert CAUSE not in called, "it ended three processes, and is called again"
    assert cluster.bodies(dlq_topic("group")) == [b"%d" % CAUSE]
    await member.stop()
    again.close()
    await cluster.stop()
