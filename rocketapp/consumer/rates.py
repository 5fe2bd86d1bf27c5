"""What a group pulls and handles a second, for the tools of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rocketapp.consumer.stats import GroupStats
from rocketapp.state.growth import Counts, Growth
from rocketapp.wire.requests.running_info import TopicRates

_MINUTE, _HOUR = 60.0, 3600.0


class Rates:
    """The topics of one group."""

    def __init__(self, stats: GroupStats, pulled: Counter[str], now: Callable[[], float]) -> None:
        """`pulled`: by topic the messages that were pulled since the start."""
        self._stats, self._pulled, self._now = stats, pulled, now
        self._minute, self._hour = Growth(_MINUTE, now()), Growth(_HOUR, now())

    def __repr__(self) -> str:
        return f"<Rates: {self._minute}, {self._hour}>"

    def look(self) -> None:
        """Once a second: look at the counters when it is time."""
        now = self._now()
        due = [growth for growth in (self._minute, self._hour) if growth.is_due(now)]
        if due:
            counts = self._counts()
            for growth in due:
                growth.look(counts, now)

    def of(self, topics: Iterable[str]) -> dict[str, TopicRates]:
        """Those of the last minute, and the failed attempts of the last hour, of each of these topics."""
        now, counts, found = self._now(), self._counts(), dict[str, TopicRates]()
        for topic in topics:
            count = counts.get(topic, Counts())
            minute, seconds = self._minute.since(topic, count, now)
            hour, _ = self._hour.since(topic, count, now)
            per_second = 1 / seconds if seconds else 0.0
            found[topic] = TopicRates(
                minute.pulled * per_second, minute.handled * per_second, minute.failed * per_second, hour.failed
            )
        return found

    def _counts(self) -> dict[str, Counts]:
        found = {topic: Counts(pulled=pulled) for topic, pulled in self._pulled.items()}
        for handler in self._stats.handlers:
            topic, stats = handler.subscription.topic, handler.stats
            known = found.get(topic, Counts())
            failed = stats.retried + stats.dead_lettered + stats.dropped
            found[topic] = Counts(known.pulled, known.handled + stats.handled, known.failed + failed)
        return found
