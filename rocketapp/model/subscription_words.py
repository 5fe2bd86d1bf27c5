"""A subscription in words: which messages it takes, how its handler runs, and what becomes of a message that fails."""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.model.names import DELAY_SECONDS, delay_level_at_least, dlq_topic
from rocketapp.model.outcome import DeadLetter, Park, Pause, Retry, Skip
from rocketapp.model.policy import Breaker, OutcomeOrClass, Policy
from rocketapp.model.subscription import Subscription, kind_of

SHOWN_DELAYS = 4
"""Delays that are spelt out before `...`."""
OUTCOMES = ((Retry, "retry"), (Skip, "skip"), (DeadLetter, "dead letter"), (Pause, "pause"), (Park, "parked"))
"""Each with the word for it."""


def describe_tags(one: Subscription) -> str:
    """Which messages of the topic."""
    if one.sql:
        return f"sql {one.sql}"
    return " || ".join(sorted(one.tags)) if one.tags else "* (what no other handler's tag takes)"


def describe_run(one: Subscription) -> str:
    """How many at once, in which order, in batches of what."""
    parts = [kind_of(one).runs.format(one=one, key=key_name(one))]
    if one.broadcast:
        parts[0] += ", broadcast: each process gets every message"
    parts.append("async" if one.is_async else "sync, in threads")
    if one.batch is not None:
        parts.append(f"batches of {one.batch} or what came within {one.batch_wait:g} s")
    if one.rate is not None:
        parts.append(f"at most {one.rate:g} messages a second in each process")
    if one.timeout is not None:
        parts.append(f"timeout {one.timeout:g} s")
    return "; ".join(parts)


def describe_failures(one: Subscription, *, suspend: float) -> str:
    """When a failed message comes again, and where it ends. `suspend` is consumer.suspend."""
    kind = kind_of(one)
    if not kind.by_message:
        return "nothing of the call is committed: the next call gets the same messages"
    if one.broadcast and not (kind.in_order and one.retries):
        return "dropped: logged once, and counted"
    if one.retries == 0:
        return f"no retry: to {dlq_topic(one.group)}"
    if kind.in_order:
        often = "for ever" if one.retries < 0 else _times(one.retries)
        last = "dropped" if one.broadcast else f"to {dlq_topic(one.group)}"
        end = "" if one.retries < 0 else f", then {last}"
        if one.retry is None or not one.retry.delays:
            return f"in place, {suspend:g} s apart, {often}; {kind.waits}{end}"
        return f"in place after {_delays(one.retry.delays, one.retries)}: {often}; {kind.waits}{end}"
    shown = _delays(delays_of(one, suspend=suspend), one.retries)
    return f"again after {shown}: {_times(one.retries)}, then to {dlq_topic(one.group)}"


def delays_of(one: Subscription, *, suspend: float) -> list[float]:
    """Seconds before the second attempt, the third, and so on, as they will be; the last one repeats."""
    asked = [] if one.retry is None else list(one.retry.delays)
    if kind_of(one).in_order:
        return asked or [suspend]
    if not asked:
        return [float(seconds) for seconds in DELAY_SECONDS[2:]]
    return [float(DELAY_SECONDS[delay_level_at_least(delay) - 1]) for delay in asked]


def describe_outcomes(policy: Policy) -> str:
    """What its exceptions mean."""
    return ", ".join(f"{kind.__name__}: {describe_outcome(answer)}" for kind, answer in policy.on.items())


def describe_outcome(answer: OutcomeOrClass) -> str:
    """`retry`, `retry after 1 min`, `skip`, `dead letter` or `pause`."""
    kind = answer if isinstance(answer, type) else type(answer)
    word = next(word for outcome, word in OUTCOMES if issubclass(kind, outcome))
    if isinstance(answer, Retry) and answer.after is not None:
        return f"{word} after {_duration(answer.after)}"
    return word


def describe_breaker(breaker: Breaker) -> str:
    """When it pauses the topic."""
    when = f"{breaker.failures} failures within {breaker.within:g} s, {breaker.share:.0%} of the calls"
    return f"after {when}: paused for {breaker.pause:g} s, then one message is tried"


def key_name(one: Subscription) -> str:
    """What `order_by` goes by: a property, or the name of its function."""
    order_by = one.order_by
    return f"property {order_by}" if isinstance(order_by, str) else getattr(order_by, "__qualname__", repr(order_by))


def filter_name(one: Subscription) -> str | None:
    """The name of its filter, or None."""
    return None if one.filter is None else getattr(one.filter, "__qualname__", repr(one.filter))


def idempotency_key(one: Subscription) -> str:
    """What tells copies, for a handler that handles each message once."""
    key = one.idempotent
    return "message id, tag and body" if key is True else getattr(key, "__qualname__", type(key).__qualname__)


def _delays(delays: Sequence[float], retries: int) -> str:
    """The first of them, and the last; retries beyond the last wait as long as that."""
    found = [_duration(seconds) for seconds in (delays if retries < 0 else delays[:retries])]
    return ", ".join(found[:SHOWN_DELAYS]) + (f" ... {found[-1]}" if len(found) > SHOWN_DELAYS else "")


def _times(retries: int) -> str:
    return "once" if retries == 1 else f"{retries} times"


def _duration(seconds: float) -> str:
    if seconds and seconds % 3600 == 0:
        return f"{seconds // 3600:g} h"
    return f"{seconds // 60:g} min" if seconds and seconds % 60 == 0 else f"{seconds:g} s"
