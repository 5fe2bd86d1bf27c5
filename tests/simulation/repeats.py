"""What may be handled again, and how little of it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection

from tests.simulation.excuses import REMEMBERED, UNDER_WAY, Faults, Forwards, LongCalls, Routes, Untaken, nothing
from tests.simulation.history import (
    UNANSWERED,
    Assigned,
    Committed,
    Finished,
    History,
    Place,
    Released,
    Settling,
    Started,
    Stored,
    broker_of,
    is_copy,
    topic_of,
)

MOST_UNCOMMITTED = 32
"""Finished messages of an orderly queue that a kill may repeat."""
COMMIT_TAKES = 1.0
"""Seconds in which a commit that was due has arrived."""
TRUST_RETURNS = 60.0
"""Seconds after a fault in which commits may wait until the group was looked at again."""


def repeats(
    history: History,
    orderly: Collection[str] = (),
    keyed: Collection[str] = (),
    guarded: Collection[str] = (),
    forwards: Forwards = nothing,
    latency: float = 0.0,
) -> list[str]:
    """A message is handled again only for a reason. The reasons are:

    - The attempt failed and its place is not settled: attempts in place are counted in memory, and the next owner of
      the queue begins to count anew.
    - A fault reached one of the members that started it or had the queue before, the broker of the queue or all
      connections, at most 15 s before the first start or since: what was finished could not be committed, or its
      commit was forgotten.
    - The queue is not orderly and changed hands, and a call at this offset or below it ran for more than 1 s, less
      on a network of this latency: no hand-over waits longer. Of a failed one the copy has to be stored in that time as
      well.
    - The queue is not orderly and changed hands, and the routes changed less than 40 s before: until every member has
      heard of it, two of them may believe that they have the queue.
    - The commit of that queue had no answer in time, less than 15 s before or since: a member that gives a queue back
      waits 1 s for it, and the slowest of the simulated networks may take longer.
    - The queue is keyed and changed hands, and a message below it was not settled then: one that is retried holds up
      the committed offset, and is not waited for. Or a call below it ran for more than 1 s: what waits behind that call
      for its key is not started any more.
    - The queue has messages of a guarded topic and changed hands, and a message below it was not settled then: its
      handler's rate or breaker let it wait.
    - The queue is not orderly and changed hands, and an owner before has forwarded the message: who has taken it calls
      its handler, also after that, and nobody hears of the end.
    - Of a queue that is not orderly or is keyed: it changed hands, and nobody had taken the message at its committed
      offset, which its owner forwards: members that want it are paused or busy, and it is not waited for.
    - The queue changed hands, and a fault reached a member after it had started a message below this one that is not
      committed: its owner has perhaps not heard of the end, so that the message waits, and holds up the committed
      offset.
    - A message is stored twice (of two sends whose outcome was unknown, or of two send-backs) after a fault: each copy
      is handled.
    """
    findings: list[str] = []
    faults, unanswered, settling, calls = Faults(), Faults({UNANSWERED}), Settling(), LongCalls(history, latency)
    first, done, begun = dict[tuple[Place, int], Started](), dict[int, Finished](), dict[int, float]()
    failed: set[tuple[Place, int]] = set()
    excused: set[int] = set()
    routes, untaken = Routes(), Untaken(forwards)
    whom, sessions = defaultdict[Place, set[str]](set), defaultdict[str, int](int)
    owners = defaultdict[str, list[str]](list)
    seen_in: dict[tuple[Place, int], int] = {}
    open_at_end: dict[str, int] = {}
    started: defaultdict[str, dict[int, Started]] = defaultdict(dict)
    for event in history:
        faults.see(event)
        unanswered.see(event)
        settling.see(event)
        calls.see(event)
        routes.see(event)
        untaken.see(event)
        if isinstance(event, Assigned | Released):
            sessions[event.queue] += 1
            if isinstance(event, Released):
                lowest = settling.lowest_open(event.queue)
                open_at_end[event.queue] = min([lowest, *settling.waiting[event.queue]])
            owners[event.queue].append(event.member)
        elif isinstance(event, Stored):
            begun.setdefault(event.number, event.at)
        elif isinstance(event, Committed):
            for offset in [offset for offset in started[event.queue] if offset < event.offset]:
                del started[event.queue][offset]
        elif isinstance(event, Started):
            below = [one for offset, one in started[event.queue].items() if offset < event.offset]
            started[event.queue].setdefault(event.offset, event)
            place = event.queue, event.offset
            attempt = place, event.attempt
            earlier, by = first.setdefault(attempt, event), whom[place]
            by.add(event.member)
            session = seen_in.setdefault(attempt, sessions[event.queue])
            if earlier is event:
                continue
            excused.add(event.number)
            if attempt in failed and (place not in settling.places or event.offset in settling.waiting[event.queue]):
                continue
            # The commit of a long call that has just ended may still end a session of the next owner.
            is_slow = calls.held_back(event.queue, event.offset, earlier.at - UNDER_WAY, event.at)
            is_slow |= calls.will_last(earlier)
            has_changed_hands = event.member != earlier.member or session != sessions[event.queue]
            may_be_shared = topic_of(event.queue) not in orderly and has_changed_hands
            is_handed_over = may_be_shared and (is_slow or routes.differ(earlier.at))
            topic, waits = topic_of(event.queue), open_at_end.get(event.queue, event.offset) < event.offset
            if topic in keyed and has_changed_hands:
                is_handed_over = is_slow or waits
            if (topic in guarded or (guarded and is_copy(event.queue))) and has_changed_hands:
                is_handed_over = is_handed_over or waits
            if topic not in orderly:
                is_handed_over |= any(forwards(owner, event.number) for owner in owners[event.queue][-8:-1])
            if has_changed_hands and (topic in keyed or topic not in orderly):
                is_handed_over |= untaken.held_up(event.queue, event.offset)
            if has_changed_hands:
                is_handed_over |= any(faults.reached({one.member}, one.at) for one in below)
            since = earlier.at - REMEMBERED
            is_disturbed = faults.reached({*by, *owners[event.queue][-8:], broker_of(event.queue)}, since)
            if not is_disturbed and not unanswered.reached({event.queue}, since) and not is_handed_over:
                findings.append(
                    f"{event.queue} #{event.offset} attempt {event.attempt} started at {earlier.at:.3f} "
                    f"by {earlier.member}, and again at {event.at:.3f} by {event.member}"
                )
        elif isinstance(event, Finished) and not event.done:
            failed.add(((event.queue, event.offset), event.attempt))
        elif isinstance(event, Finished):
            once = done.setdefault(event.number, event)
            # A copy too many may have been stored long before it comes: a retry waits for minutes.
            is_explained = event.number in excused or faults.any_since(begun.get(event.number, event.at) - REMEMBERED)
            if once is not event and not is_explained:
                findings.append(f"message {event.number} was done at {once.at:.3f}, and again at {event.at:.3f}")
    return findings


def late_commits(history: History, orderly: Collection[str]) -> list[str]:
    """Of an orderly queue at most 32 messages are finished and not committed, so a kill repeats at most those.

    Not counted is what was finished in the last second: its commit may be under way. A fault that reached the owner,
    the broker of the queue or all connections is an excuse for 60 s, because nothing is committed without trust.
    """
    findings: list[str] = []
    faults, settling = Faults(), Settling()
    owners: dict[str, str] = {}
    committed: defaultdict[str, int] = defaultdict(int)
    finished: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)
    for event in history:
        faults.see(event)
        settling.see(event)
        if isinstance(event, Assigned):
            owners[event.queue] = event.member
        elif isinstance(event, Committed):
            committed[event.queue] = event.offset
        elif isinstance(event, Finished) and event.done and topic_of(event.queue) in orderly:
            waiting, low = finished[event.queue], committed[event.queue]
            waiting.append((event.at, event.offset))
            while waiting and waiting[0][1] < low:
                waiting.popleft()
            late = sum(at < event.at - COMMIT_TAKES for at, _ in waiting)
            whom = owners.get(event.queue, ""), event.member, broker_of(event.queue)
            if late > MOST_UNCOMMITTED and not faults.reached(whom, event.at - TRUST_RETURNS):
                findings.append(f"{event.queue}: {late} finished messages are not committed at {event.at:.3f}")
                waiting.clear()
    return findings
