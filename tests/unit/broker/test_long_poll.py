"""Pulls that wait for a message."""

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.long_poll import HeldPull, HeldPulls, Matches
from tests.unit.broker.memory import kept_by

QUEUE = ("orders", 0)


def held(
    *,
    queue: tuple[str, int] = QUEUE,
    start: int = 0,
    deadline: float = 15.0,
    owner: str = "connection",
    matches: Matches | None = None,
) -> HeldPull:
    return HeldPull(queue, start, deadline=deadline, owner=owner, matches=matches, payload=None)


def test_a_message_wakes_every_pull_of_its_queue_and_no_other() -> None:
    pulls = HeldPulls()
    here, too, elsewhere = held(), held(owner="other"), held(queue=("orders", 1))
    for pull in (here, too, elsewhere):
        pulls.hold(pull)
    assert pulls.arrived("orders", 0, 1, 0) == [here, too]
    assert pulls.arrived("orders", 0, 2, 0) == []
    assert len(pulls) == 1


def test_a_message_of_another_tag_does_not_wake() -> None:
    pulls = HeldPulls()
    pull = held(matches={7}.__contains__)
    pulls.hold(pull)
    assert pulls.arrived("orders", 0, 1, 8) == []
    assert pulls.arrived("orders", 0, 2, 7) == [pull]


def test_a_message_below_the_wanted_offset_does_not_wake() -> None:
    pulls = HeldPulls()
    pull = held(start=5)
    pulls.hold(pull)
    assert pulls.arrived("orders", 0, 5, 0) == []
    assert pulls.arrived("orders", 0, 6, 0) == [pull]


def test_pulls_expire_at_their_own_time_and_once() -> None:
    pulls = HeldPulls()
    late, early = held(deadline=20), held(deadline=10)
    pulls.hold(late)
    pulls.hold(early)
    deadlines = [pulls.next_deadline]
    assert pulls.expire(9.9) == []
    assert pulls.expire(10) == [early]
    deadlines.append(pulls.next_deadline)
    assert pulls.expire(30) == [late]
    deadlines.append(pulls.next_deadline)
    assert deadlines == [10, 20, None]
    assert len(pulls) == 0


def test_a_woken_pull_does_not_expire_as_well() -> None:
    pulls = HeldPulls()
    pulls.hold(held())
    assert len(pulls.arrived("orders", 0, 1, 0)) == 1
    assert pulls.next_deadline is None
    assert pulls.expire(100) == []


def test_the_pulls_of_a_lost_connection_are_forgotten() -> None:
    pulls = HeldPulls()
    mine, other = held(owner="mine"), held(owner="other")
    pulls.hold(mine)
    pulls.hold(other)
    assert pulls.held_by("mine") == 1
    pulls.forget("mine")
    pulls.forget("unknown")
    assert pulls.held_by("mine") == 0
    assert pulls.arrived("orders", 0, 1, 0) == [other]


def test_the_pulls_of_a_deleted_topic_come_out() -> None:
    pulls = HeldPulls()
    gone, stays = held(), held(queue=("stock", 0))
    pulls.hold(gone)
    pulls.hold(stays)
    assert pulls.at("orders") == [gone]
    assert len(pulls) == 1


def test_clearing_leaves_nothing() -> None:
    pulls = HeldPulls()
    pulls.hold(held())
    pulls.clear()
    assert len(pulls) == 0
    assert pulls.expire(100) == []


def test_pulls_that_were_woken_do_not_pile_up_until_their_deadline() -> None:
    pulls = HeldPulls()

    def come_and_go() -> None:
        for end in range(1, 20_001):
            pulls.hold(held(start=end - 1))
            assert len(pulls.arrived("orders", 0, end, 0)) == 1

    assert kept_by(come_and_go) < 1_000_000


steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 2), st.integers(0, 2), st.integers(1, 30)),
        st.tuples(st.just("arrive"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("expire"), st.just(0), st.just(0), st.integers(0, 40)),
        st.tuples(st.just("lose"), st.integers(0, 2), st.just(0), st.just(0)),
    )
)


@given(steps)
def test_every_pull_leaves_exactly_once(steps: list[tuple[str, int, int, int]]) -> None:
    pulls = HeldPulls()
    waiting: set[HeldPull] = set()
    end = 0
    for step, number, other, time in steps:
        if step == "hold":
            pull = held(queue=("orders", number), start=end, owner=str(other), deadline=time)
            pulls.hold(pull)
            waiting.add(pull)
            continue
        if step == "arrive":
            end += 1
            left = set(pulls.arrived("orders", number, end, 0))
            assert left == {pull for pull in waiting if pull.queue[1] == number}
        elif step == "expire":
            left = set(pulls.expire(time))
            assert left == {pull for pull in waiting if pull.deadline <= time}
        else:
            pulls.forget(str(number))
            left = {pull for pull in waiting if pull.owner == str(number)}
        waiting -= left
        assert len(pulls) == len(waiting)
        assert pulls.next_deadline == min((pull.deadline for pull in waiting), default=None)
