"""Replayed dead letters: each once, wherever a replay ends."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.admin.cluster import AdminError
from rocketapp.admin.dead_letters import newest
from rocketapp.admin.messages import limits, read
from rocketapp.admin.replay import Replay, begin
from rocketapp.admin.replay_state import ReplayState, StateFile, Window, queue_of
from rocketapp.model.message_queue import MessageQueue
from rocketapp.producer.producer import Producer
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import decode_record
from rocketapp.wire.requests.direct import LATER, NOT_TAKEN, SUCCESS, TAKEN, DirectResult
from rocketapp.wire.requests.locks import LockBody
from tests.unit.admin.stage import Stage, stage
from tests.unit.broker.asking import Client
from tests.unit.scripted import outcome
from tests.virtual import run_virtual


class KilledError(Exception):
    """Here the process ended."""


class Mortal:
    """A producer whose process ends at its n-th send, before or after the broker has stored that."""

    def __init__(self, producer: Producer, dies_at: int | None, *, stored: bool) -> None:
        self._producer, self._dies_at, self._stored = producer, dies_at, stored
        self._sends = 0

    async def send_raw(self, *arguments: Any, **more: Any) -> Any:
        self._sends += 1
        if self._sends == self._dies_at and not self._stored:
            raise KilledError
        result = await self._producer.send_raw(*arguments, **more)
        if self._sends == self._dies_at:
            raise KilledError
        return result


async def replay(
    on: Stage,
    file: StateFile,
    *,
    group: str = "billing",
    dies_at: int | None = None,
    stored: bool = False,
    rate: float | None = None,
    again: bool = False,
    skip: frozenset[str] = frozenset(),
) -> ReplayState:
    state = await begin(on.cluster, file, group=group, named="here", again=again)
    producer: Any = Mortal(on.producer(), dies_at, stored=stored)
    await Replay(on.cluster, producer, state, file, rate=rate, skip=skip).run()
    return state


async def bodies(on: Stage, topic: str) -> list[int]:
    """What lies in a topic, as the numbers of dead letters."""
    found: list[int] = []
    for queue, held in (await limits(on.cluster, await on.cluster.queues(topic))).items():
        async for batch in read(on.cluster, queue, held.start, held.stop):
            found += [int(message.body) for message in batch]
    return found


@settings(max_examples=25)
@given(ends=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4))
def test_wherever_a_replay_ends_the_next_goes_on_and_each_is_sent_once(ends: list[tuple[int, bool]]) -> None:
    async def story(file: StateFile) -> None:
        async with stage() as on:
            await on.bury("billing", 100)
            for dies_at, stored in ends:
                await outcome(replay(on, file, dies_at=dies_at, stored=stored))
            state = await replay(on, file)
            assert state.left == 0
            assert sorted(await bodies(on, "%RETRY%billing")) == list(range(100))

    with tempfile.TemporaryDirectory() as folder:
        run_virtual(lambda: story(StateFile(Path(folder) / "state.json")))


def test_it_keeps_to_its_rate(tmp_path: Path) -> None:
    async def story() -> float:
        async with stage() as on:
            await on.bury("billing", 100)
            began = asyncio.get_running_loop().time()
            await replay(on, StateFile(tmp_path / "state.json"), rate=20)
            return asyncio.get_running_loop().time() - began

    assert 4.5 < run_virtual(story) < 5.5


def test_what_came_later_is_of_the_next_replay_and_nothing_goes_out_twice(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 3)
            assert (await replay(on, file)).replayed == 3
            await on.bury("billing", 2, first=3)
            assert (await replay(on, file)).replayed == 2
            assert (await replay(on, file)).replayed == 0
            assert Counter(await bodies(on, "%RETRY%billing")) == Counter(range(5))
            assert (await replay(on, file, again=True)).replayed == 5

    run_virtual(story)


async def replay_one(
    on: Stage, file: StateFile, number: int, *, dies_at: int | None = None, stored: bool = False
) -> bool:
    """The dead letter with this number alone."""
    letters = await newest(on.cluster, "billing", 100)
    (letter,) = [one for one in letters if int(one.message.body) == number]
    state = await begin(on.cluster, file, group="billing", named="here", for_one=True)
    producer: Any = Mortal(on.producer(), dies_at, stored=stored)
    return await Replay(on.cluster, producer, state, file, rate=None).one(letter)


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([None, 3, 11, 19]), st.integers(1, 12), st.booleans()), min_size=1, max_size=6
    )
)
def test_single_ones_ahead_of_a_replay_go_out_once_wherever_either_ends(
    steps: list[tuple[int | None, int, bool]],
) -> None:
    async def story(file: StateFile) -> None:
        async with stage() as on:
            await on.bury("billing", 20)
            for number, dies_at, stored in steps:
                if number is None:
                    await outcome(replay(on, file, dies_at=dies_at, stored=stored))
                else:
                    await outcome(replay_one(on, file, number, dies_at=1 if dies_at < 6 else None, stored=stored))
            await replay(on, file)
            await on.bury("billing", 1, first=20)
            assert await replay_one(on, file, 20)
            assert not await replay_one(on, file, 20)
            assert (await replay(on, file)).left == 0
            assert sorted(await bodies(on, "%RETRY%billing")) == list(range(21))

    with tempfile.TemporaryDirectory() as folder:
        run_virtual(lambda: story(StateFile(Path(folder) / "state.json")))


def test_a_single_one_that_went_out_is_forgotten_when_a_replay_has_passed_it(tmp_path: Path) -> None:
    async def story() -> list[str]:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 5)
            await replay_one(on, file, 3)
            assert (await replay(on, file)).replayed == 4
            state = file.read()
            assert state is not None
            return state.singly

    assert run_virtual(story) == []


async def lock_queue(on: Stage, group: str) -> None:
    """Hold a queue lock of the group, as a member that was killed does for a minute."""
    await on.client.send("stock")
    queue = MessageQueue("stock", "broker-a", 0)
    fields = {"consumerGroup": group, "topic": "stock", "queueId": "0", "commitOffset": "0"}
    await on.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    await on.client.ask(RequestCode.LOCK_BATCH_MQ, {}, LockBody(group, "killed", [queue]).encode())


class Taker(Client):
    """A member of `billing` that holds locks, and takes dead letters."""

    def __init__(self, on: Stage, said: dict[str, str] | None = None) -> None:
        super().__init__("taker", on.broker)
        self.said = said or {"PROP_ROCKETAPP_LOCKS": "true"}
        self.called: list[int] = []
        self.results: dict[int, DirectResult] = {}
        """By number of the dead letter, unless it is done."""
        self.dies_at = 0
        """The replay that asks ends at this call."""
        self.asking: asyncio.Future[Any] | None = None
        self.taken: set[int] = set()

    async def join(self) -> None:
        await self.connect()
        await self.heartbeat("billing", "orders")

    def _serve(self, connection: Connection, command: Command) -> Command | None:
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return Command.response(command, 0, body=json.dumps({"properties": self.said}).encode())
        if command.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return super()._serve(connection, command)
        number = int(decode_record(command.body).body)
        if number in self.taken or self.results.get(number, DirectResult("")).result == NOT_TAKEN:
            self.taken.discard(number)
            return Command.response(command, 0, body=self.results.get(number, DirectResult(SUCCESS)).encode())
        self.taken.add(number)
        self.called.append(number)
        if len(self.called) == self.dies_at and self.asking is not None:
            self.asking.cancel()
        return Command.response(command, 0, body=DirectResult(TAKEN).encode())


@pytest.mark.parametrize("said", [None, {"PROP_CONSUMEORDERLY": "true"}], ids=["a killed member", "a Java member"])
def test_into_a_group_that_holds_locks_nothing_is_sent_without_a_member_that_takes_it(
    tmp_path: Path, said: dict[str, str] | None
) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 5)
            await (lock_queue(on, "billing") if said is None else Taker(on, said).join())
            refused = await outcome(replay(on, file))
            assert isinstance(refused, AdminError)
            assert "no member of it runs that takes dead letters" in str(refused)
            assert sorted(await bodies(on, "%DLQ%billing")) == list(range(5))

    run_virtual(story)


@pytest.mark.parametrize("kills", [[], [3], [3, 9, 17]])
def test_members_of_a_group_that_holds_locks_are_asked_and_no_letter_is_spent(tmp_path: Path, kills: list[int]) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 40)
            taker = Taker(on)
            taker.results[7] = DirectResult(LATER, "ValueError: no more 7")
            await taker.join()
            for after in kills:
                taker.dies_at = len(taker.called) + after
                taker.asking = asyncio.ensure_future(replay(on, file))
                await asyncio.wait([taker.asking])
                assert taker.asking.cancelled()
                taker.taken.clear()  # the member remembers nothing either
            state = await replay(on, file)
            calls = Counter(taker.called)
            assert sorted(calls) == list(range(40))
            twice = {number for number, times in calls.items() if times > 1}
            assert twice <= {int(place.rpartition(":")[2]) for place in state.perhaps_twice}
            assert len(state.perhaps_twice) <= 8 * len(kills)
            # The one that failed again is another dead letter, with the new reason.
            again = Counter(await bodies(on, "%DLQ%billing")) - Counter(range(40))
            assert set(again) == {7}
            letter = (await newest(on.cluster, "billing", 1))[0]
            assert (letter.message.body, letter.reason, letter.topic) == (b"7", "ValueError: no more 7", "orders")

    run_virtual(story)


def test_what_no_member_takes_is_told_and_goes_on_later(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 3)
            taker = Taker(on)
            taker.results[1] = DirectResult(NOT_TAKEN, "topic orders is paused")
            await taker.join()
            refused = await outcome(replay(on, file))
            assert "no member takes it: topic orders is paused" in str(refused)
            taker.results.clear()
            assert (await replay(on, file)).left == 0
            assert sorted(await bodies(on, "%DLQ%billing")) == list(range(3))

    run_virtual(story)


def test_a_single_one_is_taken_by_a_member_and_one_that_none_takes_is_in_no_other_s_way(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 5)
            taker = Taker(on)
            taker.results[1] = DirectResult(NOT_TAKEN, "topic orders is paused")
            await taker.join()
            refused = await outcome(replay_one(on, file, 1))
            assert "no member takes it: topic orders is paused" in str(refused)
            assert await replay_one(on, file, 3)
            taker.results.clear()
            assert (await replay(on, file)).left == 0
            assert Counter(taker.called) == Counter(range(5))

    run_virtual(story)


def test_a_state_of_another_group_or_cluster_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 1)
            await replay(on, file)
            for group, named in (("stock", "here"), ("billing", "there")):
                refused = await outcome(begin(on.cluster, file, group=group, named=named, again=False))
                assert isinstance(refused, AdminError)
                assert "give another --state" in str(refused)

    run_virtual(story)


def test_one_process_at_a_time_uses_a_state(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    with file.held(), pytest.raises(AdminError) as caught, StateFile(file.path).held():
        pass
    assert str(caught.value) == f"{file.path}: another replay uses it: wait for its end"
    with file.held():
        assert file.read() is None


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    file, dead = StateFile(tmp_path / "state.json"), str(MessageQueue("%DLQ%g", "broker-a", 0))
    into = MessageQueue("%RETRY%g", "b:c@d", 1)
    window = Window(dead, 5, 8, {str(into): 7})
    state = ReplayState("g", "127.0.0.1:9876", {dead: 5}, {dead: 9}, 5, window)
    file.write(state)
    assert file.read() == state
    assert state.left == 4
    assert queue_of(str(into)) == into


WHOLE = '"version": 1, "group": "g", "cluster": "here"'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', f'{{{WHOLE}, "window": 7}}', f'{{{WHOLE}, "ends": {{"no queue": 1}}}}'],
)
def test_a_damaged_state_is_told_with_its_mend(tmp_path: Path, text: str) -> None:
    file = StateFile(tmp_path / "state.json")
    file.path.write_text(text)
    with pytest.raises(AdminError, match="move it away"):
        file.read()


def test_a_state_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "missing" / "state.json")
    with pytest.raises(AdminError, match="give another with --state"), file.held():
        pass


def test_what_cannot_go_out_is_named_and_may_be_passed_over(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 3)
            await on.client.send("%DLQ%billing", b"7", queue_id=0)
            await on.bury("billing", 2, first=3)
            refused = await outcome(replay(on, file))
            assert isinstance(refused, AdminError)
            assert str(refused).endswith("mend that, or pass it over with --skip broker-a:0:3")
            await replay(on, file, skip=frozenset({"broker-a:0:3"}))
            assert sorted(await bodies(on, "%RETRY%billing")) == list(range(5))

    run_virtual(story)


class Stalling:
    """A producer that one of its sends keeps waiting; knows when each was sent."""

    def __init__(self, producer: Producer, *, stalls_at: int, seconds: float) -> None:
        self._producer, self._stalls_at, self._seconds = producer, stalls_at, seconds
        self.sent: list[float] = []

    async def send_raw(self, *arguments: Any, **more: Any) -> Any:
        self.sent.append(asyncio.get_running_loop().time())
        if len(self.sent) == self._stalls_at:
            await asyncio.sleep(self._seconds)
        return await self._producer.send_raw(*arguments, **more)


def test_the_rate_holds_after_a_stall(tmp_path: Path) -> None:
    async def story() -> list[float]:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 300)
            state = await begin(on.cluster, file, group="billing", named="here", again=False)
            producer: Any = Stalling(on.producer(), stalls_at=20, seconds=60.0)
            await Replay(on.cluster, producer, state, file, rate=20).run()
            return list(producer.sent)

    sent = run_virtual(story)
    in_a_second = [sum(begin <= at < begin + 1 for at in sent) for begin in sent]
    assert max(in_a_second) <= 2 * 20 + 2


def test_a_state_of_messages_that_are_gone_does_not_hide_those_that_are_there(tmp_path: Path) -> None:
    async def story() -> None:
        file = StateFile(tmp_path / "state.json")
        async with stage() as on:
            await on.bury("billing", 5)
            await replay(on, file)
        async with stage() as on:  # it has lost its disk
            await on.bury("billing", 2)
            refused = await outcome(replay(on, file))
            assert isinstance(refused, AdminError)
            assert "knows %DLQ%billing@broker-a:0 up to offset 5, and it ends at 2" in str(refused)
            assert (await replay(on, file, again=True)).replayed == 2

    run_virtual(story)


def test_a_state_is_on_disk_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, synced = StateFile(tmp_path / "state.json"), list[tuple[bool, bool]]()
    sync = os.fsync

    def noted(opened: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(opened).st_mode), file.path.exists()))
        sync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    file.write(ReplayState("g", "here"))
    assert synced == [(False, False), (True, True)]


def test_one_replay_has_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file, other = StateFile(tmp_path / "state.json"), StateFile(tmp_path / "state.json")
    with file.held(), pytest.raises(AdminError, match="another replay uses it"), other.held():
        pass
    with other.held():
        pass
    assert not list(tmp_path.iterdir())
