"""The known routes, and when to ask for them again.

A watched topic is asked for every `interval` seconds. A topic that no name server knows is asked for
after a second, then less and less often, up to `interval`; after a hint (`soon`) the first wait is a tenth
of a second. A route that disappears is kept: the name server may be restarting, and consumers must not
forget their queues.

A broker that disappears from its routes is forgotten, except while it is held: a name server that was
restarted knows only the brokers that have registered since, and a queue that is given up must still commit
to its broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

from rocketapp.model.route import MASTER_ID, TopicRoute

FIRST_WAIT, FIRST_WAIT_AFTER_HINT = 1.0, 0.1
"""Seconds until a missing topic is asked for again."""
LOOKS_FOR_A_MISSING_BROKER = (1.0, 2.0, 4.0)
"""Seconds between the next questions after a broker has disappeared from a route: a name server that was restarted
knows only the brokers that have registered since."""
HINT_PER_MISSING = 0.001
"""Seconds by which that wait grows with each missing topic: a hint is often for one of 1,000, and all are asked for."""
UNREACHABLE_INTERVAL = 5.0
"""Least seconds between two questions for a route because its broker cannot be reached."""


@dataclass(slots=True)
class _Entry:
    route: TopicRoute | None = None
    watchers: int = 0
    asked: float = 0.0
    told: float = 0.0
    due: float = 0.0
    wait: float = FIRST_WAIT
    looks: tuple[float, ...] = ()
    """Waits before the next questions, in place of the interval."""
    queued: float = inf
    """When the cache next looks whether it is due: at `due`, or sooner."""


class RouteCache:
    """Routes by topic, and broker addresses by name and id."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._entries: dict[str, _Entry] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._holds: Counter[str] = Counter()
        self._missing: set[str] = set()
        self._queue: list[tuple[float, str]] = []
        """A heap of watched topics by `queued`, so that one of 1,000 costs no look at all. Some have moved on since."""
        self._forget_from = inf
        """No topic can be dropped before."""

    def get(self, topic: str) -> TopicRoute | None:
        entry = self._entries.get(topic)
        return None if entry is None else entry.route

    def watch(self, topic: str, now: float) -> None:
        """Keep the route of this topic up to date. Every `watch` needs its `unwatch`."""
        entry = self._entries.setdefault(topic, _Entry())
        entry.watchers += 1
        if entry.watchers == 1:
            entry.due = now if entry.route is None else entry.asked + self._interval
            self._enqueue(topic, entry)

    def unwatch(self, topic: str) -> None:
        entry = self._entries.get(topic)
        if entry is not None and entry.watchers:
            entry.watchers -= 1
            self._forget_from = min(self._forget_from, entry.asked + 2 * self._interval)

    def soon(self, topic: str, now: float) -> None:
        """The topic may have changed: ask at once, and again shortly afterwards when it is still missing.

        Many hints do not add up: a topic is asked for at most ten times a second, one of many that miss less often.
        """
        entry = self._entries.get(topic)
        if entry is not None:
            wait = max(FIRST_WAIT_AFTER_HINT, HINT_PER_MISSING * len(self._missing))
            apart = wait if entry.route is None else FIRST_WAIT_AFTER_HINT
            entry.due = max(now, entry.asked + apart) if entry.asked > 0 else now
            entry.wait = wait
            self._enqueue(topic, entry)

    def lacks_a_broker(self, topic: str, now: float) -> None:
        """The topic is expected on a broker that its route does not name: ask soon, and a few times after that."""
        entry = self._entries.get(topic)
        if entry is not None and entry.route is not None:
            entry.due = min(entry.due, max(now, entry.asked + LOOKS_FOR_A_MISSING_BROKER[0]))
            entry.looks = entry.looks or LOOKS_FOR_A_MISSING_BROKER
            self._enqueue(topic, entry)

    def unreachable(self, address: str, now: float) -> None:
        """This broker cannot be reached: it may have another address by now."""
        for topic, entry in self._entries.items():
            if entry.route is not None and any(address in each.addresses.values() for each in entry.route.brokers):
                entry.due = min(entry.due, max(now, entry.asked + UNREACHABLE_INTERVAL))
                self._enqueue(topic, entry)

    def due(self, now: float) -> list[str]:
        """The watched topics that have to be asked for now."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            entry = self._first()
            if entry is not None and entry.due <= now:
                found.append(heappop(self._queue)[1])
                entry.queued = inf
        for topic in found:  # until it is answered
            self._enqueue(topic, self._entries[topic])
        return found

    def next_due(self) -> float | None:
        """When the next topic is due; None when no topic is watched."""
        while self._queue:
            if (entry := self._first()) is not None:
                return entry.due
        return None

    def found(self, topic: str, route: TopicRoute, now: float) -> bool:
        """Store the route that a name server returned; True when it differs from the one before."""
        entry = self._entries.setdefault(topic, _Entry())
        changed = not _same(entry.route, route)
        names = {each.broker_name for each in route.brokers}
        is_missing_one = entry.route is not None and any(one.broker_name not in names for one in entry.route.brokers)
        if is_missing_one:
            entry.looks = LOOKS_FOR_A_MISSING_BROKER
        entry.route, entry.asked, entry.told = route, now, now
        self._missing.discard(topic)
        wait, *looks = entry.looks or (self._interval,)
        entry.due, entry.wait, entry.looks = now + wait, FIRST_WAIT, tuple(looks)
        self._enqueue(topic, entry)
        if not entry.watchers:
            self._forget_from = min(self._forget_from, now + 2 * self._interval)
        if is_missing_one:
            self._learn_brokers()
        elif changed:
            self._learn_from(route)
        return changed

    def missing(self, topic: str, now: float) -> None:
        """No name server knows the topic (any more)."""
        entry = self._entries.get(topic)
        if entry is not None:
            entry.asked, entry.due = now, now + entry.wait
            self._enqueue(topic, entry)
            if entry.route is None:
                self._missing.add(topic)
            entry.wait = min(2 * entry.wait, self._interval)

    def forget_unused(self, now: float) -> None:
        """Drop every topic that is not watched and was not asked for during two intervals."""
        if now < self._forget_from:
            return
        last = {topic: entry.asked + 2 * self._interval for topic, entry in self._entries.items() if not entry.watchers}
        old = [topic for topic, until in last.items() if until <= now]
        self._forget_from = min((until for until in last.values() if until > now), default=inf)
        for topic in old:
            del self._entries[topic]
            self._missing.discard(topic)
        if old:
            self._learn_brokers()

    def address(self, broker_name: str, broker_id: int) -> str | None:
        return self._brokers.get(broker_name, {}).get(broker_id)

    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Every broker of every known route: name -> id -> address."""
        return self._brokers

    def hold_broker(self, broker_name: str) -> None:
        """Keep the addresses of this broker, also when no route names it any more. Every hold needs its release.

        A route that names it with other addresses still replaces them.
        """
        self._holds[broker_name] += 1

    def release_broker(self, broker_name: str) -> None:
        """End one hold; after the last one the routes alone decide."""
        if self._holds[broker_name] > 1:
            self._holds[broker_name] -= 1
            return
        del self._holds[broker_name]
        self._learn_brokers()

    def _enqueue(self, topic: str, entry: _Entry) -> None:
        """Look at it when it is due, unless that happens sooner anyway."""
        if entry.watchers and entry.due < entry.queued:
            entry.queued = entry.due
            heappush(self._queue, (entry.due, topic))

    def _first(self) -> _Entry | None:
        """The first of the queue when it is due at its time; otherwise that is put right, and None is returned."""
        at, topic = self._queue[0]
        entry = self._entries.get(topic)
        if entry is not None and entry.queued == at and entry.watchers and entry.due == at:
            return entry
        heappop(self._queue)
        if entry is not None and entry.queued == at:
            entry.queued = inf
            self._enqueue(topic, entry)
        return None

    def _learn_from(self, latest: TopicRoute) -> None:
        """As `_learn_brokers`, after a route that has lost no broker: the latest route decides, others stay."""
        brokers = dict(self._brokers)
        for data in latest.brokers:
            addresses = dict(data.addresses)
            master = brokers.get(data.broker_name, {}).get(MASTER_ID)
            if data.broker_name in self._holds and master is not None:
                addresses.setdefault(MASTER_ID, master)
            brokers[data.broker_name] = addresses
        self._brokers = brokers

    def _learn_brokers(self) -> None:
        brokers = {name: self._brokers[name] for name in self._holds if name in self._brokers}
        # Routes arrive one by one, so the latest one has the current address of a broker.
        known = sorted((entry for entry in self._entries.values() if entry.route), key=lambda entry: entry.told)
        for entry in known:
            if entry.route is not None:
                brokers.update({data.broker_name: dict(data.addresses) for data in entry.route.brokers})
        for name in self._holds.keys() & self._brokers.keys():
            # A slave may register before its master: the master's address stays as well.
            if (master := self._brokers[name].get(MASTER_ID)) is not None:
                brokers[name].setdefault(MASTER_ID, master)
        self._brokers = brokers


def _same(one: TopicRoute | None, other: TopicRoute) -> bool:
    """Whether two routes are equal. Name servers list queues and brokers in any order."""
    if one is None or one.order_conf != other.order_conf:
        return False
    by_name = attrgetter("broker_name")
    same_queues = sorted(one.queues, key=by_name) == sorted(other.queues, key=by_name)
    return same_queues and sorted(one.brokers, key=by_name) == sorted(other.brokers, key=by_name)
