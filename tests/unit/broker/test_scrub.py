"""Damage that nobody has met yet: it is found and mended by reading the log again, slowly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from rocketapp.broker.scrub import Scrub
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.errors import StoreError
from rocketapp.model.event import RecordDamaged, unobserved
from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.turns import Turns
from tests.unit.broker.asking import Running, running
from tests.unit.broker.store.stores import config as store_config
from tests.unit.broker.store.stores import open_store, record
from tests.unit.scripted import eventually, in_virtual_time

LOG, QUEUE = "commitlog/" + "0" * 20, "consumequeue/orders/0/" + "0" * 20


async def _filled(count: int, **options: object) -> Running:
    """A stopped broker with messages in two queues, and what it has stored."""
    broker = Running(MemoryFiles(), **options)
    await broker.start()
    client = await broker.client()
    for number in range(count):
        assert (await client.send("orders", b"body %05d" % number, queue_id=number % 2)).code == ResponseCode.SUCCESS
    await broker.broker.stop()
    return broker


async def _again(broker: Running) -> Running:
    """The same directory, served by another broker."""
    again = Running(broker.files, scrub_rate=broker.config.scrub_rate, scrub_interval=60.0)
    await again.start()
    return again


@in_virtual_time
async def test_what_is_damaged_is_found_and_entries_are_mended_before_anybody_reads_them() -> None:
    broker = await _filled(200)
    queue, log = broker.files.open(QUEUE), broker.files.open(LOG)
    entries = queue.read(2000, 0)
    queue.write(bytes(400), 200)
    at = log.read(1 << 16, 0).index(b"body 00101")
    log.write(b"B", at)
    again = await _again(broker)
    await asyncio.sleep(30.0)
    state = again.broker.running.facts.state()
    assert (state.damaged, state.mended, state.scrub_position) == (1, 20, state.log_end)
    (found,) = [event for event in again.events if isinstance(event, RecordDamaged)]
    assert (found.topic, found.queue_id, found.offset) == ("orders", 1, 50)
    await again.broker.stop()
    assert broker.files.open(QUEUE).read(2000, 0) == entries


@in_virtual_time
async def test_the_last_message_of_a_queue_is_found_too_although_nothing_behind_it_leads_there() -> None:
    broker = await _filled(200)
    again = await _again(broker)
    log = broker.files.open(LOG)
    log.write(b"\xff", log.read(1 << 16, 0).index(b"body 00198") - 88)
    await asyncio.sleep(30.0)
    assert again.broker.running.facts.state().damaged == 1
    (found,) = [event for event in again.events if isinstance(event, RecordDamaged)]
    assert (found.topic, found.queue_id, found.offset) == ("orders", 0, 99)
    await again.broker.stop()


@in_virtual_time
async def test_what_the_search_has_found_whole_is_trusted_until_the_next_one() -> None:
    broker = await _filled(200)
    again = await _again(broker)
    client, log = await again.client(), broker.files.open(LOG)

    async def served(number: int) -> list[bytes]:
        response = await client.messages("orders", number // 2, queue_id=number % 2, max_messages=1)
        return [message.body for message in response]

    def alter(number: int) -> None:
        log.write(b"B", log.read(1 << 16, 0).index(b"body %05d" % number))

    alter(7)
    assert await served(7) == []
    await asyncio.sleep(30.0)
    alter(100)
    assert await served(100) == [b"Body 00100"]
    alter(5)
    assert await served(5) == [], "nothing before damage is trusted"
    await asyncio.sleep(70.0)
    assert await served(100) == []
    assert again.broker.running.facts.state().damaged == 4, "one in the first search, three in the next one"
    await again.broker.stop()


@in_virtual_time
async def test_the_log_is_read_at_its_rate_and_again_after_the_interval() -> None:
    broker = await _filled(500, scrub_rate=10_000)
    again = await _again(broker)
    size = again.broker.running.facts.state().log_end
    await asyncio.sleep(10.0 + size / 20_000)
    assert 0 < again.broker.running.facts.state().scrub_position < size
    await asyncio.sleep(size / 10_000)
    assert again.broker.running.facts.state().scrub_position == size
    again.files.open(QUEUE).write(bytes(20), 20)
    await asyncio.sleep(60.0 + size / 10_000)
    assert again.broker.running.facts.state().mended == 1
    await again.broker.stop()


@in_virtual_time
async def test_a_topic_that_was_deleted_and_made_again_is_not_called_damaged() -> None:
    async with running() as broker:
        client = await broker.client()
        for _ in range(2):
            for _ in range(50):
                await client.send("orders", queue_id=0)
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        for _ in range(5):
            await client.send("orders", queue_id=0)
        await asyncio.sleep(30.0)
        state = broker.broker.running.facts.state()
        assert (state.damaged, state.mended, state.scrub_position) == (0, 0, state.log_end)
        assert not [event for event in broker.events if isinstance(event, RecordDamaged)]


def test_the_search_keeps_no_turn_of_the_loop_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        broker = await _filled(3000)
        monkeypatch.setattr("rocketapp.broker.scrub.FIRST", 0.0)
        again = await _again(broker)
        with Turns() as turns:
            facts = again.broker.running.facts
            await eventually(lambda: facts.state().scrub_position == facts.state().log_end, 20.0)
        assert turns.longest < 0.05
        await again.broker.stop()

    asyncio.run(story())


@in_virtual_time
async def test_a_search_that_could_not_read_a_queue_makes_nothing_trusted() -> None:
    files = MemoryFiles()
    store = open_store(files)
    for number in range(20):
        store.append(record(b"body %05d" % number))
    store.close()
    store, log = open_store(files), files.open(LOG)
    log.write(b"\xff", log.read(1 << 16, 0).index(b"body 00019") - 88)
    store.repair.later = lambda steps: None  # the queue is being made again, and that does not end

    async def run(work: Callable[[], object]) -> None:
        work()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(300.0):
            await Scrub(store, store_config(), observe=unobserved, run=run).run()
    log.write(b"B", log.read(1 << 16, 0).index(b"body 00003"))
    with pytest.raises(StoreError):
        store.read("T", 0, 0, max_messages=5, max_bytes=1 << 18, trusts=True)
