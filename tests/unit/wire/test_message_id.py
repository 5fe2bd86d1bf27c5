"""Ids of messages."""

from __future__ import annotations

from datetime import datetime

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.message_id import UniqueIds, offset_id, parse_offset_id

LOOPBACK = bytes([127, 0, 0, 1])
FD00_2 = bytes.fromhex("fd000000000000000000000000000002")


def test_an_offset_id_is_host_port_and_physical_offset() -> None:
    assert offset_id(LOOPBACK, 30911, 2717) == "7F000001000078BF0000000000000A9D"


@pytest.mark.parametrize("host", [LOOPBACK, FD00_2])
def test_an_offset_id_is_read_back(host: bytes) -> None:
    assert parse_offset_id(offset_id(host, 10911, 2**40)) == (host, 10911, 2**40)


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F000001000078BF0000000000000A9", "00" * 20, "é" * 32])
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="offset message id"):
        parse_offset_id(text)


def test_a_unique_id_is_the_one_that_java_makes() -> None:
    """IPv6 fd00::2, process 11953, 1678706169 ms after the first of the month, counter 0."""
    ids = UniqueIds(FD00_2, pid=11953, stable=0x30946E09)
    first = datetime(2026, 11, 1).timestamp()
    assert ids.next(first + 1678706.169) == "FD0000000000000000000000000000022EB130946E09640F05F90000"


def test_only_sixteen_bits_of_a_process_id_are_kept() -> None:
    unique = UniqueIds(LOOPBACK, pid=0x1_2345, stable=0).next(0.0)
    assert len(unique) == 32
    assert unique[8:12] == "2345"


def test_ids_differ_while_the_clock_stands_still() -> None:
    ids = UniqueIds(LOOPBACK, pid=1, stable=2)
    assert len({ids.next(1_795_000_000.0) for _ in range(200_000)}) == 200_000


def test_ids_differ_when_the_clock_goes_back() -> None:
    ids = UniqueIds(LOOPBACK, pid=1, stable=2)
    forwards = {ids.next(1_795_000_000.0 + step) for step in range(70_000)}
    backwards = {ids.next(1_795_000_000.0 + step) for step in range(70_000)}
    assert not forwards & backwards


def test_a_new_month_starts_from_zero() -> None:
    ids = UniqueIds(LOOPBACK, pid=1, stable=2)
    ids.next(datetime(2026, 12, 31, 23, 59, 59).timestamp())
    assert ids.next(datetime(2027, 1, 1).timestamp())[-12:-4] == "00000000"


def test_an_address_of_no_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="4 or 16"):
        UniqueIds(b"\x7f", pid=1, stable=2)
