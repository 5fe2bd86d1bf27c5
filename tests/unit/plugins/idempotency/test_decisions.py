from __future__ import annotations

from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.hooks.idempotency import CLAIMED, DONE, Answer, Claim, MarkState
from rocketapp.plugins.idempotency.decisions import Marks, pause_before_look, split, state_for

MINE, OTHERS = "a", "b"


def state(answer: Answer) -> MarkState:
    return state_for(Claim("k", MINE), answer)


def running(holder: str = OTHERS) -> Answer:
    return Answer(MarkState.RUNNING, holder, 20.0)


def test_a_claim_whose_answer_was_lost_is_still_mine() -> None:
    assert state(running(MINE)) is MarkState.CLAIMED


def test_looks_are_soon_at_first_and_never_long_after_the_lease_ends() -> None:
    left = [Answer(MarkState.RUNNING, OTHERS, seconds) for seconds in (30.0, 29.5, 15.0, 0.3, 0.0)]
    assert [pause_before_look(answer, 30.0) for answer in left] == [0.05, 0.5, 1.0, 0.3, 0.05]


@given(st.lists(st.sampled_from(MarkState), max_size=8))
def test_a_batch_is_handled_in_order_up_to_what_has_to_wait(states: list[MarkState]) -> None:
    parts = split(states)
    until = states.index(MarkState.RUNNING) if MarkState.RUNNING in states else len(states)
    assert sorted(parts.handle + parts.skip) == list(range(until))
    assert parts.later == tuple(range(until, len(states)))
    claimed = {at for at, one in enumerate(states) if one is MarkState.CLAIMED}
    assert set(parts.handle) | set(parts.release) == claimed


class Model:
    """What a table of marks should answer, without a thought for speed."""

    def __init__(self) -> None:
        self.marks: dict[str, tuple[str | None, float]] = {}

    def claim(self, claim: Claim, now: float) -> Answer:
        holder, until = self.marks.get(claim.key, (None, now))
        if until > now and holder is None:
            return DONE
        if until > now and holder not in (None, claim.holder):
            return Answer(MarkState.RUNNING, str(holder), until - now)
        self.marks[claim.key] = (claim.holder, now + 10)
        return CLAIMED

    def release(self, claim: Claim) -> None:
        if self.marks.get(claim.key, (None, 0))[0] == claim.holder:
            del self.marks[claim.key]


CALLS = st.tuples(
    st.sampled_from(["claim", "claim", "done", "release", "expire"]),
    st.sampled_from("kl"),
    st.sampled_from("abc"),
    st.integers(0, 12),
)


@given(st.lists(CALLS, max_size=40))
def test_marks_answer_like_a_table_that_keeps_everything(calls: list[tuple[str, str, str, int]]) -> None:
    marks, model, now = Marks(100), Model(), 0.0
    for call, key, holder, seconds in calls:
        now += seconds
        claim = Claim(key, holder)
        if call == "claim":
            assert marks.claim(claim, lease=10, now=now) == model.claim(claim, now)
        elif call == "done":
            marks.done(key, expiry=25, now=now)
            model.marks[key] = (None, now + 25)
        elif call == "release":
            marks.release(claim)
            model.release(claim)
        else:
            marks.expire(now)
            model.marks = {key: mark for key, mark in model.marks.items() if mark[1] > now}
    marks.expire(now)
    assert len(marks) == len([until for _, until in model.marks.values() if until > now])


def test_a_full_table_forgets_the_oldest_done_mark_and_no_running_one() -> None:
    marks = Marks(2)
    marks.claim(Claim("running", MINE), lease=10, now=0)
    for key in ("a", "b", "c"):
        marks.done(key, expiry=100, now=0)
    assert marks.claim(Claim("a", MINE), lease=10, now=1) == CLAIMED
    assert marks.claim(Claim("b", MINE), lease=10, now=1) == DONE
    assert marks.claim(Claim("running", OTHERS), lease=10, now=1).state is MarkState.RUNNING


def test_a_full_table_costs_no_more_per_message_than_one_with_room() -> None:
    most, parts = 50_000, 5
    marks = Marks(most)

    def cost(first: int) -> float:
        """Of a fifth of the table, the cheapest one: another one may wait for a garbage collection."""
        spent = []
        for begin in range(first, first + most, most // parts):
            began = process_time()
            for number in range(begin, begin + most // parts):
                marks.done(str(number), expiry=1e6, now=0)
            spent.append(process_time() - began)
        return min(spent)

    with_room = cost(0)
    full = cost(most)
    assert len(marks) == most
    assert full < 10 * with_room
