"""Changes limits of one group while it runs: those of its pulls, and the pace of its handlers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketapp.consumer.assembly import Group


def adjust(group: Group, topics: Collection[str], values: Mapping[str, float | None]) -> None:
    """From now on these values hold for these topics; None: what was declared or set at the start."""
    group.limits.change(topics, values)
    for handler in group.stats.handlers:
        about = handler.subscription
        if about.topic in topics:
            now = group.limits.changed.get(about.topic, {})
            concurrency, rate = int(now.get("concurrency", about.concurrency)), now.get("rate", about.rate)
            for way in group.ways:
                way.pace(handler, concurrency, rate)
    for queue, owned in group.rebalancer.owned.items():
        if queue.topic in topics:
            owned.limits_changed()
