"""JSON as fastjson writes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.lenient_json import dump_queue_map, int32_of, int64_of, loads, queue_of, text_of
from tests.cases import cases

QUEUE_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))


@cases(
    "data, value",
    [
        (b'{"a":[1,2.5,null,true,"x"]}', {"a": [1, 2.5, None, True, "x"]}),
        (b'{0:"127.0.0.1:10911",1:"b"}', {0: "127.0.0.1:10911", 1: "b"}),
        (b'{-1:5,"x":{}}', {-1: 5, "x": {}}),
        (b'{{"brokerName":"b","queueId":0,"topic":"T"}:5}', {QUEUE_KEY: 5}),
        (b'{{"topic":"T","queueId":0,"brokerName":"b"}:{"minOffset":0}}', {QUEUE_KEY: {"minOffset": 0}}),
        (b'{[1,{"a":[]}]:[]}', {(1, (("a", ()),)): []}),
        (b' { 0 : [ 1 , 2 ] , "b" : false } ', {0: [1, 2], "b": False}),
        (b'{0:"\\u4f60\\n\\"q\\"","k":"\xe5\xa5\xbd"}', {0: '你\n"q"', "k": "好"}),
        (b'{0:-1.5e3,1:[],"a":[{},],}', {0: -1500.0, 1: [], "a": [{}]}),
        (b'{"\\ud83d\\ude00":{1:1}}', {"\U0001f600": {1: 1}}),
    ],
)
def test_both_dialects_are_read(data: bytes, value: Any) -> None:
    assert loads(data) == value


@cases(
    "data",
    [
        b"",
        b"   ",
        b"{0",
        b"{0:",
        b"{0:1",
        b"{0:1,",
        b"{0:1}}",
        b"{0:1} x",
        b"{0 1}",
        b"{,}",
        b"[,]",
        b"{0:1,,}",
        b"{0:tru}",
        b"{0:nul}",
        b'{0:"open}',
        b'{0:"\\ud800"}',
        b'{0:"\\x"}',
        b'{0:"a\nb"}',
        b"{0:-}",
        b"{0:+1}",
        b"{0:'a'}",
        b"{a:1}",
        b"{0:" + b"[" * 65 + b"]" * 65 + b"}",
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b"{" * 1_000_000,
        b"{0:" + b'"\\' * 100_000,
        "{0:٣}".encode(),
    ],
)
def test_what_is_neither_raises_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        loads(data)


def test_a_map_by_queue_is_written_as_fastjson_writes_it() -> None:
    queues = {MessageQueue("T", "b", 0): 5, MessageQueue("T", "b", 1): {"x": "y"}}
    assert msgspec.json.encode({"offsetTable": dump_queue_map(queues)}) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:{"x":"y"}}}'
    )
    assert bytes(dump_queue_map({})) == b"{}"


def test_a_key_becomes_the_queue_again() -> None:
    queue = MessageQueue('to"pic', "bröker", 3)
    (key,) = loads(bytes(dump_queue_map({queue: 1})))
    assert queue_of(key) == queue


def test_numbers_and_booleans_are_texts_as_well() -> None:
    assert [text_of(value) for value in ("x", 1, 1.5, True, False)] == ["x", "1", "1.5", "true", "false"]


@pytest.mark.parametrize("value", [None, [], {}, ["x"]])
def test_nothing_else_is_a_text(value: object) -> None:
    with pytest.raises(TypeError):
        text_of(value)


def test_integers_are_read_also_when_they_are_quoted_and_have_bounds() -> None:
    assert (int64_of("7"), int64_of(-(2**63)), int32_of(2**31 - 1)) == (7, -(2**63), 2**31 - 1)
    for value in (2**63, "9" * 30, "x"):
        with pytest.raises(ValueError):
            int64_of(value)
    with pytest.raises(ValueError, match="32 bits"):
        int32_of(2**31)
    wrong: object
    for wrong in (True, None, 1.5, []):
        with pytest.raises(TypeError):
            int64_of(wrong)
