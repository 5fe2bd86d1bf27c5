"""How fast counters have grown of late."""

from __future__ import annotations

from rocketapp.state.recent_counts import RecentCounts, TopicCounts


def test_a_minute_is_told_from_a_few_looks_and_what_was_before_it_is_forgotten() -> None:
    growth = RecentCounts(60.0, 0.0)
    # A hundred a second for two minutes, then nothing.
    for now in range(1, 301):
        if growth.is_due(now):
            growth.look({"orders": TopicCounts(handled=100 * min(now, 120))}, now)
        grown, seconds = growth.since("orders", TopicCounts(handled=100 * min(now, 120)), now)
        assert seconds == now if now < 60 else 60 <= seconds < 70
        if now <= 120:
            assert grown.handled == 100 * seconds
        elif now >= 190:
            assert grown == TopicCounts()


def test_a_topic_that_was_not_seen_before_has_grown_from_nothing() -> None:
    growth = RecentCounts(3600.0, 5.0)
    growth.look({"orders": TopicCounts(1, 1, 0)}, 700.0)
    assert growth.since("stock", TopicCounts(4, 3, 1), 905.0) == (TopicCounts(4, 3, 1), 900.0)
