from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.broker.store.config_files import CONSUMER_OFFSETS, ConfigFile, decode, encode
from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.errors import ConfigError, ProtocolError
from rocketapp.model.event import TableRestored
from rocketapp.plugins.log_lines import line_of
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
    return {"offsetTable": {"T@g": {0: number}}, "filler": "x" * (50 - number)}


def test_tables_are_written_as_apache_writes_them() -> None:
    assert encode(OFFSETS) == APACHE


def test_older_forms_of_apache_are_read() -> None:
    old = b'{\n\t"offsetTable":{\n\t\t"%RETRY%g@g":{0:0\n\t\t},\n\t\t"T@g":{0:250,1:251\n\t\t}\n\t}\n}'
    assert decode(old) == {"offsetTable": {"%RETRY%g@g": {0: 0}, "T@g": {0: 250, 1: 251}}}


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(st.integers(0, 2**31), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(names, values, max_size=4))
def test_tables_come_back_as_they_were(value: dict[str, Any]) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", APACHE[:-1], APACHE[:100], bytes(100)])
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
    others = files.clone()
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
