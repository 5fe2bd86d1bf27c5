"""Rates of messages."""

import pytest

from rocketapp.broker.core import Traffic
from tests.unit.broker.memory import kept_by


def test_without_samples_there_is_no_rate() -> None:
    traffic = Traffic()
    traffic.put = 100
    assert traffic.put_rates(5.0) == [0.0, 0.0, 0.0]


def test_rates_are_measured_over_their_windows() -> None:
    traffic = Traffic()
    for second in range(100):
        traffic.sample(float(second))
        traffic.put += 10 if second < 90 else 100
        traffic.got += 1
    assert traffic.put_rates(100.0) == pytest.approx([100.0, (50 * 10 + 1000) / 60, (90 * 10 + 1000) / 100])
    assert traffic.got_rates(100.0) == pytest.approx([1.0, 1.0, 1.0])


def test_old_samples_are_forgotten() -> None:
    traffic = Traffic()

    def sample() -> None:
        for second in range(20_000):
            traffic.sample(float(second))

    assert kept_by(sample) < 200_000
