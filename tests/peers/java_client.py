"""The Java client as a partner: one JVM per session takes commands as JSON lines (java/Peer.java)."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.peers import toolchain
from tests.peers.waiting import wait_until


class JavaError(AssertionError):
    """The Java client, or the broker behind it, refused a command."""


class Peer:
    """The JVM. Thread-safe; commands run side by side."""

    def __init__(self, home: Path, *, properties: tuple[str, ...] = ()) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command = toolchain.java_command("Peer", home=home, properties=(*toolchain.BRIEF, *properties))
        self._log = (home / "peer.log").open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=home,  # the admin tool writes files where it runs
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._ids, self._lock = itertools.count(1), threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True, name="java-peer")
        self._reader.start()
        self._waiting[0].result(240)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            waiter = self._waiting.pop(answer["id"])
            if "error" in answer:
                waiter.set_exception(JavaError(answer["error"]))
            else:
                waiter.set_result(answer["ok"])
        for waiter in list(self._waiting.values()):
            waiter.set_exception(JavaError("the Java process ended"))

    def start(self, do: str, **arguments: Any) -> Future[Any]:
        """Give a command; its answer comes later."""
        waiter: Future[Any] = Future()
        with self._lock:
            number = next(self._ids)
            self._waiting[number] = waiter
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        return waiter

    def call(self, do: str, *, timeout: float = 120.0, **arguments: Any) -> Any:
        """Give a command and wait for its answer."""
        return self.start(do, **arguments).result(timeout)

    def kill(self) -> None:
        """`kill -9`, with all members that live in it."""
        self._process.kill()
        self.stop()

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(5)
        self._process.stdout.close()
        self._log.close()


class JavaConsumer:
    """One push consumer inside the JVM."""

    def __init__(self, peer: Peer, name: str, client_id: str) -> None:
        self._peer, self._name, self.client_id = peer, name, client_id
        self.seen: list[dict[str, Any]] = []
        self._stopped = False

    def poll(self) -> list[dict[str, Any]]:
        """Everything it has seen so far, in the order of handling."""
        new = self._peer.call("consumed", name=self._name, since=len(self.seen))
        for message in new:
            message["body"] = base64.b64decode(message["body"])
        self.seen += new
        return self.seen

    def bodies(self) -> list[str]:
        """The bodies of everything handled with success, as text."""
        return [message["body"].decode() for message in self.poll() if message["done"]]

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._peer.call("stop_consumer", name=self._name)


class JavaClient:
    """The peer, talking to one cluster."""

    _names = itertools.count(1)

    def __init__(self, peer: Peer, name_server: str) -> None:
        self._peer, self.name_server = peer, name_server
        self._consumers: list[JavaConsumer] = []
        self._loads: list[Load] = []

    def _call(self, do: str, *, timeout: float = 120.0, **arguments: Any) -> Any:
        return self._peer.call(do, timeout=timeout, ns=self.name_server, **arguments)

    def send(
        self,
        topic: str,
        *messages: str | dict[str, Any],
        as_batch: bool = False,
        producer: str | None = None,
        traced: bool = False,
    ) -> list[dict[str, Any]]:
        """Send messages as written (java/Producing.java names the keys); a string is a body. Then they can be read.

        `producer` names one of its own, which does not know yet what the common one remembers of routes.
        """
        lines = [{"text": one} if isinstance(one, str) else one for one in messages]
        answer: list[dict[str, Any]] = self._call(
            "send", topic=topic, messages=lines, as_batch=as_batch, producer=producer, traced=traced
        )
        return answer

    def send_bytes(self, topic: str, body: bytes, **more: Any) -> dict[str, Any]:
        return self.send(topic, {"base64": base64.b64encode(body).decode(), **more})[0]

    def recall(self, topic: str, handle: str) -> str:
        """Take a message back that waits for its time: its id. JavaError when it comes."""
        return str(self._call("recall", topic=topic, handle=handle))

    def produce(self, topic: str, count: int, **more: Any) -> Load:
        """Start a generated load in the background (java/Producing.java names the options)."""
        name = f"load{next(self._names)}"
        self._call("produce", name=name, topic=topic, count=count, **more)
        self._loads.append(Load(self._peer, name))
        return self._loads[-1]

    def consume(self, topic: str, group: str, *, ns_of_member: str = "", **more: Any) -> JavaConsumer:
        """Start a push consumer (java/Consuming.java names the options), perhaps by another name server's address."""
        name = f"consumer{next(self._names)}"
        client_id = self._peer.call(
            "consume", name=name, topic=topic, group=group, ns=ns_of_member or self.name_server, **more
        )
        consumer = JavaConsumer(self._peer, name, client_id)
        self._consumers.append(consumer)
        return consumer

    def request(self, topic: str, text: str, *, timeout: float = 60.0) -> dict[str, Any]:
        """Ask, and wait for the reply: a message as `read` shows it. A missing reply is a JavaError."""
        reply: dict[str, Any] = self._call("request", topic=topic, text=text, timeout_ms=int(timeout * 1000))
        reply["body"] = base64.b64decode(reply["body"])
        return reply

    def reply(self, topic: str, group: str, prefix: str) -> None:
        """Start a consumer that answers every request with the prefix and the request's body."""
        name = f"consumer{next(self._names)}"
        client_id = self._call("reply", name=name, topic=topic, group=group, prefix=prefix)
        self._consumers.append(JavaConsumer(self._peer, name, client_id))

    def transaction(self, topic: str, text: str, *, group: str, local: str, check: str = "unknown") -> str:
        """Send a half message and end it as `local` says: commit, rollback or unknown. `check` answers brokers."""
        return str(self._call("transaction", topic=topic, text=text, group=group, local=local, check=check))

    def join_transactions(self, topic: str, *, group: str, check: str) -> None:
        """Be a member of a producer group that answers brokers for it."""
        self._call("transaction_member", topic=topic, group=group, check=check)

    def checked(self, group: str) -> list[str]:
        """The bodies of the half messages that brokers have asked this JVM about."""
        return list(self._call("checked", group=group))

    def create_topic(self, topic: str, queues: int) -> None:
        self._call("create_topic", topic=topic, queues=queues)

    def offsets(self, topic: str, group: str | None = None) -> dict[int, dict[str, int | None]]:
        """By queue id: `min`, `max`, and what the group `committed` (None: nothing)."""
        return {int(queue): line for queue, line in self._call("offsets", topic=topic, group=group).items()}

    def lag(self, topic: str, group: str) -> int:
        """Messages between the committed offsets and the ends; nothing committed counts from the first."""
        total = 0
        for line in self.offsets(topic, group).values():
            end, least = line["max"] or 0, line["min"] or 0
            committed = line["committed"]
            total += end - (least if committed is None else committed)
        return total

    def topic_stats(self, topic: str) -> dict[int, dict[str, int]]:
        return {int(queue): line for queue, line in self._call("topic_stats", topic=topic).items()}

    def read(self, topic: str, *, least: int = 0) -> list[dict[str, Any]]:
        """Every stored message of a topic, looked at from outside of any group, as soon as that many are there.

        A broker of Apache's has stored a message, and has said so, before readers can see it.
        """
        messages: list[dict[str, Any]] = []

        def are_there() -> bool:
            messages[:] = self._read(topic)
            return len(messages) >= least

        wait_until(are_there, within=20, what=lambda: f"{least} messages of {topic}, there are {len(messages)}")
        return messages

    def _read(self, topic: str) -> list[dict[str, Any]]:
        try:
            messages: list[dict[str, Any]] = self._call("read", topic=topic)
        except JavaError as error:
            if "No route info" in str(error) or "Can not find Message Queue" in str(error):
                return []  # there is no such topic
            raise
        for message in messages:
            message["body"] = base64.b64decode(message["body"])
        return messages

    def dead_letters(self, group: str, *, least: int = 0) -> list[dict[str, Any]]:
        """What lies in the dead-letter topic of a group, as soon as that many are there."""
        return self.read(f"%DLQ%{group}", least=least)

    def members(self, group: str) -> dict[str, Any]:
        """`ids` of the live members; without any, `code` and `remark` of the broker's refusal too."""
        answer: dict[str, Any] = self._call("members", group=group)
        return answer

    def search_offset(self, topic: str, queue: int, timestamp_ms: int) -> int:
        return int(self._call("search_offset", topic=topic, queue=queue, timestamp_ms=timestamp_ms))

    def view(self, topic: str, message_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._call("view", topic=topic, message_id=message_id)
        return answer

    def admin(self, *arguments: str) -> str:
        """What Apache's own admin tool prints for a command."""
        return str(self._peer.call("admin", arguments=[*arguments, "-n", self.name_server]))

    def stop(self) -> None:
        """Stop loads as well: one whose broker has gone would try again for ever, as fast as it goes."""
        for load in self._loads:
            load.stop()
        self._loads.clear()
        self.stop_consumers()

    def stop_consumers(self) -> None:
        for consumer in self._consumers:
            consumer.stop()
        self._consumers.clear()


class Load:
    """Numbered messages that a Java producer sends in the background."""

    def __init__(self, peer: Peer, name: str) -> None:
        self._peer, self._name = peer, name

    def progress(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._peer.call("produced", name=self._name)
        return answer

    def stop(self) -> None:
        """Send no further message."""
        self._peer.call("produced", name=self._name, stop=True)

    def wait(self, *, within: float) -> dict[str, Any]:
        """Wait for the end; returns the numbers that were `stored` and those whose fate is `unknown`."""
        done = wait_until(self._when_done, within=within, what=lambda: f"the load ends: {self.progress()}", every=0.1)
        assert done is not None
        return done

    def _when_done(self) -> dict[str, Any] | None:
        progress = self.progress()
        return progress if progress["done"] else None


def texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The bodies of messages that were read, as text."""
    return [message["body"].decode() for message in messages]
