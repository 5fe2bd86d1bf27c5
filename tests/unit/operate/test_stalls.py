"""For how long a queue stands still."""

from __future__ import annotations

from dataclasses import replace

from rocketapp.operate.stalls import Stalls
from tests.unit.operate.views import queue_at, snapshot_of

FULL = "flow control: 1000 unfinished messages"


def seconds(
    stalls: Stalls, now: float, *, position: int | None, unfinished: int = 0, still: str = FULL, committed: int = 5
) -> list[float]:
    queue = queue_at(position, unfinished=unfinished, still=still, committed=committed)
    return [one.seconds for one in stalls.look(now, snapshot_of(queue))]


def test_it_counts_from_the_first_look_at_which_it_stood_still() -> None:
    stalls = Stalls()
    assert seconds(stalls, 0.0, position=10, still="") == []
    assert seconds(stalls, 1.0, position=10) == [0.0]
    assert seconds(stalls, 9.0, position=10) == [8.0]


def test_a_queue_whose_messages_are_finished_slowly_moves() -> None:
    stalls = Stalls()
    assert seconds(stalls, 0.0, position=1000, unfinished=1000) == [0.0]
    assert seconds(stalls, 20.0, position=1000, unfinished=999) == [0.0]
    assert seconds(stalls, 25.0, position=1000, unfinished=999) == [5.0]


def test_a_popped_queue_has_no_position_and_moves_as_well() -> None:
    stalls = Stalls()
    for number, expected in enumerate([0.0, 10.0, 0.0, 10.0]):
        queue = replace(queue_at(None, still=FULL), finished=number // 2)
        (stall,) = stalls.look(10.0 * number, snapshot_of(queue))
        assert stall.seconds == expected


def test_messages_that_its_broker_passes_over_are_no_progress_of_a_queue() -> None:
    stalls = Stalls()
    for now in range(30):
        queue = queue_at(11 + now, unfinished=1, passed_over=now, still=FULL)
        (stall,) = stalls.look(now, snapshot_of(queue))
        assert stall.seconds == now


def test_an_attempt_to_go_on_is_no_progress() -> None:
    stalls = Stalls()
    seconds(stalls, 0.0, position=10)
    assert seconds(stalls, 2.0, position=10, still="") == []
    assert seconds(stalls, 4.0, position=10) == [4.0]


def test_a_queue_that_went_on_for_long_begins_anew() -> None:
    stalls = Stalls()
    seconds(stalls, 0.0, position=10)
    for now in range(1, 10):
        seconds(stalls, float(now), position=10, still="")
    assert seconds(stalls, 10.0, position=10) == [0.0]


def test_a_queue_that_is_not_consumed_keeps_its_time() -> None:
    stalls = Stalls()
    seconds(stalls, 0.0, position=10)
    assert seconds(stalls, 3.0, position=None) == [3.0]
    assert seconds(stalls, 6.0, position=8, unfinished=3) == [6.0]


def test_a_queue_that_was_set_back_moves_as_soon_as_a_message_is_finished() -> None:
    stalls = Stalls()
    seconds(stalls, 0.0, position=9000, unfinished=1000, committed=8000)
    assert seconds(stalls, 4.0, position=1500, unfinished=1000, committed=500) == [4.0]
    assert seconds(stalls, 8.0, position=1600, unfinished=1000, committed=600) == [0.0]


def test_messages_that_are_done_again_are_no_progress() -> None:
    stalls = Stalls()
    seconds(stalls, 0.0, position=11, unfinished=1)
    assert seconds(stalls, 3.0, position=11, unfinished=6) == [3.0]
    assert seconds(stalls, 6.0, position=11, unfinished=2) == [6.0]


def test_a_group_is_without_its_queues_from_the_first_look_that_says_so() -> None:
    stalls = Stalls()
    (group,) = snapshot_of().groups
    failing = replace(snapshot_of(), groups=(replace(group, unassigned="refused"),))
    assert stalls.look_at_groups(0.0, snapshot_of()) == ()
    assert [one.seconds for one in stalls.look_at_groups(1.0, failing)] == [0.0]
    (later,) = stalls.look_at_groups(9.0, failing)
    assert (later.group, later.reason, later.seconds, later.has_assigned) == ("shop", "refused", 8.0, True)
    assert stalls.look_at_groups(10.0, snapshot_of()) == ()
    assert [one.seconds for one in stalls.look_at_groups(11.0, failing)] == [0.0]
