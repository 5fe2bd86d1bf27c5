"""What is wrong with an app, in the words of its log, and what to do about it.

`/ready`, the page and `rocketapp doctor` show the same findings. Findings with `needs_person` make the app not ready: a
blocked loop at once, a queue when it has stood still for `app.ready_patience` seconds without a message being
finished. What recovers by itself before that is shown, and changes nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketapp.model.event import LoopFailed, QueueBlocked, RollOut
from rocketapp.model.message_queue import MessageQueue
from rocketapp.operate.app_state import AppState, ProcessState, ProcessView, Stall
from rocketapp.plugins.log_lines import line_of

LATE: Final = 5.0
"""Seconds after which a process that has not reported counts as blocked or frozen."""
MOST: Final = 50
"""Findings that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, and what to do about it."""

    text: str
    mend: str = ""
    seconds: float = 0.0
    """For how long, as far as that is known."""
    needs_person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether an app is alive and ready, and its findings."""

    is_alive: bool
    """The event loop of each process runs, as far as it has started."""
    is_ready: bool
    findings: tuple[Finding, ...]
    """Findings that need a person come first."""


def check_health(state: AppState) -> Health:
    """Look at the state of an app and report what is wrong."""
    late = [(one, finding) for one in state.processes if (finding := _late(one)) is not None]
    views = [one.view for one in state.processes if one.view is not None]
    found = [finding for _, finding in late]
    found += [
        *_starts(state),
        *_unassigned(state, views),
        *_stalls(state, views),
        *_corrections(views),
        *_changes(views),
    ]
    if state.is_draining:
        found.insert(0, Finding(text="draining: handlers that run may finish, and nothing new is started"))
    has_started = bool(state.processes) and all(one.has_started and _has_assigned(one) for one in state.processes)
    found.sort(key=lambda one: (not one.needs_person, -one.seconds))
    is_ready = has_started and not state.is_draining and not any(one.needs_person for one in found)
    # A start may compute for long, and would compute as long again in a process that takes its place.
    is_alive = all(one.view is None for one, _ in late)
    return Health(is_alive=is_alive, is_ready=is_ready, findings=tuple(found))


def _late(one: ProcessState) -> Finding | None:
    """A finding if the event loop of this process does not run."""
    if one.blocked is not None:
        text = line_of(one.blocked).text
        mend = "make the handler a sync function, or let it await what it waits for"
        return Finding(text=_of(one, text), mend=mend, seconds=one.blocked.seconds, needs_person=True)
    if one.view is None or one.age < LATE:
        return None
    text = (
        f"{one.name or 'the event loop'} has not reported for {one.age:.0f} s: it is blocked, or the process is frozen"
    )
    mend = "the log names the line where a loop is blocked; py-spy shows where a process stands that logs nothing"
    return Finding(text=text, mend=mend, seconds=one.age, needs_person=True)


def _starts(state: AppState) -> Iterator[Finding]:
    """Findings for processes that do not consume yet, or no more."""
    for one in state.processes:
        if one.view is not None or one.blocked is not None or state.is_draining:
            continue
        text, mend = f"{one.name} has died and is started again", "the log says what it died of"
        if not one.has_started:
            text = f"{one.name or 'the app'} is starting"
            mend = "the log says how far it came; py-spy shows where a process stands that logs nothing"
        yield Finding(text=text, mend=mend, seconds=one.age, needs_person=one.age >= state.patience)


def _has_assigned(one: ProcessState) -> bool:
    """Whether every group of this process has been assigned its queues once: before that it does not consume."""
    return one.view is None or all(group.has_assigned for group in one.view.unassigned)


def _unassigned(state: AppState, views: Sequence[ProcessView]) -> Iterator[Finding]:
    """Findings for groups that cannot learn which queues are theirs; one for all processes with the same reason."""
    by_reason: dict[tuple[str, str], float] = {}
    for one in (one for view in views for one in view.unassigned):
        key = one.group, one.reason
        by_reason[key] = max(one.seconds, by_reason.get(key, 0.0))
    for (group, reason), seconds in by_reason.items():
        if not reason:
            yield Finding(text=f"group {group} does not know its queues yet", seconds=seconds)
            continue
        text = f"group {group}: {line_of(LoopFailed('rebalance', reason)).text}"
        mend = (
            "create the group on the brokers, or let them do it (autoCreateSubscriptionGroup=true)"
            if "no consumer for this group" in reason
            else "see that the brokers run, and can be reached from here at the addresses that they tell (brokerIP1)"
        )
        yield Finding(text=text, mend=mend, seconds=seconds, needs_person=seconds >= state.patience)


def _stalls(state: AppState, views: Sequence[ProcessView]) -> Iterator[Finding]:
    """Findings for queues that stand still; one for all queues of a topic and broker with the same reason."""
    by_reason: dict[tuple[str, str, str, str], list[Stall]] = {}
    for stall in (stall for view in views for stall in view.stalls):
        key = stall.group, stall.queue.topic, stall.queue.broker_name, stall.reason
        by_reason.setdefault(key, []).append(stall)
    for stalls in by_reason.values():
        first, longest = min(stalls, key=lambda one: one.queue), max(one.seconds for one in stalls)
        text = line_of(QueueBlocked(first.group, first.queue, first.reason)).text
        text += _and_more(len(stalls))
        mend = mend_of(first.reason, first.queue.topic)
        yield Finding(text=text, mend=mend, seconds=longest, needs_person=longest >= state.patience)


def _and_more(count: int) -> str:
    return f" (and {count - 1} more of its queues)" if count > 1 else ""


def _corrections(views: Sequence[ProcessView]) -> Iterator[Finding]:
    """Findings for queues whose offset was corrected: consuming goes on, but a person may want the rest."""
    by_reason: dict[tuple[str, str, str, str], set[MessageQueue]] = {}
    for group in (group for view in views for group in view.snapshot.groups):
        for one in (one for one in group.queues if one.corrected):
            key = group.group, one.queue.topic, one.queue.broker_name, one.corrected
            by_reason.setdefault(key, set()).add(one.queue)
    for (group_name, topic, _, why), queues in by_reason.items():
        text = f"group {group_name}: {min(queues)}: {why}{_and_more(len(queues))}"
        yield Finding(text=text, mend=mend_of_offset(group_name, topic))


def mend_of_offset(group: str, topic: str) -> str:
    """What a person can do about a committed offset that does not fit its queue."""
    return (
        "see whether the broker has lost its store or was replaced; what was passed over is read by "
        f"rocketapp offset reset {group} {topic} --to first"
    )


def _changes(views: Sequence[ProcessView]) -> Iterator[Finding]:
    """Findings for groups whose members subscribe differently, and for limits changed by `app.adjust`."""
    groups = [group for view in views for group in view.snapshot.groups]
    mend = "it ends by itself when all members run one version; what they do not take is forwarded meanwhile"
    for name, text in {group.group: group.roll_out for group in reversed(groups) if group.roll_out}.items():
        yield Finding(text=line_of(RollOut(name, text)).text, mend=mend)
    mend = "app.adjust changed it; a restart brings back what is declared and set"
    told = {(group.group, topic): values for group in groups for topic, values in group.adjusted.items()}
    for (name, topic), values in told.items():
        text = ", ".join(f"{limit} {value:g}" for limit, value in values.items())
        yield Finding(text=f"group {name}: topic {topic} runs with {text}", mend=mend)


def _of(one: ProcessState, text: str) -> str:
    return f"{one.name}: {text}" if one.name else text


_MENDS: Final[Mapping[str, str]] = {
    # A call that hangs is often the cause of the reason that stands before it.
    r"handler \S+ has been running": "find out what the handler waits for, and give that call a limit; timeout= ends a "
    "call of an async handler",
    r"that this app has no handler for": "see what keeps the member that is named, or stop it; rocketapp group show "
    "tells who subscribes what",
    r"paused: ": "resume it when its reason is gone: by the page of --http, or app.resume({topic!r})",
    r"no lock: another member": "a broker frees the lock of a member that is gone after a minute; otherwise stop the "
    "member that holds it",
    r"no lock: ": "see that its broker runs and can be reached from here: locks come from it",
    r"pull failed: |pop failed: |offset cannot be ": "see that its broker runs and can be reached from here; "
    "nothing is lost, and it goes on by itself",
    r"cannot be acknowledged: |to be hidden until their retry: ": "see that its broker runs and can be reached from "
    "here: what is not acknowledged in time comes again",
    r"to be sent back: ": "see that its broker runs and takes messages: a failed one is finished when the broker has "
    "it back",
    r"flow control: ": "its handler is slower than what comes: see what it waits for, or give it concurrency=, more "
    "--workers, or a larger limit",
    r"may have ended a process": "it goes on by itself: each of these messages has its turn, and one that lasts for "
    "over 30 s gives it up; see what their handler does with them",
    r"has failed: what is behind it waits": "the log says why it fails: mend the handler, or pass the message over "
    "(failures.skip_messages)",
    r" is parked: another copy": "it goes on by itself: the copy ends, or its process has died and its lease ends "
    "(idempotency.lease)",
    r"waits for a free call": "raise concurrency= of the handler, or start more --workers",
    r"waits for the rate": "raise rate= of the handler, or change it with app.adjust",
}
"""By a pattern of the reason; the first that fits is used."""


def mend_of(reason: str, topic: str) -> str:
    """What a person can do about a queue that stands still for this reason."""
    found = (mend for pattern, mend in _MENDS.items() if re.search(pattern, reason))
    return next(found, "the log says when and how it began").replace("{topic!r}", repr(topic))
