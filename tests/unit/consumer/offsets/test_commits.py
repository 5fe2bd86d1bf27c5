"""When offsets of a session are committed, and which of them are news."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rocketapp.consumer.brokers import AnotherQueueError
from rocketapp.consumer.offsets.commits import (
    BATCH,
    IDLE_PATIENCE,
    PULL_PATIENCE,
    RUN_PATIENCE,
    Commits,
    Committer,
    Session,
)
from rocketapp.errors import TransportError
from rocketapp.model.event import CommitFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.reports import message
from tests.unit.scripted import Events, in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)


class Store:
    """Keeps offsets, and when they were written."""

    travels = True

    def __init__(self) -> None:
        self.offset = 0
        self.written: list[tuple[float, int]] = []
        self.tasks = Tasks()

    def is_connected(self, broker_name: str) -> bool:
        return True

    async def known_again(self, queue: MessageQueue) -> None:
        return

    async def committed(self, queue: MessageQueue, **_: Any) -> int:
        return self.offset

    async def commit(self, queue: MessageQueue, offset: int, **_: Any) -> None:
        self.offset = offset
        self.written.append((asyncio.get_running_loop().time(), offset))


def begun(store: Store, count: int = 100, *, events: Events | None = None) -> tuple[Commits, Committer, Session]:
    """An orderly session of a queue with so many messages."""
    now = asyncio.get_running_loop().time()
    member = member_alone(brokers=store, events=events)
    store.tasks = member.tasks
    commits = Commits(member, cast(Any, store))
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    queue.put([message(offset) for offset in range(count)])
    lease = Lease(lasts=1000.0, renew_interval=1000.0)
    lease.granted(now)
    queue.lease = lease
    committer = commits.of("broker-a")
    return commits, committer, committer.begin(queue)


@pytest.mark.parametrize(
    ("handled", "count", "wait"),
    [(5, 5, IDLE_PATIENCE), (BATCH, 100, PULL_PATIENCE), (BATCH - 1, 100, RUN_PATIENCE)],
    ids=["an idle queue", "a batch", "less than a batch"],
)
def test_what_is_finished_in_order_is_told_soon(handled: int, count: int, wait: float) -> None:
    @in_virtual_time
    async def story() -> None:
        store = Store()
        commits, _, session = begun(store, count)
        for offset in range(handled):
            session.process_queue.finish(message(offset))
            commits.prompt(session.process_queue)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.5)
        assert [(round(at - began, 6), offset) for at, offset in store.written] == [(wait, handled)]
        await store.tasks.close()

    story()


@in_virtual_time
async def test_what_a_pull_took_along_is_not_committed_again() -> None:
    store = Store()
    commits, committer, session = begun(store, 5)
    for offset in range(5):
        session.process_queue.finish(message(offset))
    commits.prompt(session.process_queue)
    assert committer.travelling(session) == 5
    committer.arrived(session, 5)
    await asyncio.sleep(1)
    assert store.written == []
    assert commits.confirmed(QUEUE) == 5
    await store.tasks.close()


@in_virtual_time
async def test_what_is_finished_after_a_pull_took_a_batch_along_waits_for_the_next_one() -> None:
    """At full speed some of the next batch is always finished: a commit for it would follow every pull."""
    store = Store()
    commits, committer, session = begun(store)
    for offset in range(BATCH):
        session.process_queue.finish(message(offset))
    commits.prompt(session.process_queue)
    began = asyncio.get_running_loop().time()
    assert committer.travelling(session) == BATCH
    session.process_queue.finish(message(BATCH))
    commits.prompt(session.process_queue)
    await asyncio.sleep(1)
    assert [(round(at - began, 6), offset) for at, offset in store.written] == [
        (PULL_PATIENCE + RUN_PATIENCE, BATCH + 1)
    ]
    await store.tasks.close()


@in_virtual_time
async def test_no_pull_takes_an_offset_along_while_a_commit_is_under_way() -> None:
    """A broker may carry out the later one first, and the earlier one would lower it."""
    store, may = Store(), asyncio.Event()
    _, committer, session = begun(store, 5)

    async def commit(queue: MessageQueue, offset: int, **_: Any) -> None:
        await may.wait()
        store.offset = offset

    store.commit = commit  # type: ignore[method-assign]
    session.process_queue.finish(message(0))
    committing = asyncio.ensure_future(committer.commit(session))
    await asyncio.sleep(0.1)
    session.process_queue.finish(message(1))
    assert committer.travelling(session) is None
    may.set()
    assert await committing
    assert committer.travelling(session) == 2
    assert store.offset == 1
    await store.tasks.close()


@in_virtual_time
async def test_a_session_that_ends_in_the_place_of_another_queue_leaves_the_first_offset_of_that_one() -> None:
    """Whatever keeps the offsets: what was done in the queue before means nothing there."""

    class Replaced(Store):
        async def known_again(self, queue: MessageQueue) -> None:
            raise AnotherQueueError(7, 45)

        def begins_anew(self, queue: MessageQueue) -> None:
            self.written.append((0.0, -1))

    store = Replaced()
    _, committer, session = begun(store, 30)
    session.process_queue.finish(message(0))
    session.is_ending = True
    assert await committer.commit_finally(session)
    assert store.offset == 7
    assert store.written[-1] == (0.0, -1)
    await store.tasks.close()


@in_virtual_time
async def test_a_session_that_ends_after_its_lease_writes_nothing() -> None:
    store = Store()
    _, committer, session = begun(store, 5)
    session.process_queue.finish(message(0))
    session.process_queue.lease.suspend(asyncio.get_running_loop().time())
    session.is_ending = True
    assert not await committer.commit_finally(session)
    assert store.written == []
    await store.tasks.close()


@pytest.mark.parametrize("is_told", [True, False], ids=["all is told", "one is not"])
def test_a_queue_is_left_in_order_while_its_broker_is_away_if_that_was_told_all_that_is_done(is_told: bool) -> None:
    class Away(Store):
        async def committed(self, queue: MessageQueue, **_: Any) -> int:
            raise TransportError("broker-a", "its master is not connected")

    @in_virtual_time
    async def run() -> None:
        events = Events()
        store = Away()
        _, committer, session = begun(store, 5, events=events)
        session.process_queue.finish(message(0))
        assert await committer.commit(session)
        if not is_told:
            session.process_queue.finish(message(1))
        session.is_ending = True
        assert await committer.commit_finally(session) is is_told
        assert bool(events.of(CommitFailed)) is not is_told
        await store.tasks.close()

    run()


@in_virtual_time
async def test_a_session_that_is_over_commits_and_confirms_nothing() -> None:
    store = Store()
    commits, committer, session = begun(store, 5)
    for offset in range(5):
        session.process_queue.finish(message(offset))
    commits.prompt(session.process_queue)
    committer.end(session)
    committer.arrived(session, 5)
    assert committer.travelling(session) is None
    await asyncio.sleep(10)
    assert store.written == []
    assert commits.confirmed(QUEUE) is None
    await store.tasks.close()


@in_virtual_time
async def test_an_offset_that_the_previous_owner_left_is_never_lowered() -> None:
    _, committer, session = begun(Store(), 100)
    session.found(50)
    for offset in range(50):
        session.process_queue.finish(message(offset))
        assert session.news is None
    session.process_queue.finish(message(50))
    assert session.news == 51
    # A broker that crashed may hold less than that: then it is news again.
    session.confirmed = 30
    session.process_queue.finish(message(51))
    assert session.news == 52
    committer.end(session)


@in_virtual_time
async def test_another_member_went_on_when_the_store_holds_more_than_was_sent() -> None:
    _, committer, session = begun(Store())
    session.sent = 10
    assert session.went_on(11)
    assert not session.went_on(10)
    assert not session.went_on(9)  # the broker forgot
    assert not session.went_on(None)
    committer.end(session)
