"""Everything that takes RocketMQ tens of seconds by design: retries after 10 s and 30 s, delay levels, dead letters.

One app with one group per story runs it all at once, on both clusters at once; the tests read what it wrote. Waiting
happens once per session and not once per test.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from tests.conformance.mixed_waits import MixedWaits
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, JavaConsumer, Peer
from tests.peers.running_app import RunningApp

DELAYS = {1: 1, 2: 5, 3: 10, 4: 30}
"""Seconds of the delay levels that are tried."""

SOURCE = """
app = RocketApp("{p}app", version="1.2.3")
note_of = lambda event, message: note(event, message, story=message.topic.removeprefix("{p}"))

@app.subscribe("{p}ladder", group="{p}ladder", start="first")
async def ladder(message: Message) -> None:
    note_of("attempt", message)
    if message.attempt < 3:
        raise ValueError("not yet")

@app.subscribe("{p}ladder-sync", group="{p}ladder-sync", start="first")
def ladder_sync(message: Message) -> None:
    note_of("attempt", message)
    if message.attempt < 2:
        raise ValueError("not yet")

@app.subscribe("{p}after", group="{p}after", start="first")
async def after(message: Message) -> object:
    note_of("attempt", message)
    if message.attempt == 1:
        raise Retry(after=4)
    return Retry(after=1) if message.attempt == 2 else None

@app.subscribe("{p}skip", group="{p}skip", start="first")
async def skip(message: Message) -> None:
    note_of("attempt", message)
    raise Skip("not for us")

@app.subscribe("{p}dead-two", group="{p}dead-two", start="first", retries=2)
async def dead_two(message: Message) -> None:
    note_of("attempt", message)
    if message.text() == "poison":
        raise ZeroDivisionError("always poison")

@app.subscribe("{p}dead-none", group="{p}dead-none", start="first", retries=0)
async def dead_none(message: Message) -> None:
    note_of("attempt", message)
    raise RuntimeError("no second try")

@app.subscribe("{p}dead-letter", group="{p}dead-letter", start="first")
async def dead_letter(message: Message) -> None:
    note_of("attempt", message)
    raise DeadLetter("thrown away on purpose")

@app.subscribe("{p}undecodable", group="{p}undecodable", start="first")
async def undecodable(payload: dict, message: Message) -> None:
    note_of("attempt", message)

@app.subscribe("{p}batch", group="{p}batch", start="first", batch=10, batch_wait=0.2)
async def batch(messages: list[Message]) -> None:
    for message in messages:
        note_of("attempt", message)
    if any(message.attempt == 1 for message in messages):
        raise ValueError("the whole batch again")

@app.subscribe("{p}delay-java", group="{p}delay-java", start="first")
async def delay_java(message: Message) -> None:
    note_of("attempt", message)

@app.subscribe("{p}delay-ours", group="{p}delay-ours", start="first")
async def delay_ours(message: Message) -> None:
    note_of("attempt", message)

@app.subscribe("{p}mixed-orderly", group="{p}mixed", start="first", orderly=True)
async def mixed_orderly(message: Message) -> None:
    note_of("attempt", message)

@app.subscribe("{p}mixed", group="{p}mixed", start="first")
async def mixed(message: Message) -> None:
    note_of("attempt", message)
    if message.attempt == 1:
        raise ValueError("not yet")

@app.subscribe("{p}growing", group="{p}growing")
async def growing(message: Message) -> None:
    note_of("attempt", message)

@app.on_startup
async def publish() -> None:
    for seconds in (1, 5, 10, 30):
        result = await app.publish("{p}delay-ours", str(seconds), delay=seconds)
        mark("sent", seconds=seconds, id=result.message_id)
"""


RESTARTED = """
app = RocketApp("{p}restarted")

@app.subscribe("{p}restarted", start="first")
async def restarted(message: Message) -> None:
    note("attempt", message)
    if message.attempt == 1:
        raise ValueError("not yet")
"""


class LongWaits:
    """The stories on one cluster: `attempts(story)` are the events of its handler."""

    _numbers = itertools.count(1)

    def __init__(self, cluster: Cluster, peer: Peer, directory: Path) -> None:
        self.prefix = f"wait-{os.getpid()}-{next(self._numbers)}-"
        self.java = JavaClient(peer, cluster.name_server)
        stories = ("ladder", "ladder-sync", "after", "skip", "dead-none", "dead-letter")
        for story in stories:
            self.java.send(self.topic(story), *(f"{story} {n}" for n in range(3)))
        self.java.create_topic(self.topic("dead-two"), 1)
        self.java.send(self.topic("dead-two"), "poison", *(f"good {n}" for n in range(5)))
        self.java.create_topic(self.topic("batch"), 1)
        self.java.send(self.topic("batch"), *(f"batch {n}" for n in range(3)), as_batch=True)
        self.java.send(self.topic("undecodable"), "{not json", '{"fine": 1}')
        for story in ("mixed", "mixed-orderly", "restarted"):
            self.java.create_topic(self.topic(story), 2)
            self.java.send(self.topic(story), *(f"{story} {n}" for n in range(6)))
        self.java.create_topic(self.topic("growing"), 2)
        self.java.send(self.topic("growing"), *({"text": f"old {n}", "queue": n} for n in range(2)))
        self.java_ladder: JavaConsumer | None = None
        """Java's own consumer with two failures, on our broker only: elsewhere it would test Apache against Apache."""
        self.app = RunningApp(directory, SOURCE.replace("{p}", self.prefix), cluster.name_server)
        self.restarted = RunningApp(directory / "restarted", RESTARTED.replace("{p}", self.prefix), cluster.name_server)
        try:
            self._start_java_side(with_consumer=cluster.name == "embedded")
            self._restart_between_the_attempts()
            self._grow()
            self.mixed = MixedWaits(cluster, self.java, self.prefix, directory)
        except BaseException:
            self._discard()  # what has started would stay, for its caller never gets it
            raise

    def _start_java_side(self, *, with_consumer: bool) -> None:
        if with_consumer:
            self.java.send(self.topic("java-ladder"), *(f"java {n}" for n in range(3)))
            self.java_ladder = self.java.consume(self.topic("java-ladder"), self.group("java-ladder"), fail_first=2)
        self.java.send(
            self.topic("delay-java"), *({"text": str(seconds), "delay": level} for level, seconds in DELAYS.items())
        )

    def _restart_between_the_attempts(self) -> None:
        self.restarted.wait_for_count(6, "attempt")
        self.restarted.stop()
        self.restarted.start()

    def _grow(self) -> None:
        """Two queues become four under the running app, with a message in each new one."""
        self.attempts("growing", 2, within=20)
        self.java.create_topic(self.topic("growing"), 4)
        self.java.send(
            self.topic("growing"), *({"text": f"new {n}", "queue": n} for n in range(4)), producer=self.prefix
        )

    def topic(self, story: str) -> str:
        return self.prefix + story

    group = topic

    def attempts(self, story: str, count: int, *, within: float) -> list[dict[str, Any]]:
        """Wait for this number of calls of that story's handler; returns them all."""
        return self.app.wait_for_count(count, "attempt", within=within, story=story)

    def stop(self) -> None:
        self.mixed.stop()
        self._discard()

    def _discard(self) -> None:
        self.java.stop()
        self.app.discard()
        self.restarted.discard()
