"""`rocketapp tail` and `rocketapp message`: a topic's messages as they come, and stored ones by id or key."""

from __future__ import annotations

import base64
import contextlib
import json
from itertools import islice
from typing import Any, Literal

import click

from rocketapp.admin.messages import find_by_id, find_by_key
from rocketapp.cli.cluster import ask_cluster, json_time, open_client
from rocketapp.cli.failure import DONE, FAILED, CommandError, discard_stdout
from rocketapp.cli.options import TOPIC, cluster_options, connection_options, json_lines_option, refuse_empty
from rocketapp.cli.output import needs_ascii, printable, show, writing
from rocketapp.errors import ProtocolError
from rocketapp.model.subscription import parse_tags
from rocketapp.wire.record import Message


@click.command("tail", epilog="Example: rocketapp tail orders --from first --count 10")
@click.argument("topic", type=TOPIC)
@click.option("--tag", default="*", help="Only these: 'paid || refunded'.")
@click.option("--from", "begin", type=click.Choice(["first", "last"]), default="last", help="Default: last.")
@click.option("--count", type=click.IntRange(1, 10**9), metavar="N", help="End after N messages.")
@json_lines_option
@connection_options
def tail_command(*, topic: str, tag: str, begin: Literal["first", "last"], count: int | None, as_json: bool) -> int:
    """Show the messages of TOPIC as they come. Ends by SIGINT, or when N of them were shown."""
    refuse_empty({"--tag": tag})
    try:
        tags = parse_tags(tag)
    except ValueError as error:
        raise CommandError(f"--tag {tag}: {error}") from error
    if any("|" in one for one in tags):
        raise CommandError(f"--tag {tag}: || separates tags, and nothing else, as in 'a || b'")
    show = as_json_line if as_json else as_text_line
    try:
        # What keeps the client from going on is logged: Python shows warnings on stderr, beside the messages.
        with contextlib.suppress(KeyboardInterrupt), open_client() as client:
            for message in islice(client.messages(topic, tags=tag, start=begin), count):
                with writing():
                    print(show(message), flush=True)
    except BrokenPipeError:
        discard_stdout()
    return DONE


@click.command("message", epilog="Example: rocketapp message --key order-17 --topic orders")
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--key", help="Messages with this key, instead of one with an ID.")
@click.option(
    "--topic", type=TOPIC, help="Look only here. Default: in every topic, retries and dead letters among them."
)
@cluster_options
def message_command(*, message_id: str | None, key: str | None, topic: str | None, as_json: bool) -> int:
    """Show messages by their id or a key. ID is the producer's or the broker's; its copies are shown too."""
    refuse_empty({"ID": message_id, "--key": key})
    if message_id and not key:
        found = ask_cluster(lambda cluster: find_by_id(cluster, message_id, topic=topic))
        what = f"the id {message_id}"
    elif key and not message_id:
        found = ask_cluster(lambda cluster: find_by_key(cluster, key, topic=topic))
        what = f"the key {key}"
    else:
        raise CommandError("message: give either an ID or --key")
    if not found:
        where = f"topic {topic}" if topic else "any topic"
        raise CommandError(
            f"no message with {what} is stored in {where}: it may be deleted or of another cluster", FAILED
        )
    lines = [line for message in found for line in lines_of(message)]
    return show([json_of(message) for message in found], lines, as_json=as_json)


def lines_of(message: Message) -> list[str]:
    """A line as `tail` shows it, and a line for each property."""
    return [as_text_line(message), *(printable(f"    {name}={value}") for name, value in message.properties.items())]


def json_of(message: Message) -> dict[str, Any]:
    """As `tail --json` shows it, and the topic in which this copy is stored."""
    return {**json.loads(as_json_line(message)), "stored_topic": (message.queue or message).topic}


def as_text_line(message: Message) -> str:
    """`time place #offset tag=.. keys=.. body`; control characters escaped, for a terminal obeys them."""
    parts = [message.stored_at.isoformat(timespec="milliseconds"), str(message.queue), f"#{message.offset}"]
    if message.tag is not None:
        parts.append(f"tag={message.tag}")
    if message.keys:
        parts.append(f"keys={','.join(message.keys)}")
    parts.append(_body(message).decode("utf-8", "backslashreplace"))
    return printable(" ".join(parts))


def as_json_line(message: Message) -> str:
    """Everything; a body that is not UTF-8 is in `body_base64`."""
    queue = message.queue
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": queue.broker_name if queue is not None else "",
        "queue_id": message.queue_id,
        "offset": message.offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": message.keys,
        "properties": dict(message.properties),
        "attempt": message.attempt,
        "born_at": json_time(message.born_ms),
        "stored_at": json_time(message.stored_ms),
        "born_host": message.born_host,
    }
    body = _body(message)
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(fields, ensure_ascii=needs_ascii())


def _body(message: Message) -> bytes:
    try:
        return message.body
    except ProtocolError as error:
        return f"<{error}>".encode()
