"""What groups of Java's members and ours do when messages fail and members die: minutes by design, so a long wait.

Each group has one member of each client. Their ids say who comes first, and so who has the only queue of a topic.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, JavaConsumer, Load, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

FIRST, LAST = "!", "~"
"""What the ids of Java's members begin with: they sort before and behind ours, which begin with an IP address."""

RETRIED = """
app = RocketApp("{p}retried")

@app.subscribe("{p}retried", group="{p}java-first", start="first")
async def second(message: Message) -> None:
    note("attempt", message, group="java-first")
    if message.attempt < 3:
        raise ValueError("not yet")

@app.subscribe("{p}retried", group="{p}ours-first", start="first")
async def first(message: Message) -> None:
    note("attempt", message, group="ours-first")
    if message.attempt < 3:
        raise ValueError("not yet")

@app.subscribe("{p}held", group="{p}java-killed", start="first", orderly=True)
async def heir(message: Message) -> None:
    note("call", message, group="java-killed")
"""
KILLED = """
app = RocketApp("{p}held")

@app.subscribe("{p}held", group="{p}ours-killed", start="first", orderly=True)
async def holder(message: Message) -> None:
    note("call", message, group="ours-killed")
"""


class Attempt(NamedTuple):
    """One call of a handler."""

    at: float
    who: str
    """`java` or `ours`."""
    text: str
    attempt: int


class Call(NamedTuple):
    """One call of an orderly handler."""

    at: float
    who: str
    offset: int


class MixedWaits:
    """The stories on one cluster."""

    def __init__(self, cluster: Cluster, java: JavaClient, prefix: str, directory: Path) -> None:
        self._java, self._prefix, self._directory = java, prefix, directory
        java.create_topic(f"{prefix}retried", 2)
        java.create_topic(f"{prefix}held", 1)
        self._app = RunningApp(directory / "mixed", RETRIED.replace("{p}", prefix), cluster.name_server)
        self._ours = RunningApp(directory / "killed", KILLED.replace("{p}", prefix), cluster.name_server)
        self._peer = Peer(directory / "killed-java")
        self._load: Load | None = None
        try:
            self._start(cluster)
        except BaseException:
            self.stop()
            raise

    def _start(self, cluster: Cluster) -> None:
        # A Java member of a group whose retry topic is there takes part in it at once.
        for group in ("java-first", "ours-first", "java-killed", "ours-killed"):
            wait_until(lambda group=group: self._members(group) == 1, within=20, what=group, every=0.1)
        self._retrying = {
            "java-first": self._consume("retried", "java-first", FIRST, fail_first=2),
            "ours-first": self._consume("retried", "ours-first", LAST, fail_first=2),
        }
        self._consume("held", "ours-killed", LAST, orderly=True, history=str(self._history("ours-killed")))
        JavaClient(self._peer, cluster.name_server).consume(
            f"{self._prefix}held",
            f"{self._prefix}java-killed",
            ip=FIRST,
            orderly=True,
            history=str(self._history("java-killed")),
        )
        self._load = self._java.produce(f"{self._prefix}held", 10**9, rate=20)
        for group, holder in (("java-killed", "java"), ("ours-killed", "ours")):
            wait_until(
                lambda group=group, holder=holder: self._members(group) == 2 and self._holds(group, holder),
                within=45,
                what=lambda group=group: f"the first member of {group} holds the queue: {self.calls(group)[-3:]}",
                every=0.2,
            )
        self._ours.kill()
        self._peer.kill()
        self._spread_retries()

    def _consume(self, topic: str, group: str, place: str, **options: Any) -> JavaConsumer:
        return self._java.consume(f"{self._prefix}{topic}", f"{self._prefix}{group}", ip=place, **options)

    def _members(self, group: str) -> int:
        return len(self._java.members(f"{self._prefix}{group}")["ids"])

    def _history(self, group: str) -> Path:
        return self._directory / f"{group}.jsonl"

    def _holds(self, group: str, holder: str) -> bool:
        """The last second of messages, and all that it has of them, went to the holder."""
        last = self.calls(group)[-20:]
        return len(last) == 20 and {call.who for call in last} == {holder}

    def _spread_retries(self) -> None:
        """Messages for both queues, until each member of each group has had one."""

        def all_have_one() -> bool:
            self._java.send(f"{self._prefix}retried", *({"text": f"{self._sent + n}", "queue": n} for n in range(2)))
            self._sent += 2
            return all({one.who for one in self.attempts(group)} == {"java", "ours"} for group in self._retrying)

        self._sent = 0
        wait_until(all_have_one, within=45, what="each member has a queue", every=0.5)

    def attempts(self, group: str) -> list[Attempt]:
        """What both members of a group did with messages that fail twice, in the order of time."""
        found = [
            Attempt(one["at"], "ours", one["text"], one["attempt"]) for one in self._app.events("attempt", group=group)
        ]
        found += [
            Attempt(one["at"], "java", one["body"].decode(), one["attempt"]) for one in self._retrying[group].poll()
        ]
        return sorted(found)

    def all_attempts(self, group: str, *, within: float) -> list[Attempt]:
        """Wait until each message of the group had its three attempts."""
        wait_until(
            lambda: sum(one.attempt == 3 for one in self.attempts(group)) >= self._sent,
            within=within,
            what=lambda: f"three attempts of {self._sent}: {self.attempts(group)}\n{self._app.describe()}",
            every=0.2,
        )
        return self.attempts(group)

    def calls(self, group: str) -> list[Call]:
        """What both members of a group handled in order, in the order of time."""
        app = self._app if group == "java-killed" else self._ours
        found = [Call(one["at"], "ours", one["offset"]) for one in app.events("call", group=group)]
        history = self._history(group)
        whole = history.read_text().rpartition("\n")[0] if history.exists() else ""
        lines = [json.loads(line) for line in whole.splitlines()]
        found += [Call(one["at"], "java", one["offset"]) for one in lines if one["event"] == "done"]
        return sorted(found)

    def all_calls(self, group: str, *, within: float) -> list[Call]:
        """End the load, and wait until the member that lives has handled all of it."""
        self._load.stop()
        stored = len(self._load.wait(within=30)["stored"])
        wait_until(
            lambda: len({call.offset for call in self.calls(group)}) >= stored,
            within=within,
            what=lambda: f"all {stored} are handled: {self.calls(group)[-3:]}\n{self._app.describe()}",
            every=0.2,
        )
        return self.calls(group)

    def stop(self) -> None:
        if self._load is not None:
            self._load.stop()
        self._app.discard()
        self._ours.discard()
        self._peer.kill()
