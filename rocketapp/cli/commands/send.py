"""`rocketapp send`: one message, N of them, or one per line of stdin."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import click

from rocketapp.app.publishing import outgoing
from rocketapp.cli.cluster import open_client
from rocketapp.cli.failure import DONE, FAILED, CommandError, describe, discard_stdout, print_failure
from rocketapp.cli.options import TOPIC, connection_options, json_lines_option, refuse_empty
from rocketapp.cli.output import needs_ascii, writing
from rocketapp.errors import RocketAppError
from rocketapp.model.outgoing import SendOptions, SendResult
from rocketapp.producer.checks import problem_of
from rocketapp.scripts.reading import log
from rocketapp.scripts.sync_client import SyncClient

Show = Callable[["SendResult"], str]
UNITS = {"s": 1, "m": 60, "h": 3600}
PRODUCER_GROUP = "rocketapp-send"
AT_ONCE = 256
"""Lines of stdin, or copies of a message, that are sent together: the producer spreads so many over the queues."""
PARTS = 16
"""Parts into which fewer are divided: each part goes to the next queue, because a batch goes to one."""
CHUNK_BYTES = 65536
"""How much of stdin is read at most before it is sent."""


@click.command("send", epilog="Example: rocketapp send orders hello --tag paid --key order-17")
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option("--tag", help="What subscriptions select by.")
@click.option("--key", "keys", multiple=True, help="An index key, by which operators find it; may be repeated.")
@click.option("--property", "properties", multiple=True, metavar="K=V", help="A property; may be repeated.")
@click.option("--delay", metavar="10s", help="Deliver after this time: 10s, 5m, 2h.")
@click.option("--order-key", help="Messages with the same one go to the same queue.")
@click.option("--count", type=click.IntRange(min=1), default=1, metavar="N", help="Send it N times.")
@json_lines_option
@connection_options
def command(
    *,
    topic: str,
    body: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay: str | None,
    order_key: str | None,
    count: int,
    as_json: bool,
) -> int:
    """Send BODY to TOPIC. With `-` each line of stdin that is not empty. Prints message id, queue and offset."""
    if not body:
        raise CommandError(f"send {topic}: an empty message cannot be stored: give a BODY, or - to read lines of stdin")
    refuse_empty({"--tag": tag, "--delay": delay, "--order-key": order_key})
    options: SendOptions = {
        "tag": tag,
        "keys": keys,
        "properties": dict(map(_property, properties)),
        "order_key": order_key,
        "delay": parse_delay(delay) if delay else None,
    }
    _check(topic, options)
    if body == "-" and sys.stdin is None:
        raise CommandError(f"send {topic} -: stdin is closed: give it lines to send, or a BODY in place of -")
    show = _show_json if as_json else _show_text
    log.addHandler(logging.NullHandler())  # one line says what became of a message: its error
    with open_client(PRODUCER_GROUP) as client:
        for bodies in _lines(sys.stdin.buffer, count) if body == "-" else _copies(os.fsencode(body), count):
            _send(client, topic, bodies, options, show)
    return DONE


def _check(topic: str, options: SendOptions) -> None:
    """Raises CommandError for what no message can have, and for a tag that nothing could subscribe."""
    tag = options["tag"]
    if tag is not None and "|" in tag:
        raise CommandError(f"--tag {tag}: a message has one tag, and subscriptions join several by ||: leave the | out")
    try:
        problem = problem_of(outgoing(topic, b"any", options), math.inf)
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        raise CommandError(f"send {topic}: {problem}")


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise CommandError(f"--property {text}: write KEY=VALUE")
    return key, value


def parse_delay(text: str) -> float:
    """The seconds of `10s`, `5m`, `2h` or plain seconds."""
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise CommandError(f"--delay {text}: write seconds, or a number with s, m or h: 10s, 5m, 2h") from None


def _copies(body: bytes, count: int) -> Iterator[list[bytes]]:
    for begin in range(0, count, AT_ONCE):
        yield [body] * min(AT_ONCE, count - begin)


def _lines(stdin: BinaryIO, count: int) -> Iterator[list[bytes]]:
    """The lines that are there now: a typed line must not wait for the next one."""
    rest, chunk = b"", b"more"
    while chunk:
        try:
            chunk = stdin.read1(CHUNK_BYTES)  # type: ignore[attr-defined]
        except OSError as error:
            raise CommandError(f"stdin cannot be read: {describe(error)}", FAILED) from error
        *whole, rest = (rest + chunk).split(b"\n")
        lines = [line for line in map(_without_return, whole) if line]
        for begin in range(0, len(lines), AT_ONCE):
            yield [line for line in lines[begin : begin + AT_ONCE] for _ in range(count)]
    if _without_return(rest):
        yield [_without_return(rest)] * count


def _without_return(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


def _send(client: SyncClient, topic: str, bodies: Sequence[bytes], options: SendOptions, show: Show) -> None:
    """Print a line for each message that is stored. Raises CommandError when one is not."""
    is_whole = options["order_key"] or len(bodies) >= AT_ONCE
    size = len(bodies) if is_whole else -(-len(bodies) // PARTS)
    try:
        for begin in range(0, len(bodies), size):
            for result in client.publish_many(topic, bodies[begin : begin + size], **options):
                _show(result, show)
    except RocketAppError as error:
        raise CommandError(str(error), FAILED) from error


def _show(result: SendResult, show: Show) -> None:
    try:
        with writing():
            print(show(result), flush=True)
    except BrokenPipeError:
        # To send is the purpose: what is left must not depend on who reads along.
        discard_stdout()
        print_failure("stdout was closed: all messages are sent, but no further one is shown")


def _show_text(result: SendResult) -> str:
    return f"{result.message_id} {result.queue} {result.queue_offset}"


def _show_json(result: SendResult) -> str:
    queue = result.queue
    shown = {
        "message_id": result.message_id,
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "offset": result.queue_offset,
        "offset_message_id": result.offset_message_id,
    }
    return json.dumps(shown, ensure_ascii=needs_ascii())
