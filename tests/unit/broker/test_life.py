"""Ten days of a broker: what it weighs stays what it was, nothing is lost, and no group gets anything twice."""

from __future__ import annotations

from rocketapp.testing.virtual_time import run_virtual
from tests.unit.broker.life import DAY, live

DAYS = 10
A_GROUP = 500
"""Bytes that a group and its retry topic take in the tables for ever, as in Apache RocketMQ: each day brings one."""


def test_ten_days_leave_nothing_behind() -> None:
    weights = run_virtual(lambda: live(DAYS), limit=(DAYS + 1) * DAY)
    early, late = weights[3], weights[-1]
    days = late.day - early.day
    assert late.stored_bytes < 1.05 * early.stored_bytes, weights
    assert max(weight.files for weight in weights) < 45, weights
    assert late.table_bytes - early.table_bytes < days * A_GROUP, weights
    assert late.objects - early.objects < days * 60, weights
    assert max(weight.start_bytes for weight in weights) < 8 << 20, weights
