"""Brokers that answer slowly are passed over for as long as Java's table says."""

from __future__ import annotations

from rocketapp.state.broker_latency import BrokerLatency, pause_after
from tests.cases import cases


@cases(
    "milliseconds, pause",
    [
        (0, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2),
        (1799, 2),
        (1800, 5),
        (3000, 6),
        (4999, 6),
        (5000, 10),
        (14999, 10),
        (15000, 30),
        (60000, 30),
    ],
)
def test_the_table_is_javas(milliseconds: int, pause: int) -> None:
    assert pause_after(milliseconds / 1000) == pause


def test_a_slow_broker_is_passed_over_and_comes_back() -> None:
    latency = BrokerLatency()
    latency.sent("a", 2.0, now=100.0)
    assert not latency.is_available("a", 104.9)
    assert latency.is_available("b", 104.9)
    assert latency.is_available("a", 105.0)


def test_a_failure_counts_as_ten_seconds() -> None:
    latency = BrokerLatency()
    latency.failed("a", now=100.0)
    assert not latency.is_available("a", 109.9)
    assert latency.is_available("a", 110.0)


def test_a_quick_answer_forgives() -> None:
    latency = BrokerLatency()
    latency.failed("a", now=100.0)
    latency.sent("a", 0.01, now=101.0)
    assert latency.is_available("a", 101.0)
