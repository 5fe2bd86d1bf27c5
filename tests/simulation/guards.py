"""What the rate and the breaker of a handler promise of its calls, in each process."""

from __future__ import annotations

from collections import defaultdict

from rocketapp.model.policy import Breaker
from tests.simulation.history import (
    SERVICE_DOWN,
    SERVICE_UP,
    Fault,
    History,
    Started,
    Stored,
    is_copy,
    topic_of,
)
from tests.simulation.world import Topic

_AT_ONCE = 0.1
"""Seconds whose messages may start at once, after a rest."""


def broken(history: History, topic: Topic) -> list[str]:
    """Where its rate or its breaker did not hold."""
    starts = starts_of(history, topic.name)
    findings = [] if topic.rate is None else too_fast(starts, topic.rate)
    if topic.breaker is not None:
        findings += called_in_vain(history, starts, topic.breaker, at_once=topic.concurrency)
    return [f"{topic.name}: {finding}" for finding in findings]


def starts_of(history: History, topic: str) -> dict[str, list[float]]:
    """When each member started messages of a topic, copies for retries among them."""
    numbers = {
        event.number
        for event in history
        if isinstance(event, Stored) and not is_copy(event.queue) and topic_of(event.queue) == topic
    }
    starts: defaultdict[str, list[float]] = defaultdict(list)
    for event in history:
        if isinstance(event, Started) and event.number in numbers:
            starts[event.member].append(event.at)
    return starts


def too_fast(starts: dict[str, list[float]], rate: float) -> list[str]:
    """In no time does a member start more than `rate` messages a second, and those of a rest."""
    findings, most = [], max(1.0, rate * _AT_ONCE)
    for member, times in starts.items():
        tokens, before = most, times[0]
        for at in times:
            tokens = min(most, tokens + (at - before) * rate) - 1
            before = at
            if tokens < -1e-6:
                findings.append(f"{member} started a message at {at:.3f}, {-tokens / rate:.3f} s too early")
                break
    return findings


def called_in_vain(history: History, starts: dict[str, list[float]], breaker: Breaker, *, at_once: int) -> list[str]:
    """While every call fails a member makes few: until the breaker opens, those that run then, and its probes.

    Failures of one turn of the loop are judged together, when each call that ended has been followed by another one.
    """
    findings, down = [], None
    for event in history:
        if not isinstance(event, Fault):
            continue
        if event.kind == SERVICE_DOWN:
            down = event.at
        elif event.kind == SERVICE_UP and down is not None:
            allowed = breaker.failures + 2 * at_once + (event.at - down) / breaker.pause + 1
            for member, times in starts.items():
                calls = sum(down <= at < event.at for at in times)
                if calls > allowed:
                    findings.append(f"{member} called {calls} times from {down:.3f} to {event.at:.3f}")
            down = None
    return findings
