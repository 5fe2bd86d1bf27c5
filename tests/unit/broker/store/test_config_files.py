from __future__ import annotations

import contextlib
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.store.config_files import CONSUMER_OFFSETS, TOPICS, ConfigFile, decode, encode
from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.errors import ConfigError, ProtocolError
from rocketapp.model.event import TableRestored
from rocketapp.plugins.log_lines import line_of
from tests.cases import cases
from tests.unit.broker.store.disk import Disk, Stopped
from tests.unit.broker.store.stores import Events

OFFSETS = {
    "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1795226778614},
    "groupTopicMap": {"g1": ["Ours"]},
    "offsetTable": {"Ours@g1": {0: 7, 1: 5}},
    "pullOffsetTable": {},
}
APACHE = b"""{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1795226778614
	},
	"groupTopicMap":{
		"g1":["Ours"]
	},
	"offsetTable":{
		"Ours@g1":{
			0:7,
			1:5
		}
	},
	"pullOffsetTable":{}
}"""


def table(number: int) -> dict[str, Any]:
    return {"offsetTable": {"T@g": {"0": number}}, "filler": "x" * (50 - number)}


def test_tables_that_apache_has_written_are_read() -> None:
    assert decode(APACHE) == OFFSETS


def test_older_forms_of_apache_are_read() -> None:
    old = b'{\n\t"offsetTable":{\n\t\t"%RETRY%g@g":{0:0\n\t\t},\n\t\t"T@g":{0:250,1:251\n\t\t}\n\t}\n}'
    assert decode(old) == {"offsetTable": {"%RETRY%g@g": {0: 0}, "T@g": {0: 250, 1: 251}}}


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(names, values, max_size=4))
def test_tables_come_back_as_they_were(value: dict[str, Any]) -> None:
    assert decode(encode(value)) == value


@cases("data", [b"", b"[]", b"7", b"{", APACHE[:-1], APACHE[:100], bytes(100)])
def test_a_part_of_a_table_is_not_taken_for_one(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def test_saving_keeps_the_content_before() -> None:
    files = MemoryFiles()
    file = ConfigFile(files, CONSUMER_OFFSETS)
    assert file.load() is None
    for number in range(3):
        file.save(table(number))
    assert file.load() == table(2)
    assert files.names("config") == ["consumerOffset.json", "consumerOffset.json.bak"]
    bak = read_whole(files, f"{CONSUMER_OFFSETS}.bak")
    assert bak is not None
    assert decode(bak) == table(1)
    assert ConfigFile(files, CONSUMER_OFFSETS).load() == table(2)


def test_a_file_that_was_saved_once_is_in_its_backup_too() -> None:
    files = MemoryFiles()
    file = ConfigFile(files, CONSUMER_OFFSETS)
    assert file.load() is None
    file.save(table(1))
    files.open(CONSUMER_OFFSETS).truncate(30)
    assert ConfigFile(files, CONSUMER_OFFSETS).load() == table(1)


@pytest.mark.parametrize("harm", ["missing", "empty", "torn", "zeros"])
def test_a_damaged_file_is_replaced_by_the_content_before_and_never_backed_up(harm: str) -> None:
    files = MemoryFiles()
    file = ConfigFile(files, CONSUMER_OFFSETS)
    file.save(table(1))
    file.save(table(2))
    if harm == "missing":
        files.remove(CONSUMER_OFFSETS)
    elif harm == "zeros":
        files.open(CONSUMER_OFFSETS).write(bytes(60), 0)
    else:
        files.open(CONSUMER_OFFSETS).truncate(0 if harm == "empty" else 30)
    events = Events()
    fresh = ConfigFile(files, CONSUMER_OFFSETS, events)
    others = deepcopy(files)
    without_loading = ConfigFile(others, CONSUMER_OFFSETS)
    assert fresh.load() == table(1)
    (told,) = events.of(TableRestored)
    assert line_of(told).text.startswith(f"{fresh.place} cannot be used (")
    assert f"): {fresh.place}.bak was taken in its place" in line_of(told).text
    for each, its_files in ((fresh, files), (without_loading, others)):
        each.save(table(3))
        assert each.load() == table(3)
        bak = read_whole(its_files, f"{CONSUMER_OFFSETS}.bak")
        assert bak is not None
        assert decode(bak) == table(1)


@pytest.mark.parametrize(("main", "bak"), [(b"{", b"{"), (b"", None), (None, b""), (b"{", None), (b"[]", b"\0\0")])
def test_if_nothing_can_be_read_the_start_fails_by_name(main: bytes | None, bak: bytes | None) -> None:
    files = MemoryFiles()
    for path, data in ((CONSUMER_OFFSETS, main), (f"{CONSUMER_OFFSETS}.bak", bak)):
        if data is not None:
            files.open(path, create=True).write(data, 0)
    with pytest.raises(ConfigError, match=r"config/consumerOffset\.json: cannot be read"):
        ConfigFile(files, CONSUMER_OFFSETS).load()


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_crash_at_any_moment_leaves_the_newest_content_or_the_one_before(seed: int, stop_at: int) -> None:
    disk = Disk()
    saved = -1

    def stop(number: int, name: str, path: str) -> None:
        if number == stop_at:
            raise Stopped

    disk.on_call = stop
    file = ConfigFile(disk, CONSUMER_OFFSETS)
    try:
        file.load()
        for number in range(20):
            file.save(table(number))
            saved = number
    except Stopped:
        pass
    for files in (disk.killed(), disk.without_power(Random(seed))):
        found = ConfigFile(files, CONSUMER_OFFSETS).load()
        allowed = [table(number) for number in (saved, saved + 1) if number >= 0]
        assert found in allowed or (saved < 0 and found is None)


@given(st.integers(1, 30), st.integers(0, 2**32))
def test_a_disk_that_refuses_once_leaves_the_content_before(fail_at: int, seed: int) -> None:
    disk = Disk()

    def fail(number: int, name: str, path: str) -> None:
        if number == fail_at:
            raise OSError(28, "No space left on device")

    disk.on_call = fail
    file = ConfigFile(disk, CONSUMER_OFFSETS)
    saved = None
    for number in range(6):
        try:
            file.save(table(number))
            saved = number
        except OSError:
            found = ConfigFile(disk, CONSUMER_OFFSETS).load()
            assert found in (None if saved is None else table(saved), table(number))
    assert file.load() == table(5)
    assert ConfigFile(disk.without_power(Random(seed)), CONSUMER_OFFSETS).load() == table(5)


def topics(counter: int, *names: str, **changed: object) -> dict[str, Any]:
    """The table that has these, in its version of this number."""
    return {
        "dataVersion": {"counter": counter},
        "topicConfigTable": {**{name: {"of": name} for name in names}, **changed},
    }


def growing(disk: Disk | MemoryFiles) -> Iterator[dict[str, Any]]:
    """Save and change a table, twenty times; yields its content whenever it is on the disk."""
    file, counter, kept = ConfigFile(disk, TOPICS), 0, list[str]()
    for number in range(20):
        counter, name = counter + 1, f"T{number}"
        if number % 5 == 0:
            kept.append(name)
            file.save(topics(counter, *kept))
        elif number % 5 == 3:
            file.append(topics(counter, T=None, **{kept.pop(0): None}))
        else:
            kept.append(name)
            file.append(topics(counter, name))
        yield topics(counter, *kept)


def test_a_change_is_a_line_until_the_next_save() -> None:
    files = MemoryFiles()
    for number, content in enumerate(growing(files)):
        assert ConfigFile(files, TOPICS).load() == content
        assert files.names("config").count("topics.json.changes") == (number % 5 != 0)


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_a_crash_among_changes_leaves_the_newest_content_or_the_one_before(seed: int, stop_at: int) -> None:
    disk, steps = Disk(), [None, *growing(MemoryFiles()), None]

    def stop(number: int, name: str, path: str) -> None:
        if number == stop_at:
            raise Stopped

    disk.on_call = stop
    done = 0
    with contextlib.suppress(Stopped):
        for _ in growing(disk):
            done += 1
    for files in (disk.killed(), disk.without_power(Random(seed))):
        assert ConfigFile(files, TOPICS).load() in (steps[done], steps[done + 1])


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_after_a_change_that_the_disk_refused_the_whole_is_written(fail_at: int, seed: int) -> None:
    disk = Disk()

    def fail(number: int, name: str, path: str) -> None:
        if number == fail_at:
            raise OSError(28, "No space left on device")

    file, content = ConfigFile(disk, TOPICS), topics(0)
    for counter in range(1, 9):
        if counter == 2:
            disk.on_call = fail
        change, after = topics(counter, f"T{counter}"), topics(counter, *content["topicConfigTable"], f"T{counter}")
        with contextlib.suppress(OSError):
            file.append(change) if file.changes_end is not None else file.save(after)
            content = after
            continue
        assert file.changes_end is None
        assert ConfigFile(disk, TOPICS).load() in (content, after)
    assert ConfigFile(disk.without_power(Random(seed)), TOPICS).load() == content


def test_a_change_of_what_another_program_has_replaced_is_not_applied() -> None:
    files = MemoryFiles()
    file = ConfigFile(files, TOPICS)
    file.save(topics(1, "ours"))
    file.append(topics(2, "second"))
    file.append(topics(3, "third"))
    theirs = encode({"dataVersion": {"counter": 2, "timestamp": 7}, "topicConfigTable": {}})
    files.open(TOPICS).truncate(0)
    files.open(TOPICS).write(theirs, 0)
    again = ConfigFile(files, TOPICS)
    assert again.load() == decode(theirs)
    assert again.changes_end is None
    again.save(topics(3, "theirs"))
    again.append(topics(4, "new"))
    assert ConfigFile(files, TOPICS).load() == topics(4, "theirs", "new")
