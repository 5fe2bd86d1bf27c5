"""`rocketapp routes`: what is subscribed, by whom, and what happens to a message that fails."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, CommandError, shown_path
from rocketapp.cli.options import app_options

if TYPE_CHECKING:
    from rocketapp.model.policy import Breaker, OutcomeOrClass, Policy
    from rocketapp.model.subscription import Subscription

_HERE = ("", "handler", "consumer.retries")
"""Sources that need no mention: the handler's own declaration, and the usual settings."""
SHOWN_DELAYS = 4
"""Delays that are spelt out before `...`."""


@click.command("routes")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@app_options
def command(*, app: str, settings: str | None, traceback: bool, as_json: bool) -> int:
    """Show what APP subscribes, and how failures go."""
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.settings import read_settings, subscriptions_of

    try:
        loaded = load_app(app)
        read = read_settings({}, file=settings, app=loaded)
        subscriptions = subscriptions_of(loaded, read)
    except CommandError as error:
        error.traceback = traceback
        raise
    if as_json:
        print(json.dumps([route_of(one, suspend=read.consumer.suspend) for one in subscriptions], indent=2))
        return DONE
    for line in describe_routes(subscriptions, suspend=read.consumer.suspend):
        print(line)
    return DONE


def describe_routes(subscriptions: Sequence[Subscription], *, suspend: float) -> Iterator[str]:
    """Line by line; groups and topics in the order of their declaration. `suspend` is consumer.suspend."""
    if not subscriptions:
        yield "nothing is subscribed"
    groups = dict.fromkeys((one.cluster, one.group) for one in subscriptions)
    for cluster, group in groups:
        yield f"group {group}" + (f" on cluster {cluster}" if cluster else "")
        for one in subscriptions:
            if (one.cluster, one.group) == (cluster, group):
                yield f"  {one.topic}  {describe_tags(one)}"
                yield from _describe(one, suspend=suspend)


def _describe(one: Subscription, *, suspend: float) -> Iterator[str]:
    """The lines of one handler: what was not asked for is left out."""
    yield f"    handler   {one.handler_name} at {_shown_place(one.place)}"
    yield f"    runs      {_how_it_runs(one)}"
    yield f"    start     {one.start if isinstance(one.start, str) else one.start.isoformat()}"
    if one.idempotent:
        yield f"    once      by {_idempotency_key(one)}"
    if one.publishes:
        yield f"    publishes what it returns to {one.publishes}"
    yield f"    failures  {describe_failures(one, suspend=suspend)}"
    if one.retry is not None and one.retry.on:
        yield f"    on        {describe_outcomes(one.retry)}"
    if one.retry is not None and one.retry.breaker is not None:
        yield f"    breaker   {describe_breaker(one.retry.breaker)}"
    said = [("retries", one.retries_from), ("policy", one.retry_from)]
    shown = [f"{what}: {_shown_source(source)}" for what, source in said if source not in _HERE]
    if shown:
        yield f"    said by   {'; '.join(shown)}"


def route_of(one: Subscription, *, suspend: float) -> dict[str, Any]:
    """One handler for `--json`. What was not asked for is null; seconds are numbers."""
    policy = one.retry
    return {
        "cluster": one.cluster,
        "group": one.group,
        "topic": one.topic,
        "tags": sorted(one.tags),
        "handler": one.handler_name,
        "place": one.place,
        "async": one.is_async,
        "orderly": one.orderly,
        "order_by": None if one.order_by is None else _key_name(one.order_by),
        "batch": one.batch,
        "batch_wait": None if one.batch is None else one.batch_wait,
        "concurrency": one.concurrency,
        "rate": one.rate,
        "timeout": one.timeout,
        "start": one.start if isinstance(one.start, str) else one.start.isoformat(),
        "idempotent": _idempotency_key(one) if one.idempotent else None,
        "publishes": one.publishes or None,
        "retries": one.retries,
        "retries_from": one.retries_from,
        "delays": None if policy is None else list(policy.delays),
        "on": None if policy is None else {kind.__name__: _outcome(answer) for kind, answer in policy.on.items()},
        "breaker": None if policy is None or policy.breaker is None else dataclasses.asdict(policy.breaker),
        "policy_from": one.retry_from or None,
        "failures": describe_failures(one, suspend=suspend),
    }


def _idempotency_key(one: Subscription) -> str:
    key = one.idempotent
    return "message id and body" if key is True else getattr(key, "__qualname__", type(key).__qualname__)


def _shown_source(source: str) -> str:
    """`RocketApp at file:line`, with the file as it is seen from here."""
    what, at, place = source.partition(" at ")
    return f"{what} at {_shown_place(place)}" if at else source


def describe_tags(one: Subscription) -> str:
    """Which messages of the topic."""
    return " || ".join(sorted(one.tags)) if one.tags else "* (what no other handler's tag takes)"


def _shown_place(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{shown_path(file)}:{line}"


def _how_it_runs(one: Subscription) -> str:
    parts = [f"concurrently, {one.concurrency} at once"]
    if one.order_by is not None:
        parts = [f"one by one per key ({_key_name(one.order_by)}), {one.concurrency} keys at once"]
    elif one.orderly:
        parts = ["orderly, one by one per queue"]
    parts.append("async" if one.is_async else "sync, in threads")
    if one.batch is not None:
        parts.append(f"batches of {one.batch} or what came within {one.batch_wait:g} s")
    if one.rate is not None:
        parts.append(f"at most {one.rate:g} messages a second in each process")
    if one.timeout is not None:
        parts.append(f"timeout {one.timeout:g} s")
    return "; ".join(parts)


def describe_failures(one: Subscription, *, suspend: float) -> str:
    """When a failed message comes again, and where it ends."""
    from rocketapp.model.names import DELAY_SECONDS, delay_level_at_least, dlq_topic

    if one.retries == 0:
        return f"no retry: to {dlq_topic(one.group)}"
    if one.orderly or one.order_by is not None:
        waits = "the queue waits" if one.orderly else "its key waits"
        often = "for ever" if one.retries < 0 else _times(one.retries)
        end = "" if one.retries < 0 else f", then to {dlq_topic(one.group)}"
        if one.retry is None or not one.retry.delays:
            return f"in place, {suspend:g} s apart, {often}; {waits}{end}"
        shown = _delays(one.retry.delays, one.retries)
        return f"in place after {shown}: {often}; {waits}{end}"
    delays: Sequence[float] = DELAY_SECONDS[2:]
    if one.retry is not None and one.retry.delays:
        delays = [DELAY_SECONDS[delay_level_at_least(delay) - 1] for delay in one.retry.delays]
    return f"again after {_delays(delays, one.retries)}: {_times(one.retries)}, then to {dlq_topic(one.group)}"


def _key_name(order_by: object) -> str:
    return f"property {order_by}" if isinstance(order_by, str) else getattr(order_by, "__qualname__", repr(order_by))


def describe_outcomes(policy: Policy) -> str:
    """What its exceptions mean."""
    return ", ".join(f"{kind.__name__}: {_outcome(answer)}" for kind, answer in policy.on.items())


def describe_breaker(breaker: Breaker) -> str:
    """When it pauses the topic."""
    when = f"{breaker.failures} failures within {breaker.within:g} s, {breaker.share:.0%} of the calls"
    return f"after {when}: paused for {breaker.pause:g} s, then one message is tried"


def _outcome(answer: OutcomeOrClass) -> str:
    from rocketapp.model.outcome import DeadLetter, Retry, Skip, Stop

    kind = answer if isinstance(answer, type) else type(answer)
    words = {Retry: "retry", Skip: "skip", DeadLetter: "dead letter", Stop: "stop"}
    word = next(word for outcome, word in words.items() if issubclass(kind, outcome))
    if isinstance(answer, Retry) and answer.after is not None:
        return f"{word} after {_duration(answer.after)}"
    return word


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
