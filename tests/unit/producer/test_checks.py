"""What is refused before anything is sent."""

from __future__ import annotations

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.checks import problem_of
from tests.cases import cases


def test_an_ordinary_message_has_no_problem() -> None:
    message = Outgoing(
        topic="%RETRY%orders-1_x|y",
        body=b"x" * 100,
        tag="paid",
        keys=["1", "ü"],
        properties={"colour": "grün", "a b": "c d"},
        delay_level=18,
    )
    assert problem_of(message, 100) is None


@cases(
    "change, problem",
    [
        ({"topic": "a b"}, "only letters"),
        ({"topic": ""}, "needs a name"),
        ({"topic": "x" * 128}, "128 characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "forbidden"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "forbidden"),
        ({"body": b""}, "empty"),
        ({"body": bytes(101)}, "101 bytes, at most 100 are legal: see producer.max_message_bytes"),
        ({"delay_level": 19}, "delay level 19"),
        ({"delay_level": -1}, "delay level -1"),
        ({"delay_level": True}, "delay level True"),
        ({"tag": "a\x02b"}, "separator"),
        ({"keys": ["a", "b\x01"]}, "key 1"),
        ({"keys": ["a b"]}, "blanks"),
        ({"keys": [""]}, "blanks"),
        ({"properties": {"UNIQ_KEY": "x"}}, "belongs to RocketMQ"),
        ({"properties": {"TAGS": "x"}}, "belongs to RocketMQ"),
        ({"properties": {"": "x"}}, "empty"),
        ({"properties": {"x": ""}}, "empty"),
        ({"properties": {"x\x01": "y"}}, "separator"),
        ({"properties": {"x": "\x02"}}, "separator"),
        ({"queue": MessageQueue("other", "a", 0)}, "another topic"),
    ],
)
def test_a_problem_is_named(change: dict[str, object], problem: str) -> None:
    message = Outgoing(**({"topic": "t", "body": b"x"} | change))  # type: ignore[arg-type]
    assert problem in (problem_of(message, 100) or "")
