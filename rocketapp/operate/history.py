"""What each handler did in the last 15 minutes: counters of the whole app, sampled every 10 seconds.

Samples are made of the views that exist anyway, so a message costs nothing more. Counters only grow, also when a
process ends; the difference of two samples is what happened between them. A step is longer when the loop was blocked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.counts import BOUNDS, Counts

INTERVAL: Final = 10.0
"""Seconds between two samples."""
SPAN: Final = 900.0
"""Seconds that are kept."""
MINUTE: Final = 60.0
SHORTEST: Final = 2
"""Minutes that a curve spans at least."""
_NOTHING: Final = (0,) * (len(BOUNDS) + 1)


class HandlerKey(NamedTuple):
    """Identifies a handler of one topic."""

    cluster: str
    group: str
    topic: str
    handler: str


class Tally(NamedTuple):
    """The counters of a handler at the time of one sample."""

    done: int = 0
    failed: int = 0
    """Attempts that are tried again, became a dead letter or were dropped."""
    lag: int | None = None
    """The lag of its topic; None while it is not known."""
    calls: tuple[int, ...] = _NOTHING
    """How many calls took how long, by the bounds of a histogram."""


@dataclass(frozen=True, slots=True)
class Step:
    """The difference between two successive samples of a handler."""

    at: float
    """The time of the second sample."""
    seconds: float
    done: int
    failed: int
    lag: int | None
    calls: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Messages finished per second."""
        return self.done / self.seconds


@dataclass(frozen=True, slots=True)
class History:
    """The samples of an app, oldest first. Immutable: `with_sample` returns a new one, so any thread may read it."""

    samples: tuple[tuple[float, Mapping[HandlerKey, Tally]], ...] = ()

    @property
    def minutes(self) -> int:
        """The minutes that the samples span: less than 15 while the app is young."""
        age = self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0
        return max(SHORTEST, min(round(SPAN / MINUTE), math.ceil(age / MINUTE)))

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next sample."""
        return not self.samples or now - self.samples[-1][0] >= INTERVAL

    def with_sample(self, now: float, app: AppSnapshot, counts: Counts) -> History:
        """This history and one more sample. `app` and `counts`: of all processes, including ended ones."""
        kept = tuple(one for one in self.samples if now - one[0] <= SPAN)
        return History((*kept, (now, dict(_tallies(app, counts)))))

    def steps(self, key: HandlerKey) -> list[Step]:
        """The steps of one handler, oldest first."""
        return [
            _step(at - began, at, before.get(key, Tally()), after[key])
            for (began, before), (at, after) in pairwise(self.samples)
            if key in after
        ]


def _tallies(app: AppSnapshot, counts: Counts) -> Iterable[tuple[HandlerKey, Tally]]:
    calls: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for which, histogram in counts.histograms.items():
        handler = which.topic, which.group, which.handler
        known = calls.get(handler, _NOTHING)
        calls[handler] = tuple(one + other for one, other in zip(known, histogram.buckets, strict=True))
    for group in app.groups:
        lags: dict[str, int | None] = {}
        for queue in group.queues:
            known_lag, lag = lags.get(queue.queue.topic, 0), queue.lag
            lags[queue.queue.topic] = None if known_lag is None or lag is None else known_lag + lag
        for one in group.handlers:
            failed = one.stats.retried + one.stats.dead_lettered + one.stats.dropped
            of_calls = calls.get((one.topic, group.group, one.name), _NOTHING)
            tally = Tally(one.stats.handled, failed, lags.get(one.topic), of_calls)
            yield HandlerKey(group.cluster, group.group, one.topic, one.name), tally


def _step(seconds: float, at: float, before: Tally, after: Tally) -> Step:
    calls = tuple(max(0, now - then) for then, now in zip(before.calls, after.calls, strict=True))
    done, failed = max(0, after.done - before.done), max(0, after.failed - before.failed)
    return Step(at, seconds, done, failed, after.lag, calls)


def since(steps: Sequence[Step], seconds: float) -> list[Step]:
    """The steps of the last `seconds`."""
    return [one for one in steps if steps[-1].at - one.at < seconds]


def calls_of(steps: Iterable[Step]) -> tuple[int, ...]:
    """The duration histograms of these steps, added: calls by bucket."""
    return tuple(map(sum, zip(*(one.calls for one in steps), strict=True))) or _NOTHING


def quantile(calls: Sequence[int], share: float) -> float | None:
    """The duration within which this share of the calls ended, in seconds; None without calls.

    Interpolated within its bucket of the histogram; infinite above the highest bound.
    """
    wanted = share * sum(calls)
    if not wanted:
        return None
    for index, reached in enumerate(accumulate(calls)):
        if reached >= wanted:
            if index == len(BOUNDS):
                break
            low = BOUNDS[index - 1] if index else 0.0
            return low + (BOUNDS[index] - low) * (wanted - reached + calls[index]) / calls[index]
    return float("inf")
