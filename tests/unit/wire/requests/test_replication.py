"""What brokers say of their copies, as Apache RocketMQ 5.5.0 writes it."""

from __future__ import annotations

import pytest

from rocketapp.errors import ProtocolError
from rocketapp.wire.requests.replication import (
    HaStatus,
    SlaveStatus,
    decode_delay_offsets,
    decode_ha_status,
    decode_offsets,
    encode_ha_status,
)

OF_A_SLAVE = (
    b'{"haClientRuntimeInfo":{"activated":true,"lastReadTimestamp":1795169523862,"lastWriteTimestamp":1795169523862,'
    b'"masterAddr":"127.0.0.1:9877","masterFlushOffset":0,"maxOffset":4096,"transferredByteInSecond":0},'
    b'"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,"masterCommitLogMaxOffset":0}'
)


def test_a_slave_says_where_its_log_ends_and_from_whom_it_has_it() -> None:
    assert decode_ha_status(OF_A_SLAVE) == HaStatus(False, 4096, 0, "127.0.0.1:9877")
    nobody = OF_A_SLAVE.replace(b'"masterAddr":"127.0.0.1:9877",', b"")
    assert decode_ha_status(nobody).copies_from == ""


def test_a_master_counts_its_slaves() -> None:
    body = encode_ha_status(5000, [SlaveStatus("127.0.0.1", 4096, 5000), SlaveStatus("10.0.0.7", 0, 100)], 1 << 20)
    assert decode_ha_status(body) == HaStatus(True, 5000, 2, "")


def test_offsets_are_read_with_and_without_quotes_round_the_queue() -> None:
    found = {("orders@billing", 0): 5, ("orders@billing", 1): 7}
    assert decode_offsets(b'{"offsetTable":{"orders@billing":{0:5,1:7}}}') == found
    assert decode_offsets(b'{"dataVersion":{},"offsetTable":{"orders@billing":{"0":5,"1":7}}}') == found
    assert decode_delay_offsets(b'{"offsetTable":{3:5,18:1}}') == {3: 5, 18: 1}
    assert decode_delay_offsets(b"{}") == {}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"master":true}', b'{"master":false}'])
def test_a_status_that_is_none_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_ha_status(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"offsetTable":[1]}', b'{"offsetTable":{"a@b":5}}'])
def test_a_table_of_offsets_that_is_none_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_offsets(body)
