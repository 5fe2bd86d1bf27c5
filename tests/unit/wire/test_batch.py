"""Batches of messages in one body."""

from __future__ import annotations

import struct

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.batch import ITEM_BYTES, decode_batch, encode_batch


def test_items_lie_as_brokers_expect_them() -> None:
    assert encode_batch([(b"one", b"k\x01v\x02", 7)]) == (
        struct.pack(">iiiii", 29, 0, 0, 7, 3) + b"one" + struct.pack(">h", 4) + b"k\x01v\x02"
    )


def test_an_item_adds_its_bytes() -> None:
    assert len(encode_batch([(b"", b"", 0)])) == ITEM_BYTES


def test_magic_and_checksum_are_not_looked_at() -> None:
    data = bytearray(encode_batch([(b"one", b"", 0)]))
    struct.pack_into(">ii", data, 4, -1, -2)
    assert decode_batch(bytes(data)) == [(b"one", b"", 0)]


def test_an_empty_body_has_no_items() -> None:
    assert decode_batch(b"") == []


def test_every_cut_of_a_batch_is_refused() -> None:
    data = encode_batch([(b"one", b"k\x01v\x02", 7), (b"two", b"", 0)])
    whole = len(encode_batch([(b"one", b"k\x01v\x02", 7)]))
    for cut in set(range(1, len(data))) - {whole}:
        with pytest.raises(ProtocolError):
            decode_batch(data[:cut])


@pytest.mark.parametrize(("position", "value"), [(0, 0), (0, -1), (0, 2**31 - 1), (16, -1), (16, 2**31 - 1), (16, 2)])
def test_sizes_that_lie_are_refused(position: int, value: int) -> None:
    data = bytearray(encode_batch([(b"one", b"", 0)]))
    struct.pack_into(">i", data, position, value)
    with pytest.raises(ProtocolError):
        decode_batch(bytes(data))


def test_properties_that_no_item_can_hold_are_refused() -> None:
    with pytest.raises(ProtocolError, match="limit 32767"):
        encode_batch([(b"", bytes(32768), 0)])
