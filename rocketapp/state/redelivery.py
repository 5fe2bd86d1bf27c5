"""What follows a failed attempt: a retry level, a dead letter, or another try in place.

Attempts are counted by the broker in the record (concurrent), or by this client in memory and
told to the next owner (orderly): `reconsume_times` failures happened before the attempt that
failed now. Dead letters, and retries that go through a normal send, carry the properties made
here. A policy may say what an exception means, and how long to wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from rocketapp.model.names import DELAY_SECONDS, delay_level_at_least
from rocketapp.model.outcome import DeadLetter, Outcome, Pause, Retry, Skip
from rocketapp.model.policy import OutcomeOrClass, Policy

UNLIMITED = -1
"""The value of `retries` for an orderly handler that never gives up."""

CERTAIN = 3
"""So many deaths may have had another cause than the message in flight; one more, and it is to blame."""

LEAST_SUSPEND = 0.01
"""Least seconds between two attempts in place (Java: suspendCurrentQueueTimeMillis from 10 ms)."""
FIRST_LEVEL = 3
"""Delay level after the first failure: 10 s (Java: 3 + reconsumeTimes)."""

LONGEST_TEXT = 500
"""Most characters of a reason that are kept."""
NO_DELAY = ("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG")
"""Properties that would make a broker delay a copy, or treat it as half a transaction."""
REASONS = tuple(f"rocketapp.{name}" for name in ("handler", "exception", "reason", "attempts", "app_version"))
"""Properties of a dead letter that say what became of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, and what its handler or policy wants to follow."""

    kind: str
    """Class of the exception, or of the outcome."""
    text: str
    dead: bool = False
    """The handler asked for a dead letter."""
    after: float | None = None
    """Seconds that the handler asked to wait before the next attempt."""
    pause: bool = False
    """The topic is to be paused."""
    parked: bool = False
    """The message is kept, and starts again after `after` seconds or when its topic goes on: no attempt is counted."""
    error: BaseException | None = field(default=None, compare=False, repr=False)
    """What the handler raised in a last attempt, for its traceback; not kept of earlier ones."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def is_last(failure: Failure, *, reconsume_times: int, retries: int) -> bool:
    """Whether no attempt follows the failed one."""
    return failure.dead or (retries != UNLIMITED and reconsume_times >= retries)


def is_spent(reconsume_times: int, retries: int) -> bool:
    """Whether a popped message has no attempt left as it arrives, so that its last one cannot have had an end.

    A handler that fails for the last time makes a dead letter itself. Deaths count for everything that was in flight,
    also for what had not begun: so the first few do not suffice, however few retries there are.
    """
    return retries != UNLIMITED and reconsume_times > max(retries, CERTAIN)


def retry_level(failure: Failure, policy: Policy | None, *, reconsume_times: int, retries: int) -> int | None:
    """The delay level at which a message comes back on which a concurrent handler failed; None: it is dead."""
    if is_last(failure, reconsume_times=reconsume_times, retries=retries):
        return None
    after = delay_before(policy, reconsume_times) if failure.after is None else failure.after
    if after is not None:
        return delay_level_at_least(after)
    return min(FIRST_LEVEL + reconsume_times, len(DELAY_SECONDS))


def seconds_of(level: int) -> float:
    """After so many seconds a message of this delay level comes back."""
    return float(DELAY_SECONDS[level - 1])


def retry_delay(
    failure: Failure, policy: Policy | None, *, reconsume_times: int, retries: int, suspend: float
) -> float | None:
    """Seconds until a message on which an orderly handler failed is tried again in place; None: it is dead.

    `suspend` by default. Never less than LEAST_SUSPEND: a message that fails at once would keep its process busy.
    """
    if is_last(failure, reconsume_times=reconsume_times, retries=retries):
        return None
    delay = delay_before(policy, reconsume_times) if failure.after is None else failure.after
    return max(suspend if delay is None else delay, LEAST_SUSPEND)


def max_reconsume_times(retries: int) -> int:
    """The limit of retries that is sent to a broker (Java: 2**31-1 for unlimited)."""
    return 2**31 - 1 if retries == UNLIMITED else retries


class Path(Enum):
    """One way to have a copy of a failed message stored."""

    SEND_BACK = "send back"
    """The broker copies the message to the retry topic (CONSUMER_SEND_MSG_BACK)."""
    RETRY_COPY = "retry copy"
    """This client sends a copy to the retry topic."""
    DEAD_COPY = "dead copy"
    """This client sends a copy that becomes a dead letter, with the reasons in its properties."""
    DEAD_SEND_BACK = "dead send back"
    """The broker copies the message to the dead-letter topic (level -1), without reasons."""


class Problem(Enum):
    """What an error says about the copy."""

    UNKNOWN = "unknown"
    """Perhaps stored: the answer was lost, or it says so."""
    PASSING = "passing"
    """Not stored: the broker is busy or cannot be reached."""
    UNCLEAR = "unclear"
    """Not stored, for a reason that may pass or not."""
    LASTING = "lasting"
    """Not stored, and this path will never store it."""


PATIENCE = 300.0
"""Seconds after which an unclear refusal counts as a lasting one."""
LONGEST_ATTEMPT = 60.0
"""Most seconds of one attempt."""


def after_failure(
    path: Path, problem: Problem, *, first: Path, has_locks: bool, unclear_for: float
) -> tuple[Path, Path | None]:
    """What follows when an attempt by `path` met a problem, in a round that began with `first`: the path with which the
    next round begins, and the one to try in this round; None ends this round.

    `has_locks`: the group locks queues of a topic. Then a copy that this client sends to the retry topic becomes
    a dead letter, so only the broker can retry. `unclear_for`: seconds since the first unclear refusal
    of this message.

    After an unknown outcome no other path is tried in the same round: it could only store a second copy. Nor is one for
    a retry that its broker cannot store now: a copy of ours would go to the same broker, and be a dead letter there if
    another member, of a newer version, holds a lock.
    A dead letter that cannot be sent with its reasons is sent without them.
    """
    if problem is Problem.UNKNOWN or (problem is Problem.PASSING and path is Path.SEND_BACK):
        return first, None
    is_lasting = problem is Problem.LASTING or (problem is Problem.UNCLEAR and unclear_for >= PATIENCE)
    match path:
        case Path.SEND_BACK if has_locks:
            return (Path.DEAD_COPY, Path.DEAD_COPY) if is_lasting else (first, None)
        case Path.SEND_BACK:
            return (Path.RETRY_COPY if is_lasting else first), Path.RETRY_COPY
        case Path.RETRY_COPY:
            is_last_path = is_lasting and first is Path.RETRY_COPY
            return (Path.DEAD_COPY, Path.DEAD_COPY) if is_last_path else (first, None)
        case Path.DEAD_COPY:
            return Path.DEAD_COPY, Path.DEAD_SEND_BACK
        case Path.DEAD_SEND_BACK:
            return Path.DEAD_COPY, None


def attempt_timeout(base: float, unknowns: int) -> float:
    """Seconds that an attempt may take after `unknowns` attempts with an unknown outcome: 5, 10, 20, 40, 60, 60 ...

    With a constant timeout, a broker that answers later than that would store a copy with every attempt.
    """
    return min(base * 2.0 ** min(unknowns, 10), max(base, LONGEST_ATTEMPT))


def not_taken_back(failure: Failure, problem: str) -> Failure:
    """The failure of a message that should be retried, with the reason why it becomes a dead letter instead."""
    return replace(failure, text=f"not retried, because the broker does not take it back ({problem}): {failure.text}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The message that is copied to a retry or dead-letter topic."""

    topic: str
    message_id: str
    reconsume_times: int
    properties: Mapping[str, str]


def retry_properties(origin: Origin, *, level: int, retries: int) -> dict[str, str]:
    """Properties of a copy that this client sends to the retry topic: the broker did not take the message back."""
    properties = _copied(origin)
    properties["RECONSUME_TIME"] = str(origin.reconsume_times + 1)
    properties["MAX_RECONSUME_TIMES"] = str(max_reconsume_times(retries))
    properties["DELAY"] = str(level)
    return properties


def dead_letter_properties(
    origin: Origin, failure: Failure, *, handler: str, app_version: str, is_bare: bool = False
) -> dict[str, str]:
    """Properties of a dead letter: the message's own without its delays, and the reasons of the failure.

    `is_bare`: those were too large, so it says only where it came from.
    """
    where = {"ORIGIN_MESSAGE_ID": clean(origin.message_id), "RETRY_TOPIC": origin.topic}
    properties = where if is_bare else _copied(origin)
    # A count above the maximum makes the broker store the message as a dead letter.
    properties["RECONSUME_TIME"] = str(origin.reconsume_times + 1)
    properties["MAX_RECONSUME_TIMES"] = str(origin.reconsume_times)
    if is_bare:
        return properties
    properties["rocketapp.handler"] = clean(handler)
    properties["rocketapp.exception"] = clean(failure.kind)
    properties["rocketapp.reason"] = clean(failure.text)
    properties["rocketapp.attempts"] = str(origin.reconsume_times + 1)
    if app_version:
        properties["rocketapp.app_version"] = clean(app_version)
    return properties


def clean(text: str) -> str:
    """The text without control characters, which separate properties, cut to LONGEST_TEXT characters."""
    whole = text[:LONGEST_TEXT].encode("utf-8", "replace").decode()
    return "".join(" " if ord(sign) < 32 or ord(sign) == 127 else sign for sign in whole)


def _copied(origin: Origin) -> dict[str, str]:
    properties = {name: value for name, value in origin.properties.items() if name not in NO_DELAY}
    properties.setdefault("ORIGIN_MESSAGE_ID", origin.message_id)
    # Also when the property is there: a retried message keeps the first topic, which is `origin.topic`.
    properties["RETRY_TOPIC"] = origin.topic
    return properties


# What a policy says of a failed attempt.


def outcome_for(policy: Policy, kind: type[BaseException]) -> OutcomeOrClass | None:
    """What the policy says of the nearest class that it names; None when it names none of them."""
    on = policy.on
    return next((on[each] for each in kind.__mro__ if each in on), None)


def under_policy(policy: Policy | None, error: BaseException, failure: Failure) -> Failure | None:
    """The failure of an attempt that raised `error`, as the policy sees it; None when the message is done."""
    answer = None if policy is None else outcome_for(policy, type(error))
    if answer is None:
        return failure
    outcome, reason = (answer, None) if isinstance(answer, type) else (type(answer), answer)
    if issubclass(outcome, Skip):
        return None
    text = _with_reason(reason, failure.text)
    if issubclass(outcome, DeadLetter):
        return replace(failure, text=text, dead=True)
    if issubclass(outcome, Pause):
        return replace(failure, text=text, pause=True, parked=True)
    return replace(failure, after=reason.after) if isinstance(reason, Retry) else failure


def delay_before(policy: Policy | None, reconsume_times: int) -> float | None:
    """Seconds to wait after the attempt that `reconsume_times` failures came before; None: the usual delay."""
    if policy is None or not policy.delays:
        return None
    return policy.delays[min(reconsume_times, len(policy.delays) - 1)]


def _with_reason(outcome: Outcome | None, text: str) -> str:
    reason = outcome.reason if isinstance(outcome, DeadLetter | Pause) else ""
    return ": ".join(filter(None, (reason, text)))
