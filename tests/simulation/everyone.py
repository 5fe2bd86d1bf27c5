"""What must hold of the history of a broadcast group: each member handles all, and brokers keep nothing for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable

from tests.simulation import checks
from tests.simulation.cluster import Member
from tests.simulation.excuses import ROUTES_HEARD, Routes
from tests.simulation.history import (
    Calm,
    Committed,
    Dropped,
    Event,
    Finished,
    History,
    Idle,
    Place,
    Started,
    Stored,
    is_copy,
    topic_of,
)
from tests.simulation.world import World


def broken(history: History, *, orderly: Collection[str], present: Collection[str], within: float) -> list[str]:
    """Everything that is wrong. `orderly`: names of topics. `present`: the members that were there at the end."""
    return [
        *missed(history, present),
        *repeats(history),
        *overtaking(history, orderly),
        *told_to_brokers(history),
        *checks.phantoms(history),
        *checks.conflicts(history),
        *checks.stuck(history, within),
    ]


def _settles(event: Event) -> bool:
    """Its handler was done with it, or it was dropped."""
    return isinstance(event, Dropped) or (isinstance(event, Finished) and event.done)


def missed(history: History, present: Collection[str]) -> list[str]:
    """Each member has handled, or dropped, all that was ever stored."""
    stored = {(event.queue, event.offset) for event in history if isinstance(event, Stored)}
    settled: defaultdict[str, set[Place]] = defaultdict(set)
    for event in history:
        if isinstance(event, Finished | Dropped) and _settles(event):
            settled[event.member].add((event.queue, event.offset))
    return [
        f"{member} has missed {queue} #{offset}"
        for member in sorted(present)
        for queue, offset in sorted(stored - settled[member])
    ]


def repeats(history: History) -> list[str]:
    """No member begins again what it has settled, as none takes its queues away.

    Excused is a queue that a name server does not name for a while: it is given back, and begun again.
    """
    findings, routes = [], Routes()
    settled: dict[tuple[str, str, int], float] = {}
    for event in history:
        routes.see(event)
        if isinstance(event, Started):
            since = settled.get((event.member, event.queue, event.offset))
            if since is not None and not routes.differ(since):
                findings.append(f"{event.member}: {event.queue} #{event.offset} again at {event.at:.3f}")
        elif isinstance(event, Finished | Dropped) and _settles(event):
            settled.setdefault((event.member, event.queue, event.offset), event.at)
    return findings


def overtaking(history: History, orderly: Collection[str]) -> list[str]:
    """In orderly queues each member settles a message before it begins the next one."""
    findings, low = [], defaultdict[tuple[str, str], int](int)
    for event in history:
        if not isinstance(event, Started | Finished | Dropped) or topic_of(event.queue) not in orderly:
            continue
        session = event.member, event.queue
        if isinstance(event, Started) and event.offset > low[session]:
            findings.append(f"{event.member}: {event.queue} #{event.offset} began before #{low[session]} was settled")
        elif _settles(event):
            low[session] = max(low[session], event.offset + 1)
    return findings


def told_to_brokers(history: History) -> list[str]:
    """No offset is committed, and nothing is handed back."""
    return [
        f"{event.queue}: {type(event).__name__} {event.offset} at {event.at:.3f}"
        for event in history
        if isinstance(event, Committed) or (isinstance(event, Stored) and is_copy(event.queue))
    ]


async def all_idle(world: World, members: Iterable[Member], within: float) -> None:
    """Wait until each member says that it has nothing left to do, or the time is over."""
    await asyncio.sleep(ROUTES_HEARD)  # a queue of which a member has not heard yet is not its own
    began = world.loop.time()
    world.history.append(Calm(began))
    for member in members:
        while (await member.process.start(member.consumer.idle())).reasons:
            if world.loop.time() > began + within:
                return
            await asyncio.sleep(0.25)
    world.history.append(Idle(world.loop.time()))
