from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.commit_schedule import BATCH, IDLE_PATIENCE, PULL_PATIENCE, RUN_PATIENCE, CommitSchedule

QUEUE = MessageQueue("T", "b", 0)


def test_a_queue_that_went_idle_is_committed_within_fifty_milliseconds() -> None:
    schedule = CommitSchedule()
    schedule.finished(QUEUE, 1.0, offset=5, told=4, is_idle=True)
    assert schedule.next_due() == 1.0 + IDLE_PATIENCE
    assert schedule.take(1.0) == []
    assert schedule.take(1.0 + IDLE_PATIENCE) == [(QUEUE, 5)]
    assert schedule.next_due() is None
    assert IDLE_PATIENCE < 0.05


def test_a_finished_batch_waits_only_for_a_pull_that_may_take_it() -> None:
    schedule = CommitSchedule()
    schedule.finished(QUEUE, 1.0, offset=BATCH - 1, told=0, is_idle=False)
    assert schedule.next_due() == 1.0 + RUN_PATIENCE
    assert schedule.finished(QUEUE, 1.0, offset=BATCH, told=0, is_idle=False) == 1.0 + PULL_PATIENCE
    assert schedule.next_due() == 1.0 + PULL_PATIENCE


def test_what_is_left_of_a_run_is_told_before_the_next_batch_of_a_slow_handler_is_through() -> None:
    schedule = CommitSchedule()
    assert schedule.finished(QUEUE, 1.0, offset=BATCH - 1, told=0, is_idle=False) == 1.0 + RUN_PATIENCE
    assert schedule.finished(QUEUE, 1.1, offset=BATCH - 1, told=0, is_idle=False) is None
    assert schedule.take(1.0 + RUN_PATIENCE) == [(QUEUE, BATCH - 1)]


def test_what_was_told_is_not_committed_again() -> None:
    schedule = CommitSchedule()
    schedule.finished(QUEUE, 1.0, offset=64, told=64, is_idle=True)
    assert schedule.next_due() is None


def test_a_queue_whose_session_is_over_is_not_due() -> None:
    schedule = CommitSchedule()
    schedule.finished(QUEUE, 1.0, offset=64, told=0, is_idle=True)
    schedule.forget(QUEUE)
    assert schedule.take(9.0) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0.0, 0.01), st.booleans()), max_size=60))
def test_a_batch_is_never_untold_for_longer_than_a_pull_is_waited_for(steps: list[tuple[int, float, bool]]) -> None:
    schedule, now, offset, told = CommitSchedule(), 0.0, 0, 0
    behind_since: float | None = None
    for count, pause, is_idle in steps:
        offset += count
        schedule.finished(QUEUE, now, offset=offset, told=told, is_idle=is_idle)
        if offset - told >= BATCH and behind_since is None:
            behind_since = now
        until = now + pause
        while (due := schedule.next_due()) is not None and due <= until:
            if schedule.take(due):
                assert behind_since is None or due <= behind_since + PULL_PATIENCE + 1e-9
                told, behind_since = offset, None
        now = until
        assert behind_since is None or now <= behind_since + PULL_PATIENCE + 1e-9
