"""`rocketapp routes`: what is subscribed, by whom, and what happens to a message that fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, CommandError, shown_path
from rocketapp.cli.options import app_options, json_option
from rocketapp.cli.output import print_json, say
from rocketapp.model.subscription_words import (
    describe_breaker,
    describe_failures,
    describe_outcome,
    describe_outcomes,
    describe_run,
    describe_tags,
    idempotency_key,
    key_name,
)

if TYPE_CHECKING:
    from rocketapp.model.subscription import Subscription

_HERE = ("", "handler", "consumer.retries", "broadcast")
"""Sources that need no mention: the handler's own declaration, and the usual settings."""


@click.command("routes", epilog="Example: rocketapp routes app:app")
@json_option
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
        print_json([route_of(one, suspend=read.consumer.suspend) for one in subscriptions])
        return DONE
    for line in describe_routes(subscriptions, suspend=read.consumer.suspend):
        say(line)
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
    yield f"    runs      {describe_run(one)}"
    yield f"    start     {one.start if isinstance(one.start, str) else one.start.isoformat()}"
    if one.idempotent:
        yield f"    once      by {idempotency_key(one)}"
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
        "sql": one.sql or None,
        "broadcast": one.broadcast,
        "handler": one.handler_name,
        "place": one.place,
        "async": one.is_async,
        "orderly": one.orderly,
        "order_by": None if one.order_by is None else key_name(one),
        "every": one.every,
        "batch": one.batch,
        "batch_wait": None if one.batch is None else one.batch_wait,
        "concurrency": one.concurrency,
        "rate": one.rate,
        "timeout": one.timeout,
        "start": one.start if isinstance(one.start, str) else one.start.isoformat(),
        "idempotent": idempotency_key(one) if one.idempotent else None,
        "publishes": one.publishes or None,
        "retries": one.retries,
        "retries_from": one.retries_from,
        "delays": None if policy is None else list(policy.delays),
        "on": None
        if policy is None
        else {kind.__name__: describe_outcome(answer) for kind, answer in policy.on.items()},
        "breaker": None if policy is None or policy.breaker is None else dataclasses.asdict(policy.breaker),
        "policy_from": one.retry_from or None,
        "failures": describe_failures(one, suspend=suspend),
    }


def _shown_source(source: str) -> str:
    """`RocketApp at file:line`, with the file as it is seen from here."""
    what, at, place = source.partition(" at ")
    return f"{what} at {_shown_place(place)}" if at else source


def _shown_place(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{shown_path(file)}:{line}"
