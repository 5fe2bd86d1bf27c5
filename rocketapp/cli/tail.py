"""`rocketapp tail`: a topic's messages as they come, without a consumer group's offsets.

One task per queue pulls and hands messages over; nothing is committed, so nobody's
consumption changes. Queues that appear later are found; a broker that is gone is
waited for.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import sys
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.options import refuse_empty

if TYPE_CHECKING:
    from rocketapp.app.settings import Settings
    from rocketapp.client.instance import ClientInstance
    from rocketapp.model.message_queue import MessageQueue
    from rocketapp.wire.record import Message

GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for tools: every broker knows it, and nothing of it is stored."""
AT_ONCE = 32
HOLD_MS = 15_000
"""How long a broker may hold a pull that finds nothing."""
PULL_TIMEOUT = 30.0
ROUTE_INTERVAL = 2.0
"""Seconds between looks for queues that have appeared."""
LONGEST_PAUSE = 10.0


@click.command("tail")
@click.argument("topic")
@click.option("--tag", default="*", help="Only these: 'paid || refunded'.")
@click.option("--from", "begin", type=click.Choice(["first", "last"]), default="last", help="Default: last.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--name-server", metavar="H:P", help="Default: the settings', or this folder's embedded broker.")
def command(*, topic: str, tag: str, begin: str, count: int | None, as_json: bool, name_server: str | None) -> int:
    """Show the messages of TOPIC as they come, until SIGINT or N of them were shown."""
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.cli.settings import read_settings
    from rocketapp.model.names import topic_problem
    from rocketapp.model.subscription import parse_tags

    if (problem := topic_problem(topic)) is not None:
        raise CommandError(problem)
    try:
        tags = parse_tags(tag)
    except ValueError as error:
        raise CommandError(f"--tag {tag}: {error}") from error
    refuse_empty({"--name-server": name_server})
    settings = read_settings({"client": {"name_server": name_server}} if name_server else {})
    show = as_json_line if as_json else as_text_line
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run_in_loop(_follow(settings, topic, tags, begin=begin, count=count, show=show))
    except BrokenPipeError:
        # Whoever reads us has seen enough, as in `rocketapp tail T | head`. What is still unwritten goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


async def _follow(
    settings: Settings, topic: str, tags: frozenset[str], *, begin: str, count: int | None, show: Any
) -> None:
    from rocketapp.cli.cluster import connected

    async with connected(settings) as client:
        messages: asyncio.Queue[list[Message]] = asyncio.Queue(maxsize=4)
        tail = Tail(
            client,
            topic,
            tags,
            from_first=begin == "first",
            max_inflated_bytes=settings.client.max_inflated_bytes,
            messages=messages,
        )
        following = asyncio.ensure_future(tail.run())
        shown = 0
        try:
            while count is None or shown < count:
                batch = (await messages.get())[: None if count is None else count - shown]
                sys.stdout.write("".join(show(message) + "\n" for message in batch))
                sys.stdout.flush()
                shown += len(batch)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


class Tail:
    """Every queue of one topic, followed at once."""

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        tags: frozenset[str],
        *,
        from_first: bool,
        max_inflated_bytes: int,
        messages: asyncio.Queue[list[Message]],
    ) -> None:
        self._client = client
        self._topic, self._tags = topic, tags
        self._from_first = from_first
        self._max_inflated_bytes = max_inflated_bytes
        self._messages = messages
        self._pulling: dict[MessageQueue, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """For ever; whoever cancels it cancels the queues' tasks as well."""
        first_look = True
        try:
            while True:
                queues = await self._queues()
                if first_look and not queues:
                    print(f"topic {self._topic} does not exist yet: waiting for it", file=sys.stderr)
                for queue in queues:
                    if queue not in self._pulling:
                        # A queue that appears while we look is shown from its first message.
                        from_first = self._from_first or not first_look
                        pulling = asyncio.ensure_future(self._pull(queue, from_first=from_first))
                        self._pulling[queue] = pulling
                first_look = False
                await asyncio.sleep(ROUTE_INTERVAL)
        finally:
            for task in self._pulling.values():
                task.cancel()
            await asyncio.gather(*self._pulling.values(), return_exceptions=True)

    async def _queues(self) -> list[MessageQueue]:
        from rocketapp.errors import RocketAppError

        try:
            route = await self._client.routes.fetch(self._topic)
        except RocketAppError:
            return []
        return route.readable_queues(self._topic) if route is not None else []

    async def _pull(self, queue: MessageQueue, *, from_first: bool) -> None:
        from rocketapp.errors import RocketAppError
        from rocketapp.state.backoff import Backoff

        backoff = Backoff(0.2, LONGEST_PAUSE)
        offset: int | None = None
        while True:
            try:
                offset = await self._first_offset(queue, from_first=from_first) if offset is None else offset
                offset = await self._pull_once(queue, offset)
                backoff.reset()
            except RocketAppError as error:
                print(f"{queue}: {error}: trying again", file=sys.stderr)
                await asyncio.sleep(backoff.next(random.random()))

    async def _first_offset(self, queue: MessageQueue, *, from_first: bool) -> int:
        from rocketapp.client.calls import offsets

        connection = await self._client.connection(self._address(queue))
        ask = offsets.min_offset if from_first else offsets.max_offset
        return await ask(connection, queue, PULL_TIMEOUT)

    async def _pull_once(self, queue: MessageQueue, offset: int) -> int:
        """Hand over what one pull brings, and return where the next one begins."""
        from rocketapp.client.calls import pull
        from rocketapp.wire.record import decode_records
        from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest

        connection = await self._client.connection(self._address(queue))
        request = PullRequest(
            group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            max_messages=AT_ONCE,
            sys_flag=FLAG_SUSPEND | FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_ms=HOLD_MS,
            sub_version=0,
            expression=" || ".join(sorted(self._tags)) or "*",
            broker_name=queue.broker_name,
        )
        result = pull.read(await pull.start(connection, request, PULL_TIMEOUT), connection.peer)
        if result.status == "found":
            batch = decode_records(result.body, queue, max_inflated_bytes=self._max_inflated_bytes)
            # The broker compares hashes of tags only.
            wanted = [message for message in batch if not self._tags or message.tag in self._tags]
            if wanted:
                await self._messages.put(wanted)
        return result.next_offset

    def _address(self, queue: MessageQueue) -> str:
        from rocketapp.errors import NoRouteError

        address = self._client.broker_address(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name} has no address")
        return address


def as_text_line(message: Message) -> str:
    """`time place #offset tag=.. keys=.. body`; control characters escaped, for a terminal obeys them."""
    parts = [message.stored_at.isoformat(timespec="milliseconds"), str(message.queue), f"#{message.offset}"]
    if message.tag is not None:
        parts.append(f"tag={message.tag}")
    if message.keys:
        parts.append(f"keys={','.join(message.keys)}")
    parts.append(_body(message).decode("utf-8", "backslashreplace"))
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(parts))


def as_json_line(message: Message) -> str:
    """Everything; a body that is no UTF-8 stands in `body_base64`."""
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
        "born_at": message.born_at.isoformat(),
        "stored_at": message.stored_at.isoformat(),
        "born_host": message.born_host,
    }
    body = _body(message)
    try:
        fields["body"] = body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(body).decode()
    return json.dumps(fields, ensure_ascii=False)


def _body(message: Message) -> bytes:
    from rocketapp.errors import ProtocolError

    try:
        return message.body
    except ProtocolError as error:
        return f"<{error}>".encode()
