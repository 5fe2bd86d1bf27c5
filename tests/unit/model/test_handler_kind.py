from __future__ import annotations

from typing import Any

from rocketapp.model.subscription import CONCURRENT, KEYED, ORDERLY, POLLED, POPPED, HandlerKind, kind_of
from tests.cases import cases
from tests.unit.consumer.fake_cluster import subscription


@cases(
    "declared, kind",
    [
        ({}, CONCURRENT),
        ({"broadcast": True, "batch": 5}, CONCURRENT),
        ({"mode": "pop"}, POPPED),
        ({"orderly": True}, ORDERLY),
        ({"order_by": "key"}, KEYED),
        ({"order_by": "key", "orderly": True}, KEYED),
        ({"every": 5.0}, POLLED),
    ],
)
def test_what_was_declared_says_the_kind(declared: dict[str, Any], kind: HandlerKind) -> None:
    assert kind_of(subscription(**declared)) is kind


def test_messages_wait_for_those_before_them_where_failed_attempts_are_repeated_in_place() -> None:
    assert [kind.in_order for kind in (CONCURRENT, POPPED, KEYED, ORDERLY, POLLED)] == [False, False, True, True, True]
