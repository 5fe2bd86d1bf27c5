"""What must hold when mechanisms meet: every promise at once, and no fault excuses a wait.

The only faults are deaths (`kill -9`, noticed at once) and cut drains; whatever else happens is asked for by operators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulation import checks, ownership, repeats
from tests.simulation.excuses import NEWS, Forwards
from tests.simulation.history import (
    CRASH,
    DRAIN_CUT,
    JOIN,
    LEAVE,
    LEFT,
    REFUSED,
    Assigned,
    Cancelled,
    Committed,
    Event,
    Fault,
    Finished,
    History,
    Paused,
    Place,
    Released,
    Resumed,
    Started,
    Stored,
    Unexplained,
    is_copy,
    is_dead_letter,
    topic_of,
)

LOOK = 2.0
"""Seconds between looks at what members say of their queues."""
UNEXPLAINED = 20.0
"""Seconds for which a queue may stand still without a reason."""
STARTS = 1.0
"""Seconds in which a message is started that nothing holds back."""
QUARANTINE_TURN = 35.0
"""Seconds for which one quarantined message may hold up the next one of its handler."""
THREAD_HELD = 0.05
"""Seconds for which a call among members may hold one of a broker's threads."""
THREAD_AWAITED = 0.1
"""Seconds for which a request, of whatever group, may wait until one of these threads is free."""
ASKED_AGAIN = 1.2
"""Seconds after which the owner of a queue has asked again what became of a message that it has forwarded."""
MOST_DEATHS = 8
"""Processes that one message may end: it is certain to be the cause after four deaths that blame it, and before each of
these may come one that blames nobody, for several quarantined messages were in flight, of different handlers."""


def broken(
    history: History,
    *,
    orderly: Collection[str],
    keyed: Collection[str],
    prompt: Collection[str],
    retries: Mapping[str, int],
    refused: Collection[tuple[int, int]],
    forwards: Forwards,
    within: float,
) -> list[str]:
    """Everything that is wrong. `prompt`: topics of which no message has to wait for a rate, a breaker or a taker."""
    judged = with_deaths(history)
    settled = with_passed_over(judged, forwards)
    return [
        *checks.lost(settled),
        *checks.phantoms(history),
        *checks.conflicts(history),
        *checks.commits_ahead(settled),
        *checks.overtaking(settled, orderly, keyed),
        *ownership.overlaps(history, orderly, keyed),
        *ownership.double_sessions(history),
        *checks.commits_back(history, {*orderly, *keyed}),
        *ownership.two_owners(history, {*orderly, *keyed}, forwards),
        *repeats.repeats(as_heard(judged), {*orderly, *keyed}, keyed, {*retries} - {*orderly}, forwards),
        *repeats.late_commits(judged, orderly),
        *calls_while_paused(history),
        *attempts_without_calls(history, retries, refused),
        *held_up(history, prompt, {*orderly, *keyed}),
        *without_reason(history),
        *refused_requests(history),
        *checks.stuck(history, within),
    ]


def with_deaths(history: History) -> list[Event]:
    """The same history, in which a call has failed that ended its process, or was running beside one that did."""
    found, running = list[Event](), defaultdict[str, dict[tuple[str, int, int], Started]](dict)
    for event in history:
        found.append(event)
        match event:
            case Started():
                running[event.member][event.queue, event.offset, event.attempt] = event
            case Finished() | Cancelled():
                running[event.member].pop((event.queue, event.offset, event.attempt), None)
            case Fault(kind=kind, who=who) if kind == CRASH:
                for call in running.pop(who, {}).values():
                    found.append(Finished(event.at, *call[1:], False))
    return found


def with_passed_over(history: Iterable[Event], forwards: Forwards) -> list[Event]:
    """The same history, in which a message is done that its owner has passed over because nobody knew who wants it.

    When all members of a roll-out are dead that have heard of one another, nobody is left who remembers what each kind
    wanted. The first that begins passes over what only another kind wants, until one of that kind has joined and is
    heard of.
    """
    found, living, known = list[Event](), dict[str, float](), dict[str, float]()
    owners, stored = dict[str, str](), defaultdict[str, dict[int, int]](dict)
    for event in history:
        found.append(event)
        offsets: Iterable[int] = ()
        match event:
            case Fault(kind=kind, who=who) if kind == JOIN:
                living[who] = known[who] = event.at
            case Fault(kind=kind, who=who) if kind in (CRASH, LEFT):
                living.pop(who, None)
                owners = {queue: owner for queue, owner in owners.items() if owner != who}
                if all(joined > event.at - NEWS for joined in living.values()):
                    known = dict(living)
            case Assigned(queue=queue, member=member):
                owners[queue], offsets = member, [*stored[queue]]
            case Stored(queue=queue, offset=offset, number=number):
                stored[queue][offset] = number
                offsets = [offset] if queue in owners else []
        for offset in offsets:
            owner, number = owners[queue], stored[queue][offset]
            if all(forwards(one, number) or joined > event.at - NEWS for one, joined in {**known, owner: 0.0}.items()):
                found.append(Finished(event.at, owner, queue, offset, number, 1, True))
    return found


def as_heard(history: Iterable[Event]) -> list[Event]:
    """The same history, in which a call has failed whose end does not count: its message is called again.

    It was cancelled; or it still ran, in a thread or at another member, when a member that leaves gave its queue up;
    or its member has left, and it runs on in a thread; or its member's drain was cut before it ended, and the queue was
    given up without a commit of it: that was under way; or it was forwarded, and ended so short a time before a member
    that leaves gave its queue up that this owner has not asked again: a drain that is cut waits for no answer. One that
    failed after that cut has failed still when its copy is stored behind the end of the queue: no commit tells of it.
    """
    found, leaving = list[Event](), set[str]()
    running, cut = set[Started](), set[tuple[str, str, int, int]]()
    owners, forwarded = dict[str, str](), list[tuple[str, int]]()
    out_of_time, late, committed = set[str](), list[int](), defaultdict[str, int](int)
    unheard: defaultdict[int, list[Finished]] = defaultdict(list)

    def fail(at: float, calls: Collection[Started]) -> None:
        running.difference_update(calls)
        for call in sorted(calls):
            cut.add((call.member, call.queue, call.offset, call.attempt))
            found.append(Finished(at, *call[1:], False))

    for event in history:
        match event:
            case Fault(kind=kind, who=who) if kind == LEAVE:
                leaving.add(who)
            case Fault(kind=kind, who=who) if kind == DRAIN_CUT:
                out_of_time.add(who)
            case Committed(queue=queue, offset=offset):
                committed[queue] = offset
            case Fault(kind=kind, who=who) if kind == LEFT:
                fail(event.at, {call for call in running if call.member == who})
            case Assigned(member=member, queue=queue):
                owners[queue] = member
            case Started():
                running.add(event)
            case Released(member=member, queue=queue) if member in leaving:
                fail(event.at, {call for call in running if call.queue == queue})
                for index in (index for of, index in forwarded if of == queue):
                    if (ended := found[index]).at > event.at - ASKED_AGAIN:
                        found[index] = Finished(*ended[:6], False)
                for index in late:
                    ended = found[index]
                    if ended.queue == queue and ended.member == member and ended.offset >= committed[queue]:
                        if not ended.done:
                            unheard[ended.number].append(ended)
                        found[index] = Finished(*ended[:6], False)
            case Finished() | Cancelled():
                call = event.member, event.queue, event.offset, event.attempt
                running = {one for one in running if (one.member, one.queue, one.offset, one.attempt) != call}
                if call in cut:
                    cut.discard(call)
                    continue
                if owners.get(event.queue) != event.member:
                    forwarded.append((event.queue, len(found)))
                elif event.member in out_of_time:
                    late.append(len(found))
        found.append(Finished(*event, False) if isinstance(event, Cancelled) else event)
        if isinstance(event, Stored) and is_copy(event.queue):
            found += [ended._replace(at=event.at) for ended in unheard.pop(event.number, ())]
    return found


def calls_while_paused(history: History) -> list[str]:
    """No call of a paused topic starts in the member where it is paused, wherever the message comes from."""
    findings, paused = list[str](), dict[tuple[str, str], float]()
    topics = {event.number: topic_of(event.queue) for event in history if _is_first(event)}
    for event in history:
        match event:
            case Paused(member=member, topic=topic):
                paused[member, topic] = event.at
            case Resumed(member=member, topic=topic):
                paused.pop((member, topic), None)
            case Started(member=member, number=number) if (member, topics.get(number)) in paused:
                since = paused[member, topics[number]]
                if event.at > since:
                    findings.append(f"{member} started message {number} at {event.at:.3f}, paused since {since:.3f}")
    return findings


def attempts_without_calls(
    history: History, retries: Mapping[str, int], refused: Collection[tuple[int, int]]
) -> list[str]:
    """Every attempt but the first follows a call that failed, and no message is dead without its attempts.

    A death of a member counts for what was stored before.
    """
    findings, failed, stored = list[str](), Counter[int](), dict[int, float]()
    topics, called, deaths = dict[int, str](), set[int](), list[float]()
    for event in with_deaths(history):
        match event:
            case Fault(kind=kind) if kind == CRASH:
                deaths.append(event.at)
            case Stored(queue=queue, number=number) if is_dead_letter(queue):
                excused = sum(at >= stored.get(number, 0.0) for at in deaths)
                is_refused = any(number == one for one, _ in refused)
                most = retries.get(topics.get(number, ""), 0)
                if number not in called:
                    findings.append(f"message {number} is dead at {event.at:.3f} without one call")
                elif not is_refused and failed[number] + excused <= most:
                    findings.append(f"message {number} is dead at {event.at:.3f} after {failed[number]} failed calls")
            case Stored(queue=queue, number=number) if not is_copy(queue):
                stored.setdefault(number, event.at)
                topics.setdefault(number, topic_of(queue))
            case Started(number=number, attempt=attempt):
                called.add(number)
                excused = sum(at >= stored.get(number, 0.0) for at in deaths)
                if attempt - 1 > failed[number] + excused:
                    findings.append(
                        f"message {number}: attempt {attempt} at {event.at:.3f} after {failed[number]} failed calls"
                    )
            case Finished(number=number, done=False):
                failed[number] += 1
    return findings


def owners_of_forwarded(history: History, before: float) -> set[str]:
    """Whose messages are in flight at another member than the owner of their queue, and were before this time."""
    owners, running = dict[str, str](), dict[tuple[str, str, int], float]()
    for event in history:
        match event:
            case Assigned(queue=queue, member=member):
                owners[queue] = member
            case Started(queue=queue, member=member, offset=offset):
                running[member, queue, offset] = event.at
            case (
                Finished(queue=queue, member=member, offset=offset)
                | Cancelled(queue=queue, member=member, offset=offset)
            ):
                running.pop((member, queue, offset), None)
            case Fault(kind=kind, who=who) if kind == CRASH:
                running = {call: at for call, at in running.items() if call[0] != who}
    return {
        owners[queue]
        for (member, queue, _), at in running.items()
        if at < before and owners.get(queue, member) != member
    }


@dataclass(slots=True)
class _Queue:
    """What is known of one queue while the history goes by."""

    excused: float = 0.0
    """Until when something held it up that may."""
    running: set[tuple[str, int]] = field(default_factory=set)
    stored: dict[int, float] = field(default_factory=dict)
    """By offset what was not started yet."""
    owner: str = ""


def held_up(history: History, prompt: Collection[str], in_order: Collection[str]) -> list[str]:
    """A message that nothing concerns is started within seconds, whatever is quarantined or forwarded beside it.

    Not counted: while its queue has no owner, while its topic is paused there; of a queue in order while a call of it
    runs; of what was stored before a death while another such message of its topic has its turn.
    """
    findings, queues = list[str](), defaultdict[str, _Queue](_Queue)
    death, paused = float("-inf"), set[tuple[str, str]]()
    turns: defaultdict[str, dict[tuple[str, str, int], float]] = defaultdict(dict)
    turned: defaultdict[str, float] = defaultdict(float)
    stored_at: dict[Place, float] = {}
    for event in history:
        match event:
            case Stored(queue=name, offset=offset) if topic_of(name) in prompt:
                queues[name].stored[offset] = stored_at[name, offset] = event.at
            case Assigned(queue=name, member=member):
                queues[name].excused, queues[name].owner = event.at, member
            case Fault(kind=kind, who=who) if kind == CRASH:
                death = event.at
                for queue in queues.values():
                    queue.running = {call for call in queue.running if call[0] != who}
                    if queue.owner == who:
                        queue.excused = float("inf")  # until another member has it
                for topic, calls in turns.items():
                    for call in [one for one in calls if one[0] == who]:
                        del calls[call]
                    turned[topic] = event.at
            case Fault(kind=kind, who=who) if kind == LEAVE:
                for queue in queues.values():
                    if queue.owner == who:
                        queue.excused = float("inf")
            case Paused(member=member, topic=topic):
                paused.add((member, topic))
            case Resumed(member=member, topic=topic):
                paused.discard((member, topic))
                for name, queue in queues.items():
                    if topic_of(name) == topic and queue.excused < event.at:
                        queue.excused = event.at
            case Started(queue=name, offset=offset, member=member) if name in queues:
                queue, topic = queues[name], topic_of(name)
                if (since := queue.stored.pop(offset, None)) is not None and (queue.owner, topic) not in paused:
                    since = max(since, queue.excused)
                    if topic in in_order and queue.running:
                        since = event.at
                    if stored_at[name, offset] <= death:
                        running = (min(event.at, at + QUARANTINE_TURN) for at in turns[topic].values())
                        since = max(since, turned[topic], *running)
                    if event.at - since > STARTS:
                        findings.append(
                            f"{name}: #{offset} started at {event.at:.3f}, and nothing has held it up since {since:.3f}"
                        )
                queue.running.add((member, offset))
                if stored_at.get((name, offset), event.at) <= death:
                    turns[topic][member, name, offset] = event.at
            case (
                Finished(queue=name, offset=offset, member=member) | Cancelled(queue=name, offset=offset, member=member)
            ) if name in queues:
                queue, topic = queues[name], topic_of(name)
                queue.running.discard((member, offset))
                if topic in in_order and queue.excused < event.at:
                    queue.excused = event.at
                if (began := turns[topic].pop((member, name, offset), None)) is not None:
                    turned[topic] = max(turned[topic], min(event.at, began + QUARANTINE_TURN))
    return findings


def without_reason(history: History) -> list[str]:
    """A queue that does not move has its reason."""
    findings, since, seen = list[str](), dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    running: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    moved: defaultdict[str, float] = defaultdict(float)
    for event in history:
        match event:
            case Started(queue=queue, member=member, offset=offset):
                running[queue].add((member, offset))
                moved[queue] = event.at
            case (
                Finished(queue=queue, member=member, offset=offset)
                | Cancelled(queue=queue, member=member, offset=offset)
            ):
                running[queue].discard((member, offset))
                moved[queue] = event.at
            case Committed(queue=queue) | Stored(queue=queue):
                moved[queue] = event.at
            case Fault(kind=kind, who=who) if kind == CRASH:
                for calls in running.values():
                    calls -= {call for call in calls if call[0] == who}
            case Unexplained(member=member, queue=queue):
                key = member, queue
                if running[queue] or event.at - seen.get(key, float("-inf")) > 1.5 * LOOK:
                    since[key] = event.at
                seen[key] = event.at
                began = max(since[key], moved[queue])
                if event.at - began > UNEXPLAINED:
                    findings.append(f"{queue}: {member} does not say why it stands still since {began:.3f}")
                    since[key] = event.at
    return findings


def refused_requests(history: Iterable[Event]) -> list[str]:
    """Brokers have a thread for whatever is asked."""
    return [
        f"{event.who} refused at {event.at:.3f}: no thread was free"
        for event in history
        if isinstance(event, Fault) and event.kind == REFUSED
    ]


def _is_first(event: Event) -> bool:
    return isinstance(event, Stored) and not is_copy(event.queue)
