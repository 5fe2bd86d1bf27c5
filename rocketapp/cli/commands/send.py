"""`rocketapp send`: one message, N of them, or one per line of stdin."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import click

from rocketapp.cli.cluster import connected, producer_of
from rocketapp.cli.failure import DONE, FAILED, CommandError, describe, discard_stdout, print_failure
from rocketapp.cli.options import TOPIC, here_options, json_lines_option, refuse_empty, settings_here
from rocketapp.cli.output import needs_ascii, writing

if TYPE_CHECKING:
    from rocketapp.app.settings import Settings
    from rocketapp.model.outgoing import Outgoing, SendResult
    from rocketapp.producer.producer import Producer

Show = Callable[["SendResult"], str]
UNITS = {"s": 1, "m": 60, "h": 3600}
PRODUCER_GROUP = "rocketapp-send"
AT_ONCE = 256
"""Lines of stdin, or copies of a message, that are sent together."""
PARTS = 16
"""Of what is sent together: each part goes to the next queue, because a batch goes to one."""
CHUNK_BYTES, CHUNKS_AHEAD = 65536, 4
"""How much of stdin is read before it is sent."""


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
@here_options
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
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.model.outgoing import Outgoing

    if not body:
        raise CommandError(f"send {topic}: an empty message cannot be stored: give a BODY, or - to read lines of stdin")
    refuse_empty({"--tag": tag, "--delay": delay, "--order-key": order_key})
    _check(tag, keys)
    level, seconds = parse_delay(delay) if delay else (0, 0.0)
    like = Outgoing(
        topic=topic,
        body=b"",
        tag=tag,
        keys=keys,
        properties=dict(map(_property, properties)),
        order_key=order_key,
        delay_level=level,
        delay=seconds,
    )
    settings = settings_here()
    if body == "-" and sys.stdin is None:
        raise CommandError(f"send {topic} -: stdin is closed: give it lines to send, or a BODY in place of -")
    bodies = _lines(sys.stdin.buffer, count) if body == "-" else _copies(os.fsencode(body), count)
    show = _show_json if as_json else _show_text
    return run_in_loop(_send(settings, like, bodies, show))


def _check(tag: str | None, keys: Sequence[str]) -> None:
    """Raises CommandError for what a producer would refuse, and for a tag that nothing could subscribe."""
    if tag is not None and "|" in tag:
        raise CommandError(f"--tag {tag}: a message has one tag, and subscriptions join several by ||: leave the | out")
    for key in keys:
        refuse_empty({"--key": key})
        if " " in key:
            raise CommandError(f"--key {key}: keys are joined by blanks: leave the blank out, or repeat --key")


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise CommandError(f"--property {text}: write KEY=VALUE")
    return key, value


def parse_delay(text: str) -> tuple[int, float]:
    """The delay level of `10s`, `5m`, `2h` or plain seconds; 0 and the seconds for what only a timer counts."""
    from rocketapp.model.names import DELAY_SECONDS, delay_level

    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        raise CommandError(f"--delay {text}: write seconds, or a number with s, m or h: 10s, 5m, 2h") from None
    if not 0 < seconds < math.inf:
        raise CommandError(f"--delay {text}: give a time above 0, or leave it out")
    return (delay_level(seconds), 0.0) if seconds in DELAY_SECONDS else (0, seconds)


async def _copies(body: bytes, count: int) -> AsyncIterator[list[bytes]]:
    for begin in range(0, count, AT_ONCE):
        yield [body] * min(AT_ONCE, count - begin)


async def _lines(stdin: BinaryIO, count: int) -> AsyncIterator[list[bytes]]:
    """The lines that are there now: a typed line must not wait for the next one."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD)

    def read() -> None:
        chunk: bytes | OSError = b"more"
        while chunk and not isinstance(chunk, OSError):
            try:
                chunk = stdin.read1(CHUNK_BYTES)  # type: ignore[attr-defined]
            except OSError as error:
                chunk = error
            room.acquire()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    # A daemon: stopping the command must not wait until the next line is typed.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        if isinstance(chunk, OSError):
            raise CommandError(f"stdin cannot be read: {describe(chunk)}", FAILED)
        *whole, rest = (rest + chunk).split(b"\n")
        lines = [line for line in map(_without_return, whole) if line]
        for begin in range(0, len(lines), AT_ONCE):
            yield [line for line in lines[begin : begin + AT_ONCE] for _ in range(count)]
    if _without_return(rest):
        yield [_without_return(rest)] * count


def _without_return(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


async def _send(settings: Settings, like: Outgoing, bodies: AsyncIterator[list[bytes]], show: Show) -> int:
    from rocketapp.client.traces import trace_topic_of

    async with connected(settings) as client:
        group = settings.producer.group or PRODUCER_GROUP
        producer = producer_of(client, settings.producer, group, trace_topic=trace_topic_of(settings.client))
        await producer.start()
        try:
            async for batch in bodies:
                await _send_batch(producer, like, batch, show)
        finally:
            await producer.stop()
    return DONE


async def _send_batch(producer: Producer, like: Outgoing, bodies: Sequence[bytes], show: Show) -> None:
    """Print a line for each message that is stored. Raises CommandError when one is not."""
    from rocketapp.errors import RocketAppError

    for_each = [replace(like, body=body) for body in bodies]
    size = len(bodies) if like.order_key else -(-len(bodies) // PARTS)
    try:
        for begin in range(0, len(for_each), size):
            part = for_each[begin : begin + size]
            results = [await producer.send(part[0])] if len(part) == 1 else await producer.send_many(part)
            for result in results:
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
