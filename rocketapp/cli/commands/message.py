"""`rocketapp message`: stored messages by id or key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import ask_cluster, cluster_options
from rocketapp.cli.commands.tail import as_json_line, as_text_line
from rocketapp.cli.completing import topics
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import TOPIC, refuse_empty
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import printable

if TYPE_CHECKING:
    from rocketapp.wire.record import Message


@click.command(
    "message",
    short_help="Show messages by their id or a key.",
    epilog="Example: rocketapp message --key order-17 --topic orders",
)
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--key", help="Messages with this key, instead of one with an ID.")
@click.option(
    "--topic",
    type=TOPIC,
    shell_complete=topics,
    help="Look only here. Default: in every topic, retries and dead letters among them.",
)
@cluster_options
def command(
    *, message_id: str | None, key: str | None, topic: str | None, name_server: str | None, as_json: bool
) -> int:
    """Show the message with this ID, the producer's or the broker's, and its copies; or those with a key."""
    from rocketapp.admin.messages import find_by_id, find_by_key

    refuse_empty({"ID": message_id, "--key": key})
    if message_id and not key:
        found = ask_cluster(name_server, lambda cluster: find_by_id(cluster, message_id, topic=topic))
        what = f"the id {message_id}"
    elif key and not message_id:
        found = ask_cluster(name_server, lambda cluster: find_by_key(cluster, key, topic=topic))
        what = f"the key {key}"
    else:
        raise CommandError("message: give either an ID or --key")
    if not found:
        where = f"topic {topic}" if topic else "any topic"
        raise CommandError(
            f"no message with {what} is stored in {where}: it may be deleted or of another cluster", FAILED
        )
    if as_json:
        print_json([json_of(message) for message in found])
        return DONE
    for message in found:
        print_message(message)
    return DONE


def print_message(message: Message) -> None:
    """A line as `tail` shows it, and a line for each property."""
    say(as_text_line(message))
    for name, value in message.properties.items():
        say(printable(f"    {name}={value}"))


def json_of(message: Message) -> dict[str, Any]:
    """As `tail --json` shows it, and the topic in which this copy is stored."""
    shown: dict[str, Any] = json.loads(as_json_line(message))
    return {**shown, "stored_topic": message.queue.topic if message.queue is not None else message.topic}
