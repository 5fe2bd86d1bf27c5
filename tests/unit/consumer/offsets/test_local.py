"""Offsets of a broadcast group in a file: what a restart finds, and what happens when the file cannot be used."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.consumer.offsets import local
from rocketapp.consumer.offsets.local import LocalOffsets, decode, encode, folder_of
from rocketapp.errors import RequestTimeoutError
from rocketapp.model.event import OffsetsFile
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.queue_identity import Landmark
from tests.cases import cases
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import HANGS, Events, eventually, in_virtual_time

ONE, TWO = MessageQueue("topic", "broker-a", 0), MessageQueue("topic", "broker-b", 3)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The files are real, and written in a thread: so is the time."""

    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


class Opened:
    """The store of one worker."""

    def __init__(self, folder: Path, worker: int | None = 1) -> None:
        self.events = Events()
        member = member_alone(events=self.events, broadcast=True)
        self.tasks = member.tasks
        self.store = LocalOffsets(member, folder, worker)
        self.store.open()

    @property
    def told(self) -> list[str]:
        return [event.text for event in self.events.of(OffsetsFile)]  # type: ignore[attr-defined]

    async def commit(self, *offsets: tuple[MessageQueue, int]) -> None:
        commits: list[Awaitable[None]] = [self.store.commit(queue, offset, timeout=HANGS) for queue, offset in offsets]
        await asyncio.gather(*commits)


def stored(path: Path) -> dict[MessageQueue, int]:
    return decode(path.read_bytes())[0]


QUEUES = st.builds(MessageQueue, st.text(), st.text(), st.integers(0, 2**31 - 1))


@given(st.dictionaries(QUEUES, st.integers(0, 2**63 - 1)))
def test_what_is_written_is_read(offsets: dict[MessageQueue, int]) -> None:
    assert decode(encode(offsets, {})) == (offsets, {})


@given(st.dictionaries(QUEUES, st.builds(Landmark, st.integers(0, 2**63 - 1), st.integers(), st.text(max_size=5))))
def test_a_queue_is_known_again_by_what_is_written_beside_its_offset(marks: dict[MessageQueue, Landmark]) -> None:
    _, found = decode(encode(dict.fromkeys(marks, 5), marks))
    assert {queue: Landmark.of_text(text) for queue, text in found.items()} == marks


def test_a_file_of_the_version_before_is_read() -> None:
    row = {"topic": ONE.topic, "broker": ONE.broker_name, "queue": ONE.queue_id, "offset": 5}
    assert decode(json.dumps({"version": 1, "offsets": [row]}).encode()) == ({ONE: 5}, {})
    assert json.loads(encode({ONE: 5}, {})) == {"version": 2, "offsets": [row]}, "a row without a landmark is as before"


@cases(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version": 3, "offsets": []}',
        b'{"version": 1, "offsets": [5]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": 0, "offset": -1}]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": 0, "offset": "5"}]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": 0}]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": 0, "offset": 9223372036854775808}]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": 2147483648, "offset": 5}]}',
        b'{"version": 1, "offsets": [{"topic": "t", "broker": "b", "queue": -1, "offset": 5}]}',
        b'{"version": 2, "offsets": [], "more": ' + b"[" * 100_000,
        encode({ONE: 5}, {})[:-10],
    ],
)
def test_a_text_that_is_not_offsets_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_a_folder_never_leaves_its_directory() -> None:
    assert folder_of("base", cluster="", group="group") == Path("base/unnamed/group")
    assert folder_of("base", cluster="..", group="a/b") == Path("base/%2E%2E/a%2Fb")


@in_a_loop
async def test_a_restart_goes_on_where_the_last_run_was_done(tmp_path: Path) -> None:
    first = Opened(tmp_path)
    assert first.told == ["it is missing: queues begin by their start rule"]
    await first.commit((ONE, 5), (TWO, 7))
    await first.commit((ONE, 6))
    first.store.close()
    second = Opened(tmp_path)
    assert second.told == []
    assert await second.store.committed_for_start(ONE) == (6, True)
    assert await second.store.committed(TWO) == 7
    assert await second.store.committed(MessageQueue("topic", "broker-c", 0)) is None
    second.store.close()


@in_a_loop
async def test_commits_of_one_round_are_written_at_once(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    await opened.commit(*((MessageQueue("topic", "broker-a", number), number) for number in range(50)))
    assert not (tmp_path / "worker-1.json.bak").exists()  # a second write would have made it
    assert len(stored(tmp_path / "worker-1.json")) == 50
    opened.store.close()


@pytest.mark.parametrize(
    ("damage", "problem"), [(b"{", "worker-1.json is corrupt: "), (None, "worker-1.json is missing")]
)
def test_a_file_that_is_damaged_or_gone_is_replaced_by_the_one_before(
    tmp_path: Path, damage: bytes | None, problem: str
) -> None:
    async def story() -> None:
        first = Opened(tmp_path)
        await first.commit((ONE, 5))
        await first.commit((ONE, 6))
        first.store.close()
        path = tmp_path / "worker-1.json"
        path.unlink() if damage is None else path.write_bytes(damage)
        second = Opened(tmp_path)
        assert await second.store.committed(ONE) == 5
        assert len(second.told) == 1
        assert second.told[0].startswith(problem)
        assert second.told[0].endswith("queues go on where worker-1.json.bak says, and may repeat messages")
        await second.commit((ONE, 9))
        # The damaged file has not become the backup.
        assert stored(tmp_path / "worker-1.json.bak") == {ONE: 5}
        second.store.close()

    asyncio.run(story())


@in_a_loop
async def test_with_both_files_corrupt_queues_begin_as_new(tmp_path: Path) -> None:
    (tmp_path / "worker-1.json").write_bytes(b"\0" * 100)
    (tmp_path / "worker-1.json.bak").write_bytes(b"")
    opened = Opened(tmp_path)
    assert await opened.store.committed_for_start(ONE) == (None, True)
    (told,) = opened.told
    assert "worker-1.json is corrupt" in told
    assert "worker-1.json.bak is corrupt" in told
    assert told.endswith("queues begin by their start rule")
    opened.store.close()


@in_a_loop
async def test_a_second_process_with_the_same_number_takes_the_next_and_says_so(tmp_path: Path) -> None:
    first = Opened(tmp_path)
    await first.commit((ONE, 5))
    second = Opened(tmp_path)
    assert second.told[0] == "used because another process has worker-1.json"
    assert await second.store.committed(ONE) is None
    await second.commit((ONE, 9))
    first.store.close()
    third = Opened(tmp_path)
    assert await third.store.committed(ONE) == 5
    for opened in (second, third):
        opened.store.close()


@in_a_loop
async def test_a_process_that_may_have_no_more_threads_says_that_it_does_not_write(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    with pytest.MonkeyPatch.context() as patch:

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        await opened.commit((ONE, 5))
    assert opened.told[-1].startswith("can't start new thread: after a restart")
    assert await opened.store.committed(ONE) == 5
    assert stored(tmp_path / "worker-1.json") == {ONE: 5}, "written when it is looked at again"
    opened.store.close()


@in_a_loop
async def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    opened = Opened(tmp_path / "file" / "below")  # also for root, who may write everywhere
    await opened.commit((ONE, 5))
    await opened.commit((ONE, 6))
    assert await opened.store.committed(ONE) == 6
    assert opened.told[0].startswith("it cannot be locked: ")
    assert opened.told[-1].endswith("after a restart, messages may come again, or queues begin by their start rule")
    assert len(opened.told) == len(set(opened.told))
    opened.store.close()


@in_a_loop
async def test_what_a_full_disk_did_not_take_is_written_when_it_is_looked_at_again(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    await opened.commit((ONE, 5))
    (tmp_path / "worker-1.new").mkdir()
    await opened.commit((ONE, 6))
    assert await opened.store.committed(ONE) == 6
    assert stored(tmp_path / "worker-1.json") == {ONE: 5}
    (tmp_path / "worker-1.new").rmdir()
    assert await opened.store.committed(ONE, timeout=1.0) == 6  # as the committer does at the end
    assert stored(tmp_path / "worker-1.json") == {ONE: 6}
    opened.store.close()


@in_a_loop
async def test_what_a_full_disk_did_not_take_is_written_again_though_every_queue_is_idle(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_AGAIN", 0.01)
        opened = Opened(tmp_path)
        (tmp_path / "worker-1.new").mkdir()
        await opened.commit((ONE, 6))
        (tmp_path / "worker-1.new").rmdir()
        await eventually((tmp_path / "worker-1.json").exists)
    assert stored(tmp_path / "worker-1.json") == {ONE: 6}
    opened.store.close()


@in_virtual_time
async def test_however_many_commits_a_disk_refused_they_are_written_again_together() -> None:
    writes = list[float]()

    async def refuse(*_: object) -> None:
        writes.append(asyncio.get_running_loop().time())
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(local, "in_daemon_thread", refuse)
        opened = Opened(Path(folder))
        for offset in range(20):
            await opened.commit((ONE, offset))
            await asyncio.sleep(0.1)
        writes.clear()
        await asyncio.sleep(100)
        assert len(writes) <= 21
        opened.store.close()


def test_without_a_number_nothing_is_written(tmp_path: Path) -> None:
    async def story() -> None:
        opened = Opened(tmp_path, None)
        await opened.commit((ONE, 5))
        assert await opened.store.committed(ONE) == 5

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == []


@in_a_loop
async def test_a_queue_that_has_appeared_meanwhile_is_known_as_such(tmp_path: Path) -> None:
    first = Opened(tmp_path)
    await first.commit((ONE, 5))
    assert first.store.away_since(TWO) is None  # the file knew nothing when this member began
    first.store.close()
    os.utime(tmp_path / "worker-1.json", (1000.0, 2000.0))
    second = Opened(tmp_path)
    assert second.store.away_since(TWO) == 2000.0
    assert second.store.away_since(ONE) is None
    assert second.store.away_since(MessageQueue("other", "broker-a", 0)) is None
    second.store.close()


def test_a_disk_that_hangs_holds_up_neither_a_commit_nor_the_end_of_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "worker-1.new")  # opening it for writing hangs

    async def story() -> None:
        opened = Opened(tmp_path)
        for _ in range(2):
            with pytest.raises(RequestTimeoutError, match="the disk has not answered within"):
                await opened.store.commit(ONE, 5, timeout=0.05)
        assert await opened.store.committed(ONE) == 5
        await opened.tasks.close()
        opened.store.close()

    asyncio.run(story())  # which would wait for a thread of an executor
    (writing,) = [thread for thread in threading.enumerate() if thread.name == "offsets of group"]
    assert writing.daemon
    os.close(os.open(tmp_path / "worker-1.new", os.O_RDWR))
    writing.join(HANGS)
