"""For authors of offset stores: does it do what `rocketapp.plugin.OffsetStore` says?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.model.message_queue import MessageQueue

_GROUP = "check-group"
_QUEUE = MessageQueue("%RETRY%größe", "idc1@broker-a", 3)
_LARGE = 2**53 + 1
"""What a store that keeps floats would round."""


async def check_offset_store(make: Callable[[], OffsetStore]) -> None:
    """Raises AssertionError with the sentence of the contract that does not hold.

    `make()` makes a store each time on the same data, which is empty at first: two are open at once, as in two
    processes. What a crash of the store's server takes back cannot be seen from here.
    """
    first, second = make(), make()
    await first.open()
    await second.open()
    try:
        await _check_start(first, second)
        await _check_epochs(first, second)
        await _check_neighbours(first)
        await _check_together(first, second)
    finally:
        await first.close()
        await second.close()
    await _check_reopened(make())


async def _check_start(first: OffsetStore, second: OffsetStore) -> None:
    assert await first.read(_GROUP, _QUEUE) is None, "read: None when nothing ever was stored"
    assert await first.write(_GROUP, _QUEUE, 5, 0), "write: the start position (epoch 0) is stored if nothing was"
    assert not await second.write(_GROUP, _QUEUE, 7, 0), "write: a second start position is not stored, and says False"
    assert await second.read(_GROUP, _QUEUE) == 5, "read: what was stored last, by any process"


async def _check_epochs(first: OffsetStore, second: OffsetStore) -> None:
    old = await first.take(_GROUP, _QUEUE)
    assert old.epoch >= 1, "take: an epoch is 1 or more"
    assert old.offset == 5, "take: the offset that was stored last"
    assert await first.write(_GROUP, _QUEUE, 10, old.epoch), "write: the latest epoch may write"
    assert await first.write(_GROUP, _QUEUE, 10, old.epoch), "write: the same twice is as once"
    new = await second.take(_GROUP, _QUEUE)
    assert new.epoch > old.epoch, "take: a higher epoch than every one before"
    assert new.offset == 10, "take: the offset that any process stored last"
    assert not await first.write(_GROUP, _QUEUE, 11, old.epoch), "write: an older epoch is refused, with False"
    assert not await first.write(_GROUP, _QUEUE, 12, 0), "write: the start position is refused when the queue was taken"
    assert await first.read(_GROUP, _QUEUE) == 10, "write: what is refused is not stored"
    assert await second.write(_GROUP, _QUEUE, 8, new.epoch), "write: the latest epoch may store a lower offset"
    assert await first.read(_GROUP, _QUEUE) == 8, "write: a lower offset of the latest epoch is stored"


async def _check_neighbours(store: OffsetStore) -> None:
    others = [
        ("other-group", _QUEUE),
        (_GROUP, _QUEUE._replace(topic="größe")),
        (_GROUP, _QUEUE._replace(broker_name="broker-a")),
        (_GROUP, _QUEUE._replace(queue_id=4)),
    ]
    for group, queue in others:
        assert await store.read(group, queue) is None, "read: groups, topics, brokers and queue ids are told apart"
    taken = await store.take(*others[0])
    assert taken.offset is None, "take: None when nothing ever was stored"
    assert await store.write(*others[0], _LARGE, taken.epoch)
    assert await store.read(*others[0]) == _LARGE, "read: an offset is a whole number of 64 bits"


async def _check_together(first: OffsetStore, second: OffsetStore) -> None:
    queue = _QUEUE._replace(queue_id=5)
    taken = await asyncio.gather(*(store.take(_GROUP, queue) for _ in range(10) for store in (first, second)))
    epochs = [one.epoch for one in taken]
    assert len(set(epochs)) == len(epochs), "take: an epoch is given out once, also to processes that take at once"
    assert await first.write(_GROUP, queue, 1, max(epochs)), "write: of epochs given out at once the highest may write"
    assert not await second.write(_GROUP, queue, 2, min(epochs)), (
        "write: of epochs given out at once only the highest may"
    )


async def _check_reopened(store: OffsetStore) -> None:
    await store.open()
    try:
        assert await store.read(_GROUP, _QUEUE) == 8, "write: what is stored is there when the store is opened again"
        taken = await store.take(_GROUP, _QUEUE)
        assert taken.epoch >= 3, "take: epochs go on when the store is opened again"
        assert not await store.write(_GROUP, _QUEUE, 9, taken.epoch - 1), "write: older epochs are refused then too"
    finally:
        await store.close()
