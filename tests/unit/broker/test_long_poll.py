"""Requests that wait for a message, or for their time."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker import long_poll
from rocketapp.broker.filtering import Filter
from rocketapp.broker.long_poll import HeldRequest, LongPoll
from rocketapp.errors import BrokerError
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader
from tests.unit.scripted import FakeStream, in_virtual_time
from tests.virtual import run_virtual

Waiting = HeldRequest[int, str]


def connection() -> Connection:
    return Connection(serve=None, max_frame_bytes=1024, is_server=True)


class Polls:
    """A long poll whose requests are answered by their names, in the order in which they are run again."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.poll: LongPoll[int, str] = LongPoll(self.loop, self._run)
        self.run: list[str] = []
        self.body = b""
        self.of = {name: connection() for name in ("mine", "other")}

    def _run(self, held: Waiting) -> Command | None:
        self.run.append(held.request)
        if held.request == "broken":
            raise BrokerError(29, "no such thing")
        return Command.response(held.command, 0, body=self.body)

    def hold(
        self, name: str, *, topic: str = "orders", place: int = 0, owner: str = "mine", wait: float = 15
    ) -> Waiting:
        held = HeldRequest(self.of[owner], Command(11), name, Filter(), topic, place)
        self.poll.hold(held, self.loop.time() + wait)
        return held


@in_virtual_time
async def test_what_is_woken_is_run_again_once_in_the_next_turn() -> None:
    polls = Polls()
    first, second = polls.hold("first"), polls.hold("second", place=1)
    assert [list(waiting) for waiting in polls.poll.by_topic.get("orders", {}).values()] == [[first], [second]]
    polls.poll.wake([first])
    polls.poll.wake([first])
    assert (polls.run, len(polls.poll), list(polls.poll.by_topic.get("orders", {}))) == ([], 1, [1])
    await asyncio.sleep(100)
    assert polls.run == ["first", "second"]
    assert (len(polls.poll), list(polls.poll.by_topic)) == (0, [])


@pytest.mark.parametrize(("count", "size", "turns"), [(1_200, 0, [0, 500, 1_000]), (9, 300_000, [0, 4, 8])])
@in_virtual_time
async def test_others_have_their_turn_while_very_many_are_woken(count: int, size: int, turns: list[int]) -> None:
    polls, seen = Polls(), list[int]()
    polls.body = bytes(size)
    names = [str(number) for number in range(count)]
    polls.poll.wake([polls.hold(name) for name in names[:-1]])
    while len(polls.run) < count:
        seen.append(len(polls.run))
        if len(seen) == 2:
            polls.poll.wake([polls.hold(names[-1])])
        await asyncio.sleep(0)
    assert seen == turns
    assert polls.run == names


@in_virtual_time
async def test_each_has_its_own_time_and_may_be_held_anew() -> None:
    polls = Polls()
    polls.hold("late", wait=20)
    early = polls.hold("early", wait=10)
    await asyncio.sleep(9.9)
    assert polls.run == []
    await asyncio.sleep(0.2)
    assert polls.run == ["early"]
    polls.poll.hold(early, polls.loop.time() + 30)
    await asyncio.sleep(25)
    assert polls.run == ["early", "late"]
    await asyncio.sleep(25)
    assert polls.run == ["early", "late", "early"]


@in_virtual_time
async def test_the_requests_of_a_lost_connection_are_forgotten() -> None:
    polls = Polls()
    polls.hold("mine")
    polls.hold("other", owner="other")
    assert len(polls.poll) == 2
    polls.poll.forget(polls.of["mine"])
    polls.poll.forget(connection())
    assert len(polls.poll) == 1
    polls.poll.wake_all("orders")
    await asyncio.sleep(100)
    assert polls.run == ["other"]


@in_virtual_time
async def test_a_topic_is_woken_as_a_whole_and_no_other() -> None:
    polls = Polls()
    for place in (0, 1):
        polls.hold(f"gone {place}", place=place)
    polls.hold("stays", topic="stock")
    polls.poll.wake_all("orders")
    await asyncio.sleep(1)
    assert (polls.run, list(polls.poll.by_topic)) == (["gone 0", "gone 1"], ["stock"])


@in_virtual_time
async def test_an_error_in_one_does_not_affect_the_others() -> None:
    polls, stream = Polls(), FakeStream()
    polls.of["mine"].attach(stream)
    polls.hold("broken")
    polls.hold("whole")
    polls.poll.wake_all("orders")
    await asyncio.sleep(1)
    assert polls.run == ["broken", "whole"]
    answers = FrameReader(1 << 20).feed(b"".join(stream.written))
    assert ["no such thing" in (answer.remark or "") for answer in answers] == [True, False]


@in_virtual_time
async def test_nothing_is_run_or_held_after_a_stop() -> None:
    polls = Polls()
    polls.poll.wake([polls.hold("woken")])
    polls.hold("held")
    polls.poll.stop()
    polls.hold("late")
    await asyncio.sleep(100)
    assert (polls.run, len(polls.poll)) == ([], 0)


@in_virtual_time
async def test_requests_that_were_woken_do_not_pile_up_until_their_time() -> None:
    polls = Polls()
    tracemalloc.start()
    try:
        for _ in range(20_000):
            polls.poll.wake([polls.hold("one")])
            await asyncio.sleep(0)
        polls.run.clear()
        polls.of["mine"].abort("done")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 2), st.sampled_from(["mine", "other"]), st.integers(1, 30)),
        st.tuples(st.just("wake"), st.integers(0, 2), st.just("mine"), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.just("mine"), st.integers(0, 40)),
        st.tuples(st.just("lose"), st.just(0), st.sampled_from(["mine", "other"]), st.just(0)),
    )
)


@given(steps)
def test_every_request_leaves_exactly_once(steps: list[tuple[str, int, str, int]]) -> None:
    async def story() -> None:
        polls, waiting, lost = Polls(), dict[str, tuple[int, str, float]](), set[str]()
        expected: list[str] = []
        for number, (step, place, owner, time) in enumerate(steps):
            now = polls.loop.time()
            left = set[str]()
            if step == "hold":
                polls.hold(str(number), place=place, owner=owner, wait=time + 0.5)
                waiting[str(number)] = place, owner, now + time + 0.5
            elif step == "wake":
                left = {name for name, (at, _, _) in waiting.items() if at == place}
                polls.poll.wake(list(polls.poll.by_topic.get("orders", {}).get(place, ())))
                await asyncio.sleep(0)
            elif step == "wait":
                await asyncio.sleep(time)
                left = {name for name, (_, _, end) in waiting.items() if end < now + time}
            else:
                polls.poll.forget(polls.of[owner])
                lost |= {name for name, (_, of, _) in waiting.items() if of == owner}
            expected += left
            for name in left | lost:
                waiting.pop(name, None)
            assert len(polls.poll) == len(waiting)
        assert sorted(polls.run) == sorted(expected)

    run_virtual(story)


@in_virtual_time
async def test_one_connection_cannot_take_all_the_room_and_all_have_no_more_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_poll, "MOST_HELD", 2)
    monkeypatch.setattr(long_poll, "MOST_HELD_BY_ALL", 3)
    polls = Polls()
    mine, other = polls.of.values()
    polls.hold("first")
    assert polls.poll.has_room(mine)
    polls.hold("second", topic="others")
    assert [polls.poll.has_room(each) for each in (mine, other)] == [False, True]
    polls.hold("third", owner="other")
    assert [polls.poll.has_room(each) for each in (mine, other)] == [False, False]
    polls.poll.forget(mine)
    assert polls.poll.has_room(mine)
