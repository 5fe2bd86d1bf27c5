"""`rocketapp dlq try`: what the local code does with a dead letter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import run_on
from rocketapp.cli.completing import groups
from rocketapp.cli.failure import DONE, FAILED, CommandError, describe, user_place
from rocketapp.cli.options import GROUP, app_options, json_option, name_server_option, refuse_empty
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import printable

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.dead_letters import DeadLetter
    from rocketapp.app.app import RocketApp
    from rocketapp.app.run.assembly import PlannedConsumer
    from rocketapp.app.settings.settings import Settings
    from rocketapp.consumer.handler import Handler
    from rocketapp.model.outgoing import Outgoing
    from rocketapp.wire.message import Message


@click.command(
    "try",
    short_help="Try a dead letter with the code of APP.",
    epilog="Example: rocketapp dlq try app:app broker-a:0:17",
)
@app_options
@click.argument("which")
@click.option(
    "--group",
    type=GROUP,
    shell_complete=groups,
    help="Whose dead letter it is. Default: the app's group, if it has one only.",
)
@name_server_option
@json_option
def try_command(
    *,
    app: str,
    which: str,
    group: str | None,
    name_server: str | None,
    settings: str | None,
    traceback: bool,
    as_json: bool,
) -> int:
    """Try a dead letter with the code of APP. WHICH is its place or a message id. Nothing is published and no
    offset moves; what the handler writes elsewhere is written. Ends with 1 unless the message would be done.
    """
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.settings import read_settings, subscriptions_of

    refuse_empty({"--name-server": name_server, "WHICH": which})
    try:
        loaded = load_app(app)
        read = read_settings({"client": {"name_server": name_server}} if name_server else {}, file=settings, app=loaded)
        groups = sorted({one.group for one in subscriptions_of(loaded, read)})
        chosen = chosen_group(app, groups, group)
        return run_on(read, lambda cluster: _try(cluster, loaded, read, chosen, which, as_json=as_json))
    except CommandError as error:
        error.traceback = traceback
        raise


def chosen_group(app: str, groups: list[str], wanted: str | None) -> str:
    """The group whose dead letter is tried: the one that is named, or the only one. Raises CommandError."""
    if not groups:
        raise CommandError(f"{app}: nothing is subscribed, so no handler could take it: see rocketapp routes {app}")
    if wanted is None and len(groups) != 1:
        raise CommandError(f"{app} has {len(groups)} groups: choose one with --group: {', '.join(groups)}")
    if wanted is not None and wanted not in groups:
        raise CommandError(f"--group {wanted}: {app} has no such group: it has {', '.join(groups)}")
    return wanted or groups[0]


async def _try(
    cluster: AdminCluster, app: RocketApp, settings: Settings, group: str, which: str, *, as_json: bool
) -> int:
    from rocketapp.admin.dead_letters import as_delivered, find
    from rocketapp.app.run.alone import handlers_alone

    letter = await find(cluster, group, which)
    if letter is None:
        raise CommandError(f"group {group} has no dead letter {which}: see rocketapp dlq list {group}", FAILED)
    published: list[Outgoing] = []
    async with handlers_alone(app, settings, published) as groups:
        handler = _handler(groups, group, letter)
        result, raised = await call_handler(handler, as_delivered(letter, group))
    word, text, is_done = judge(handler, letter.message, result, raised)
    if as_json:
        print_json(
            {
                "group": group,
                "place": letter.place,
                "handler": handler.name,
                "outcome": word,
                "text": text,
                "would_publish": [_published(one) for one in published],
            }
        )
    else:
        say(printable(f"{handler.name}: {word}{f': {text}' if text else ''}"))
        for one in published:
            say(printable(f"would publish to {one.topic}: {one.body.decode('utf-8', 'backslashreplace')}"))
    return DONE if is_done else FAILED


def _handler(groups: tuple[PlannedConsumer, ...], group: str, letter: DeadLetter) -> Handler:
    from rocketapp.state.tag_table import TagTable

    for planned in groups:
        for topic in planned.topics if planned.plan.group == group else ():
            if topic.topic == letter.topic:
                table = TagTable((handler, handler.subscription.tags) for handler in topic.handlers)
                ((handler, _),) = table.split([letter.message])
                if handler is not None:
                    return handler
    tag = f" with tag {letter.message.tag}" if letter.message.tag else ""
    where = f"topic {letter.topic}{tag}" if letter.topic else "a topic that it does not name"
    raise CommandError(
        f"dead letter {letter.place} is from {where}, and no handler of group {group} takes that", FAILED
    )


async def call_handler(handler: Handler, message: Message) -> tuple[Any, bool]:
    """What it returned or raised, and whether it raised."""
    subscription = handler.subscription
    given: Any = message if subscription.batch is None else [message]
    try:
        async with asyncio.timeout(subscription.timeout):
            if subscription.is_async:
                return await handler.call(given), False
            return await asyncio.to_thread(handler.call, given), False
    except Exception as error:
        return error, True


def judge(handler: Handler, message: Message, result: Any, raised: bool) -> tuple[str, str, bool]:
    """The outcome in a word, its reason, and whether the message would be done."""
    from rocketapp.consumer.ways.outcomes import failures_of
    from rocketapp.model.outcome import Skip

    (failure,) = failures_of(result, raised, [message], handler.subscription)
    if failure is None:
        is_skip = raised or isinstance(result, Skip)
        return ("skip", str(getattr(result, "reason", result)), True) if is_skip else ("done", "", True)
    word = "dead letter" if failure.dead else "stop" if failure.stop else "retry"
    place = user_place(result) if raised else None
    text = describe(result) if raised else str(failure)
    return word, f"{place}: {text}" if place else text, False


def _published(message: Outgoing) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
