from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from rocketapp.broker.store import files as files_module
from rocketapp.broker.store.files import DirectoryFiles, Files, MemoryFiles, read_whole, replace_whole
from rocketapp.errors import ConfigError


@pytest.fixture(params=["directory", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return DirectoryFiles(str(tmp_path / "data")) if request.param == "directory" else MemoryFiles()


def test_what_is_written_is_read_and_gaps_are_zero(files: Files) -> None:
    file = files.open("a/b/c", create=True)
    file.write(b"hello", 3)
    assert file.size() == 8
    assert file.read(100, 0) == b"\0\0\0hello"
    assert file.read(2, 4) == b"el"
    assert file.read(2, 100) == b""


def test_truncating_cuts_and_extends_with_zeros(files: Files) -> None:
    file = files.open("f", create=True)
    file.write(b"0123456789", 0)
    file.truncate(4)
    file.truncate(1 << 30)
    assert file.size() == 1 << 30
    assert file.read(8, 0) == b"0123\0\0\0\0"
    assert file.read(8, (1 << 30) - 4) == bytes(4)
    file.write(b"x", 2)
    assert file.read(4, 0) == b"01x3"


def test_files_are_opened_listed_renamed_and_removed(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("missing")
    for path in ("dir/2", "dir/1", "dir/sub/3"):
        files.open(path, create=True).write(path.encode(), 0)
    assert files.names("dir") == ["1", "2", "sub"]
    assert files.names("missing") == []
    files.rename("dir/1", "dir/2")
    assert files.names("dir") == ["2", "sub"]
    assert read_whole(files, "dir/2") == b"dir/1"
    files.remove("dir/2")
    files.remove("dir/2")
    files.remove("dir/sub/3")
    files.remove("dir/sub")
    assert files.names("dir") == []
    with pytest.raises(FileNotFoundError):
        files.rename("dir/1", "dir/2")


def test_a_file_is_replaced_as_a_whole(files: Files) -> None:
    assert read_whole(files, "config/t.json") is None
    replace_whole(files, "config/t.json", b"long content")
    replace_whole(files, "config/t.json", b"short")
    assert read_whole(files, "config/t.json") == b"short"
    assert files.names("config") == ["t.json"]


def test_an_open_file_outlives_its_name(files: Files) -> None:
    file = files.open("f", create=True)
    files.remove("f")
    file.write(b"still", 0)
    assert file.read(5, 0) == b"still"
    file.sync()
    file.close()


def test_a_clone_of_memory_has_a_life_of_its_own() -> None:
    files = MemoryFiles()
    file = files.open("f", create=True)
    file.write(b"one", 0)
    clone = deepcopy(files)
    file.write(b"two", 0)
    assert read_whole(clone, "f") == b"one"
    assert list(clone.paths()) == ["f"]


def test_a_path_never_leaves_the_directory(tmp_path: Path) -> None:
    files = DirectoryFiles(str(tmp_path / "data"))
    for path in ("../evil", "a/../../evil", "/evil"):
        with pytest.raises(ValueError, match="leaves the data directory"):
            files.open(path, create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_second_broker_on_a_directory_is_refused_by_name_and_process(tmp_path: Path) -> None:
    first = DirectoryFiles(str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        DirectoryFiles(str(tmp_path))
    assert str(tmp_path) in str(refused.value)
    assert f"in use by another broker (process {os.getpid()})" in str(refused.value)
    first.close()
    first.close()
    DirectoryFiles(str(tmp_path)).close()


def test_a_refused_second_broker_of_this_process_does_not_unlock_the_first(tmp_path: Path) -> None:
    """Apache RocketMQ asks for the first byte, for its process, as this other process does."""
    other = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    first = DirectoryFiles(str(tmp_path))
    with pytest.raises(ConfigError):
        DirectoryFiles(str(tmp_path))
    asked = [sys.executable, "-c", other, str(tmp_path / "lock")]
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 1
    first.close()
    assert subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_nobody_else_reads_what_a_store_holds(tmp_path: Path) -> None:
    files = DirectoryFiles(str(tmp_path / "data"))
    files.open("config/topics.json", create=True).close()
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "data").rglob("*")} == {0}
    files.close()


def test_other_trouble_with_the_lock_is_not_taken_for_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def refuse(*call: object) -> None:
        raise OSError(37, "No locks available")

    for name in ("fcntl", "flock"):
        monkeypatch.setattr(fcntl, name, refuse)
    with pytest.raises(OSError, match="No locks available"):
        DirectoryFiles(str(tmp_path))


def test_a_short_write_is_completed_or_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DirectoryFiles(str(tmp_path)).open("f", create=True)
    real = os.pwrite
    written: list[int] = []

    def at_most_three(fd: int, data: bytes, at: int) -> int:
        if sum(written) >= 9:
            raise OSError(28, "No space left on device")
        written.append(real(fd, bytes(data)[:3], at))
        return written[-1]

    monkeypatch.setattr(os, "pwrite", at_most_three)
    file.write(b"12345678", 0)
    assert file.read(100, 0) == b"12345678"
    with pytest.raises(OSError, match="No space"):
        file.write(b"abcdef", 8)


def test_new_directories_are_synced_up_to_the_one_that_existed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files_module, "_sync_directory", synced.append)
    files = DirectoryFiles(str(tmp_path))
    files.open("consumequeue/T/0/f", create=True)
    files.sync_directory("consumequeue/T/0")
    parts: Callable[[Path], str] = lambda path: str(path.relative_to(tmp_path))  # noqa: E731
    assert [parts(path) for path in synced] == ["consumequeue/T/0", "consumequeue/T", "consumequeue", "."]
    synced.clear()
    files.sync_directory("consumequeue/T/0")
    assert [parts(path) for path in synced] == ["consumequeue/T/0"]


def test_an_error_of_the_disk_names_the_file(tmp_path: Path) -> None:
    files = DirectoryFiles(str(tmp_path / "data"))
    (tmp_path / "data" / "full").symlink_to("/dev/full")
    file = files.open("full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/data/full'"):
        file.write(b"x", 0)
    file.close()
    files.close()
