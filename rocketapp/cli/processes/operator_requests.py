"""Answers a process of an app gives to an operator: a description, a call of a handler, a replayed dead letter.

Each runs in a thread of its own, so that the event loop and the pipe to the parent go on. A handler that is tried runs
on the app's loop, within `TRIED_WITHIN` seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rocketapp.cli.failure import describe, user_place
from rocketapp.errors import RocketAppError, SetupError
from rocketapp.model.subscription_words import OUTCOMES

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings import Settings
    from rocketapp.testing import Published

_log = logging.getLogger("rocketapp.run")
TRIED_WITHIN = 3.5
"""Seconds that a call may take: who asks waits for 4."""


def _describe(app: RocketApp, settings: Settings, _fields: Mapping[str, Any]) -> str:
    from rocketapp.asyncapi.document import document_of, encoded

    return encoded(document_of(app, settings))


def _replay(app: RocketApp, settings: Settings, fields: Mapping[str, Any]) -> str:
    """Look for the dead letter in each cluster that has the group; each has its own replay state."""
    from rocketapp.app.declare.phases import declared_of
    from rocketapp.cli.replays import GroupReplay

    group, clusters, problems = fields["group"], fields["clusters"], list[str]()
    for cluster in clusters:
        there, state = settings, Path(settings.broker.dir)
        if cluster:
            client = replace(settings.client, name_server=declared_of(app).clusters[cluster])
            there = replace(settings, client=client, sources={})
        file = state.with_name(f"{state.name}.replay-{group}.{quote(cluster, '')}.json")
        try:
            text = GroupReplay(there, group, str(file) if cluster and len(clusters) > 1 else None).one(fields["id"])
        except RocketAppError as error:
            problems.append(f"{cluster}: {error}" if cluster else str(error))
            continue
        _log.warning("%s, by an operator", text)
        return text
    raise SetupError("", "; ".join(problems))


def _try(app: RocketApp, settings: Settings, fields: Mapping[str, Any]) -> str:
    """Call a handler: its outcome, and what it would publish. Nothing is sent and no offset moves."""
    from rocketapp.app.declare.phases import loop_of

    published: list[Published] = []

    async def within() -> Any:
        async with asyncio.timeout(TRIED_WITHIN):
            return await _called(app, settings, fields, published)

    try:
        outcome = asyncio.run_coroutine_threadsafe(within(), loop_of(app)).result()
    except TimeoutError:
        return f"not done within {TRIED_WITHIN:g} s: it was cancelled"
    word, text = told(outcome)
    lines = [f"{word}: {text}" if text else word]
    lines += (f"would publish to {one.topic}: {one.body.decode('utf-8', 'backslashreplace')}" for one in published)
    return "\n".join(lines)


async def _called(app: RocketApp, settings: Settings, fields: Mapping[str, Any], published: list[Published]) -> Any:
    from rocketapp.app.declare.phases import handlers_of
    from rocketapp.testing import call, make_message

    known = {
        f"{one.subscription.handler_name} {one.subscription.topic} {one.subscription.group}": one
        for one in handlers_of(app, settings)
    }
    if (found := known.get(fields["handler"])) is None:
        raise SetupError("", f"there is no handler {fields['handler']}: give its name, its topic and its group")
    subscription = found.subscription
    topic, group = subscription.topic, subscription.group
    tag = fields["tag"] or min(subscription.tags, default=None)
    message = make_message(fields["body"].encode(), topic=topic, tag=tag)
    item = message if subscription.batch is None else [message]
    outcome: Any = await call(found.function, item, app=app, topic=topic, group=group, published=published)
    return outcome if subscription.batch is None else outcome[0]


def told(outcome: Any) -> tuple[str, str]:
    """An outcome as a word and a text: `retry` and `app.py:12: KeyError: 'total'`."""
    word = next((word for kind, word in OUTCOMES if isinstance(outcome, kind)), "done")
    cause = getattr(outcome, "__cause__", None)
    if cause is not None:
        place = user_place(cause)
        return word, f"{f'{place}: ' if place else ''}{describe(cause)}"
    value = getattr(outcome, "value", None)
    return word, getattr(outcome, "reason", "") or ("" if value is None else f"{value!r}")


ANSWERS: Mapping[str, Callable[[RocketApp, Settings, Mapping[str, Any]], str]] = {
    "describe": _describe,
    "replay": _replay,
    "try": _try,
}
"""What makes the text for whoever asked. It raises what goes wrong."""
