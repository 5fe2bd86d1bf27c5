"""A policy and a failed attempt -> what follows. Asked for failures only."""

from __future__ import annotations

from dataclasses import replace

from rocketapp.model.outcome import DeadLetter, Outcome, Pause, Retry, Skip
from rocketapp.model.policy import OutcomeOrClass, Policy
from rocketapp.state.redelivery import Failure


def outcome_for(policy: Policy, kind: type[BaseException]) -> OutcomeOrClass | None:
    """What the policy says of the nearest class that it names; None when it names none of them."""
    on = policy.on
    return next((on[each] for each in kind.__mro__ if each in on), None)


def judged(policy: Policy | None, error: BaseException, failure: Failure) -> Failure | None:
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
