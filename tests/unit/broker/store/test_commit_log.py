from __future__ import annotations

from pathlib import Path

import pytest

from rocketapp.broker.store.commit_log import CommitLog, segment_name
from rocketapp.broker.store.files import DirectoryFiles, MemoryFiles, read_whole
from rocketapp.errors import ConfigError, StoreError
from tests.unit.broker.store.disk import Disk
from tests.unit.broker.store.stores import Watched

SEGMENT = 1000


def write(log: CommitLog, size: int) -> int:
    position = log.make_room(size)
    log.write(b"r" * size)
    return position


def begun(files: MemoryFiles, end: int) -> CommitLog:
    """A log that is opened again and ends here."""
    log = CommitLog(files, SEGMENT)
    log.begin(end, synced=0, keeps_rest=True)
    return log


def test_a_segment_is_a_sparse_file_named_by_its_position() -> None:
    files = MemoryFiles()
    log = CommitLog(files, 1 << 30)
    assert files.names("commitlog") == []
    assert write(log, 100) == 0
    assert files.names("commitlog") == ["00000000000000000000"]
    assert files.open(segment_name(0)).size() == 1 << 30
    assert log.end == 100


def test_where_every_write_is_synced_only_one_in_many_needs_a_new_place_on_the_disk(tmp_path: Path) -> None:
    files = DirectoryFiles(str(tmp_path))
    log = CommitLog(files, 1 << 24, writes_ahead=True)
    places = list[int]()
    for _ in range(1000):
        write(log, 1000)
        places.append((tmp_path / segment_name(0)).stat().st_blocks * 512)
    assert len(set(places)) <= 3
    assert places[-1] < 1 << 22
    log.begin(log.end, synced=log.end, keeps_rest=True)
    assert log.read(999_000, 2000) == b"r" * 1000 + bytes(1000)
    log.close()
    files.close()


@pytest.mark.parametrize("writes_ahead", [False, True])
def test_a_record_that_leaves_no_room_for_the_blank_goes_into_the_next_segment(writes_ahead: bool) -> None:
    files = MemoryFiles()
    log = CommitLog(files, SEGMENT, writes_ahead=writes_ahead)
    assert [write(log, 496), write(log, 496)] == [0, 496]
    assert log.end == 992
    assert write(log, 1) == 1000
    assert log.read(992, 100) == bytes.fromhex("00000008cbd43194")
    assert [files.open(segment_name(start)).size() for start in (0, 1000)] == [SEGMENT, SEGMENT]
    assert files.names("commitlog") == ["00000000000000000000", "00000000000000001000"]
    assert log.read(1000, 2) == b"r\0"
    assert log.segment_end(999) == 1000
    assert log.segment_end(1000) == 2000


def test_nothing_is_read_outside_the_log() -> None:
    log = CommitLog(MemoryFiles(), SEGMENT)
    assert log.read(0, 10) == b""
    write(log, 10)
    assert log.read(-5, 10) == b""
    assert log.read(5000, 10) == b""


def test_cutting_removes_segments_and_leaves_zeros() -> None:
    files = MemoryFiles()
    log = CommitLog(files, SEGMENT)
    for _ in range(5):
        write(log, 600)
    assert len(files.names("commitlog")) == 5
    log = begun(files, 1300)
    assert files.names("commitlog") == ["00000000000000000000", "00000000000000001000"]
    assert log.read(1000, 1000) == b"r" * 300 + bytes(700)
    assert write(log, 600) == 1300
    log = begun(files, 1000)
    assert log.end == 1000
    assert write(log, 600) == 1000
    begun(files, 0)
    assert files.names("commitlog") == ["00000000000000000000"]


def test_what_is_cut_off_is_put_aside() -> None:
    files = MemoryFiles()
    log = CommitLog(files, SEGMENT)
    for _ in range(3):
        write(log, 600)
    begun(files, 1300)
    begun(files, 1200)
    files.open(segment_name(1000)).write(b"again", 200)
    begun(files, 1200)
    kept = {name: read_whole(files, f"cut/{name}") for name in files.names("cut")}
    assert kept == {
        "00000000000000001200.0": b"r" * 100,
        "00000000000000001200.1": b"again",
        "00000000000000001300.0": b"r" * 300 + bytes.fromhex("00000190cbd43194"),
        "00000000000000002000.0": b"r" * 600 + bytes(400),
    }


def test_sectors_that_cannot_be_read_cost_themselves() -> None:
    disk = Disk()
    log = CommitLog(disk, 1 << 16)
    write(log, 9000)
    disk.bad = {(segment_name(0), 3), (segment_name(0), 9)}
    data = log.read(100, 8000)
    assert len(data) == 8000
    bad = [at for at in range(8000) if data[at : at + 1] == b"\xff"]
    assert bad == [*range(3 * 512 - 100, 4 * 512 - 100), *range(9 * 512 - 100, 10 * 512 - 100)]


def test_few_segments_are_open_at_once() -> None:
    files = Watched()
    log = CommitLog(files, SEGMENT)
    for _ in range(200):
        write(log, 900)
        log.synced(list(log.unsynced()[:-1]))
    assert all(log.read(at, 1) == b"r" for at in range(0, 200_000, SEGMENT))
    assert len(files.opened) <= 34
    log.close()
    assert not files.opened


def test_a_log_whose_first_segments_were_deleted_keeps_its_positions() -> None:
    files = MemoryFiles()
    files.open(segment_name(5000), create=True).truncate(SEGMENT)
    log = CommitLog(files, SEGMENT)
    assert (log.min_position, log.end, log.files_end) == (5000, 5000, 6000)
    log.begin(5000, synced=0, keeps_rest=False)
    assert write(log, 600) == 5000
    assert write(log, 600) == 6000
    assert log.read(6000, 1) == b"r"


def test_the_last_segment_is_extended_if_a_crash_left_it_short() -> None:
    files = MemoryFiles()
    files.open(segment_name(0), create=True).truncate(SEGMENT)
    files.open(segment_name(1000), create=True)
    CommitLog(files, SEGMENT)
    assert files.open(segment_name(1000)).size() == SEGMENT


@pytest.mark.parametrize("sizes", [{0: 2000}, {0: 500, 1000: 1000}, {0: 1000, 3000: 1000}])
def test_segments_of_another_size_are_refused_with_the_option_that_mends_it(sizes: dict[int, int]) -> None:
    files = MemoryFiles()
    for position, size in sizes.items():
        files.open(segment_name(position), create=True).truncate(size)
    with pytest.raises(ConfigError, match=r"broker\.segment_bytes"):
        CommitLog(files, SEGMENT)


def test_other_files_beside_the_segments_are_left_alone() -> None:
    files = MemoryFiles()
    files.open("commitlog/notes.txt", create=True)
    log = CommitLog(files, SEGMENT)
    write(log, 10)
    begun(files, 0)
    assert "notes.txt" in files.names("commitlog")


class FailingAt:
    """Fails chosen calls of a disk."""

    def __init__(self, *calls: str) -> None:
        self.calls = list(calls)

    def __call__(self, number: int, name: str, path: str) -> None:
        if self.calls and name == self.calls[0]:
            del self.calls[0]
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("writes_ahead", [False, True])
def test_a_failed_write_is_cut_back_and_the_next_one_succeeds(writes_ahead: bool) -> None:
    disk = Disk()
    log = CommitLog(disk, SEGMENT, writes_ahead=writes_ahead)
    write(log, 100)
    assert log.read(100, 900) == bytes(900)
    disk.on_call = FailingAt("write")
    with pytest.raises(StoreError) as refused:
        write(log, 200)
    assert not refused.value.is_unknown
    assert "No space" in str(refused.value)
    assert log.read(100, 900) == bytes(900)
    assert write(log, 300) == 100


def test_a_failed_write_that_cannot_be_cut_back_is_unknown() -> None:
    disk = Disk()
    log = CommitLog(disk, SEGMENT)
    write(log, 100)
    disk.on_call = FailingAt("write", "truncate")
    with pytest.raises(StoreError) as unknown:
        write(log, 200)
    assert unknown.value.is_unknown


@pytest.mark.parametrize("call", ["create", "truncate", "sync", "sync_directory", "write"])
def test_a_segment_that_cannot_be_begun_is_tried_again(call: str) -> None:
    disk = Disk()
    log = CommitLog(disk, SEGMENT)
    write(log, 900)
    disk.on_call = FailingAt(call)
    with pytest.raises(StoreError) as refused:
        write(log, 500)
    assert not refused.value.is_unknown
    assert log.end == 900
    assert write(log, 500) == 1000
    assert log.read(900, 8) == bytes.fromhex("00000064cbd43194")
