from __future__ import annotations

from copy import deepcopy

from rocketapp.broker.store.checkpoint import CHECKPOINT, HINT, Checkpoint, Hint, forget_hint, load_hint, save_hint
from rocketapp.broker.store.files import MemoryFiles, read_whole, replace_whole


def test_the_checkpoint_is_apaches_with_a_note_behind_it() -> None:
    files = MemoryFiles()
    checkpoint = Checkpoint(files)
    checkpoint.write(1111, 4096, 999)
    data = read_whole(files, CHECKPOINT)
    assert data is not None
    assert len(data) == 4096
    numbers = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 40, 8)]
    assert numbers == [1111, 999, 0, 0, 4096]
    assert data[40:256] == bytes(216)
    assert Checkpoint(files).flushed == 4096


def test_numbers_of_apache_that_we_do_not_keep_stay() -> None:
    files = MemoryFiles()
    files.open(CHECKPOINT, create=True).write(bytes(16) + (77).to_bytes(8, "big") + (88).to_bytes(8, "big"), 0)
    Checkpoint(files).write(1, 3, 2)
    data = read_whole(files, CHECKPOINT)
    assert data is not None
    assert (data[23], data[31]) == (77, 88)


def test_without_a_readable_note_nothing_is_known_of_what_was_flushed() -> None:
    files = MemoryFiles()
    assert Checkpoint(files).flushed is None
    Checkpoint(files).write(0, 500, 0)
    assert Checkpoint(files).flushed == 500
    for at in [*range(8), *range(256, 280)]:
        harmed = deepcopy(files)
        byte = harmed.open(CHECKPOINT).read(1, at)[0]
        harmed.open(CHECKPOINT).write(bytes([byte ^ 4]), at)
        assert Checkpoint(harmed).flushed is None


def test_a_hint_comes_back_as_it_was() -> None:
    files = MemoryFiles()
    assert load_hint(files) is None
    hint = Hint(4711, 4500, {"T": {0: (17, 4500)}, "%RETRY%g": {3: (0, -1)}})
    save_hint(files, hint)
    assert load_hint(files) == hint
    forget_hint(files)
    assert load_hint(files) is None


def test_a_damaged_hint_is_not_followed() -> None:
    files = MemoryFiles()
    save_hint(files, Hint(4711, 4500, {"T": {0: (17, 4500)}}))
    data = read_whole(files, HINT)
    assert data is not None
    for at in range(len(data) - 1):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            replace_whole(files, HINT, damaged)
            assert load_hint(files) is None
