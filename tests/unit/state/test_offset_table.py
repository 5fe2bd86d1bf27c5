from __future__ import annotations

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.offset_table import OffsetTable

QUEUE = MessageQueue("t", "b", 0)


def test_an_offset_is_news_until_the_broker_confirmed_it() -> None:
    table = OffsetTable()
    table.begin(QUEUE, 1, 10)
    assert not table.is_unsent(QUEUE, 1, 10)
    assert table.is_unsent(QUEUE, 1, 11)
    table.confirm(QUEUE, 1, 11)
    assert not table.is_unsent(QUEUE, 1, 11)
    assert table.confirmed(QUEUE) == 11


def test_an_offset_that_was_not_confirmed_yet_is_news() -> None:
    table = OffsetTable()
    table.begin(QUEUE, 1)
    assert table.confirmed(QUEUE) is None
    assert table.is_unsent(QUEUE, 1, 0)


def test_a_stale_epoch_commits_and_confirms_nothing() -> None:
    table = OffsetTable()
    table.begin(QUEUE, 1, 10)
    table.begin(QUEUE, 2, 20)
    assert not table.is_unsent(QUEUE, 1, 99)
    table.confirm(QUEUE, 1, 99)
    table.end(QUEUE, 1)
    table.begin(QUEUE, 1, 99)
    assert table.confirmed(QUEUE) == 20
    assert table.is_current(QUEUE, 2)


def test_a_queue_that_was_given_up_has_no_news() -> None:
    table = OffsetTable()
    table.begin(QUEUE, 1, 10)
    table.end(QUEUE, 1)
    assert not table.is_unsent(QUEUE, 1, 99)
    assert table.confirmed(QUEUE) is None


def test_an_offset_that_the_previous_owner_left_is_never_lowered() -> None:
    table = OffsetTable()
    table.begin(QUEUE, epoch=1, confirmed=10)
    table.found(QUEUE, epoch=1, offset=50)
    assert not table.is_unsent(QUEUE, epoch=1, offset=20)
    assert not table.is_unsent(QUEUE, epoch=1, offset=50)
    assert table.is_unsent(QUEUE, epoch=1, offset=51)
    # A broker that crashed may hold less than that: then it is news again.
    table.confirm(QUEUE, epoch=1, offset=30)
    assert table.is_unsent(QUEUE, epoch=1, offset=50)
