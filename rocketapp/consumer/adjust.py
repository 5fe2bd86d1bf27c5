"""Changes limits of one group while it runs: those of its pulls and pops, and of its handlers."""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.consumer.assembly import Group


def adjust(group: Group, changes: Mapping[str, Mapping[str, float | None]]) -> None:
    """From now on these values hold, by topic; None: what was declared or set at the start."""
    for topic, values in changes.items():
        group.limits.change(topic, values)
    for handler in group.stats.handlers:
        about = handler.subscription
        if about.topic in changes:
            now = group.limits.changed.get(about.topic, {})
            concurrency, rate = int(now.get("concurrency", about.concurrency)), now.get("rate", about.rate)
            batch = None if about.batch is None else int(now.get("batch", about.batch))
            for way in group.ways:
                way.pace(handler, concurrency, rate, batch)
    for queue, owned in group.rebalancer.owned.items():
        if queue.topic in changes:
            owned.limits_changed()
