"""What must hold where handlers commit by hand: handled is not settled, and what is committed was said to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from random import Random

from rocketapp.model.outcome import COMMIT, Decision, Retry
from rocketapp.wire.record import Message
from tests.simulation import checks, ownership
from tests.simulation.history import Assigned, Decided, Event, Finished, History, topic_of


class Decisions:
    """What handlers say follows from the seed, the message and the attempt. Once `is_closing`, all commit."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.is_closing = False

    def of(self, message: Message) -> Decision | None:
        random = Random(f"{self._seed}/by hand/{message.text()}/{message.attempt}")
        luck = random.random()
        if self.is_closing or luck < 0.4:
            return COMMIT
        return Retry(random.choice((0.05, 2.0))) if luck < 0.55 else None


def settled_by_commits(history: History, topics: Collection[str]) -> list[Event]:
    """The same history, in which a message of these topics is done when the call has ended that commits it."""
    found, handled = list[Event](), defaultdict[tuple[str, str], list[Finished]](list)
    for event in history:
        match event:
            case Finished(member=member, queue=queue, done=True) if topic_of(queue) in topics:
                handled[member, queue].append(event)
                continue
            case Decided(member=member, queue=queue, commits=True):
                found += [one._replace(at=event.at) for one in handled.pop((member, queue), [])]
            case Decided(member=member, queue=queue):
                # A failed attempt of the last message alone: it may be a dead letter now.
                found += [one._replace(at=event.at, done=False) for one in handled.pop((member, queue), [])[-1:]]
            case Assigned(member=member, queue=queue):
                handled.pop((member, queue), None)
        found.append(event)
    return found


def broken(history: History, topics: Collection[str], *, orderly: Collection[str], within: float) -> list[str]:
    """Everything that is wrong with a history; handlers of `topics` commit by hand.

    What is handled again is not looked at: rollbacks are made for that.
    """
    settled = settled_by_commits(history, topics)
    return [
        *checks.lost(settled),
        *checks.commits_ahead(settled),
        *checks.stuck(history, within),
        *checks.phantoms(history),
        *checks.conflicts(history),
        *checks.commits_back(history, orderly),
        *ownership.overlaps(history, orderly),
        *ownership.double_sessions(history),
        *ownership.two_owners(history, orderly),
    ]
