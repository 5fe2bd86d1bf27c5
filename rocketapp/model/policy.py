"""What follows a failed attempt, as a user declares it: `retry=Policy(...)` on a handler, a Router or an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import float_info

from rocketapp.model.names import DELAY_SECONDS
from rocketapp.model.numbers import is_number, is_whole
from rocketapp.model.outcome import DeadLetter, Outcome, Pause, Retry, Skip

OutcomeOrClass = type[Outcome] | Outcome
"""What follows an exception: Retry, Skip, DeadLetter or Pause, or one made with its arguments: `Retry(after=60)`."""

_OUTCOMES = (Retry, Skip, DeadLetter, Pause)
_MOST = float_info.max
"""A larger whole number cannot be made a float."""
_MOST_FAILURES = 1_000_000
LONGEST_DELAY = float(DELAY_SECONDS[-1])
"""Seconds of the longest delay level, the most that a concurrent handler can wait: 2 h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Pauses the topic of a handler whose calls fail again and again, for example while its database is down.

    failures: this many failed attempts open it (each message of a batch is one), when they came
    within: this many seconds, and were at least
    share: this part of all calls meanwhile. Dead letters and skipped messages are not counted as failures.
    pause: seconds that the topic is paused in its group, in this process. After them one message is tried: when it
        succeeds the topic goes on, when it fails the next pause begins. When none comes for a further pause the topic
        goes on, and the next one decides.

    Raises TypeError or ValueError, which say what to write instead.
    """

    failures: int = 20
    within: float = 60.0
    pause: float = 30.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not is_whole(self.failures) or self.failures < 1:
            raise ValueError(f"Breaker(failures={self.failures!r}): give a whole number, 1 or more")
        if self.failures > _MOST_FAILURES:
            raise ValueError(f"Breaker(failures={self.failures!r}): give {_MOST_FAILURES} at most")
        for name, seconds in (("within", self.within), ("pause", self.pause)):
            if not is_number(seconds) or not 0 < seconds <= _MOST:
                raise ValueError(f"Breaker({name}={seconds!r}): give seconds, more than 0")
        if not is_number(self.share) or not 0 < self.share <= 1:
            raise ValueError(f"Breaker(share={self.share!r}): give a share of all calls, above 0 and up to 1")


@dataclass(frozen=True, slots=True)
class Policy:
    """When a failed message is tried again, and which exceptions mean something else than a retry.

    delays: seconds before the second attempt, the third, and so on; the last one repeats. Empty: the usual
        delays. A concurrent handler's are rounded up to RocketMQ's delay levels (1 s to 2 h); an orderly
        handler's are exact. How many attempts there are is said by `retries=`.
    on: an exception class -> Retry, Skip, DeadLetter or Pause, also made with arguments. The class nearest to that
        of the exception decides, as `except` clauses would in the best order. Other exceptions mean Retry. What a
        handler raises or returns as an outcome holds as it is.
    breaker: pauses the topic while most calls fail; None does not.

    Raises TypeError or ValueError, which say what to write instead.
    """

    delays: Sequence[float] = ()
    on: Mapping[type[BaseException], OutcomeOrClass] = field(default_factory=dict, hash=False)
    breaker: Breaker | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", _checked_delays(self.delays))
        object.__setattr__(self, "on", _checked_outcomes(self.on))
        if self.breaker is not None and not isinstance(self.breaker, Breaker):
            raise TypeError(f"Policy(breaker={self.breaker!r}): give a Breaker, such as Breaker(failures=20, pause=30)")


def unfit_for_concurrent(policy: Policy) -> str | None:
    """Why a concurrent handler cannot have this policy, with the mend; None when it can."""
    waits = [("delays", delay) for delay in policy.delays]
    waits += [("on", one.after) for one in policy.on.values() if isinstance(one, Retry) and one.after is not None]
    for name, delay in waits:
        if delay > LONGEST_DELAY:
            return (
                f"retry=Policy({name}=...): {delay:g} s is longer than RocketMQ's longest delay, {LONGEST_DELAY:g} s "
                f"(2 h): give {LONGEST_DELAY:g} or less, or make the handler orderly, whose delays are exact"
            )
    return None


def _checked_delays(delays: object) -> tuple[float, ...]:
    if isinstance(delays, str | bytes) or not isinstance(delays, Sequence):
        raise TypeError(f"Policy(delays={delays!r}): give a list of seconds, such as [1, 5, 30]")
    for delay in delays:
        if not is_number(delay):
            raise TypeError(f"Policy(delays=...): {delay!r} is not a number of seconds")
        if not 0 <= delay <= _MOST:
            raise ValueError(f"Policy(delays=...): {delay!r}: give seconds, 0 or more")
    return tuple(map(float, delays))


def _checked_outcomes(on: object) -> dict[type[BaseException], OutcomeOrClass]:
    if not isinstance(on, Mapping):
        raise TypeError(f"Policy(on={on!r}): give a dict, such as {{ValueError: DeadLetter}}")
    for kind, answer in on.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"Policy(on=...): {kind!r} is not an exception class: name the class itself")
        if not issubclass(kind, Exception | SystemExit):
            raise ValueError(
                f"Policy(on=...): {kind.__name__} stands for more than failed messages: name Exception, SystemExit, or "
                "a class below them"
            )
        if issubclass(kind, Outcome):
            raise ValueError(f"Policy(on=...): {kind.__name__} says itself what follows: remove it")
        if not _is_outcome(answer):
            shown = answer.__name__ if isinstance(answer, type) else repr(answer)
            raise TypeError(f"Policy(on=...): {kind.__name__}: {shown}: give Retry, Skip, DeadLetter or Pause")
    return dict(on)


def _is_outcome(answer: object) -> bool:
    return issubclass(answer, _OUTCOMES) if isinstance(answer, type) else isinstance(answer, _OUTCOMES)
