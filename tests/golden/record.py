"""Record what the Java client and Apache RocketMQ say to each other: `python -m tests.golden.record`.

A proxy stands between the two and keeps the first frame of each kind, in both directions. The result, `frames.json`,
is the witness of `rocketapp.wire`: both of our ends share that code, and a misreading would agree with itself. The
frames are committed; record again only to take in a newer RocketMQ, or some by name: `... record push_reply`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from tests.peers.clusters import Apache, free_port
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until

FRAMES = Path(__file__).with_name("frames.json")

# Request code -> the name under which the exchange is kept.
KINDS = {
    11: "pull",
    14: "query_offset",
    15: "commit_offset",
    30: "max_offset",
    31: "min_offset",
    29: "search_offset",
    34: "heartbeat",
    35: "unregister",
    36: "send_back",
    37: "end_transaction",
    38: "member_list",
    39: "check_transaction",
    40: "group_changed",
    41: "lock",
    42: "unlock",
    105: "route",
    106: "cluster_info",
    202: "topic_stats",
    310: "send_v2",
    320: "send_batch",
    325: "send_reply",
    326: "push_reply",
    370: "recall",
    400: "pop_assignment",
    401: "pop_mode",
    200050: "pop",
    200051: "pop_ack",
    200053: "pop_change",
}


class _Head(NamedTuple):
    """What the recorder needs of a header."""

    code: int
    opaque: int
    flag: int
    binary: bool


def _head(frame: bytes) -> _Head:
    if frame[4] == 1:
        code, _, _, opaque, flag = struct.unpack_from(">hbhii", frame, 8)
        return _Head(code, opaque, flag, True)
    length = int.from_bytes(frame[5:8], "big")
    header = json.loads(frame[8 : 8 + length])
    return _Head(header["code"], header["opaque"], header["flag"], False)


class Recorder:
    """Keeps, of each kind of exchange and each answer code, the first request and the answer to it."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, str]] = {}
        self._open: dict[tuple[int, int], tuple[str, bytes]] = {}
        self._lock = threading.Lock()

    def see(self, connection: int, frame: bytes) -> None:
        head = _head(frame)
        with self._lock:
            if head.flag & 1:
                name, request = self._open.pop((connection, head.opaque), ("", b""))
                if name:
                    suffix = f"_{head.code}" if head.code else ""
                    self.kept.setdefault(name + suffix, {"request": request.hex(), "response": frame.hex()})
            elif head.code in KINDS:
                name = self._name(head, frame)
                if head.flag & 2 or head.binary:  # Apache answers a binary request in JSON: those answers we have
                    self.kept.setdefault(name, {"request": frame.hex()})
                else:
                    self._open[connection, head.opaque] = name, frame

    def _name(self, head: _Head, frame: bytes) -> str:
        name = KINDS[head.code]
        if name == "heartbeat" and b'"groupName":"golden_' in frame:
            name = "heartbeat_consumer"
        if name == "end_transaction" and b'"fromTransactionCheck":"true"' in frame:
            name = "end_transaction_asked"
        if name == "commit_offset" and not head.flag & 2:
            name = "commit_offset_answered"
        return f"{name}_binary" if head.binary else name


class Proxy:
    """Hands bytes on between a client and one server, and shows whole frames to the recorder."""

    numbers = itertools.count(1)

    def __init__(self, server: str, recorder: Recorder, *, replace: tuple[bytes, bytes] | None = None) -> None:
        host, _, port = server.partition(":")
        self._server, self._recorder, self._replace = (host, int(port)), recorder, replace
        self.port = free_port()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._server)
            number = next(self.numbers)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(number, source, target), daemon=True).start()

    def _pass_on(self, number: int, source: socket.socket, target: socket.socket) -> None:
        reader = source.makefile("rb")
        while len(start := reader.read(4)) == 4:
            (length,) = struct.unpack(">i", start)
            frame = start + reader.read(length)
            if self._replace is not None:
                frame = frame.replace(*self._replace)  # ports of equal length: the frame keeps its size
            self._recorder.see(number, frame)
            target.sendall(frame)
        target.close()


def _converse(java: JavaClient) -> None:
    """Make the client say everything once."""
    java.create_topic("GoldenTopic", 2)
    java.create_topic("GoldenAsked", 1)
    java.send(
        "GoldenTopic",
        {
            "text": "hello golden",
            "tag": "TagA",
            "keys": ["k1", "k2"],
            "properties": {"colour": "red", "名": "值"},
            "queue": 1,
        },
        {"text": "later", "tag": "TagB", "delay": 3},
    )
    java.send("GoldenTopic", {"text": "one", "tag": "TagA"}, {"text": "two", "keys": ["b2"]}, as_batch=True)
    java.topic_stats("GoldenTopic")
    java.offsets("GoldenTopic", "golden_nobody")
    java.members("golden_nobody")
    java.search_offset("GoldenTopic", 1, 1)
    concurrent = java.consume("GoldenTopic", "golden_concurrent", tags="TagA || TagC", fail_first=1)
    orderly = java.consume("GoldenTopic", "golden_orderly", orderly=True)
    wait_until(lambda: len(orderly.bodies()) >= 3, within=40, what="the orderly consumer sees three messages")
    wait_until(lambda: len(concurrent.bodies()) >= 2, within=60, what="the concurrent consumer sees its retries")
    java.reply("GoldenAsked", "golden_replier", "re: ")
    java.request("GoldenAsked", "a question", timeout=60)
    java.transaction("GoldenTopic", "committed", group="golden_producer", local="commit")
    java.transaction("GoldenTopic", "asked about", group="golden_producer", local="unknown", check="rollback")
    wait_until(lambda: java.checked("golden_producer"), within=60, what="the broker asks how the transaction ended")
    java.offsets("GoldenTopic", "golden_concurrent")
    (waiting,) = java.send("GoldenTopic", {"text": "taken back", "delay_ms": 30_000})
    assert java.recall("GoldenTopic", waiting["recall_handle"]) == waiting["id"]
    _pop(java)
    java.stop_consumers()


def _pop(java: JavaClient) -> None:
    """A group for which brokers hand out messages: one fails first."""
    java.admin("updateSubGroup", "-c", "DefaultCluster", "-g", "golden_popper")
    java.admin(
        "setConsumeMode", "-c", "DefaultCluster", "-t", "GoldenTopic", "-g", "golden_popper", "-m", "POP", "-q", "0"
    )
    popper = java.consume("GoldenTopic", "golden_popper", tags="TagA || TagC", server_rebalance=True, fail_first=1)
    wait_until(lambda: len(popper.bodies()) >= 2, within=90, what="the popping consumer sees its retries")


def _converse_in_binary(java: JavaClient) -> None:
    """The same client, told to write its headers in RocketMQ's binary form."""
    java.send("GoldenTopic", {"text": "binary", "tag": "TagA", "keys": ["k3"], "properties": {"名": "值"}})
    java.members("golden_nobody")
    consumer = java.consume("GoldenTopic", "golden_binary", tags="TagA")
    wait_until(lambda: "binary" in consumer.bodies(), within=40, what="the consumer sees the message")
    java.stop_consumers()


def record(apache: Apache, home: Path) -> Recorder:
    """Run both conversations through the proxies."""
    recorder = Recorder()
    broker = Proxy(apache.broker_address, recorder)
    swap = (apache.broker_address.encode(), f"127.0.0.1:{broker.port}".encode())
    name_server = Proxy(apache.name_server, recorder, replace=swap)
    for properties, converse in (((), _converse), (("-Drocketmq.serialize.type=ROCKETMQ",), _converse_in_binary)):
        peer = Peer(home / "java", properties=properties)
        try:
            converse(JavaClient(peer, f"127.0.0.1:{name_server.port}"))
        finally:
            peer.stop()
    return recorder


def main(only: list[str]) -> None:
    """Record all kinds of exchanges, or take in only those whose names begin with one of `only`."""
    home = Path(tempfile.mkdtemp(prefix="rocketapp-golden-"))
    apache = Apache(home / "apache")
    try:
        recorder = record(apache, home)
    finally:
        apache.stop()
        shutil.rmtree(home, ignore_errors=True)
    absent = set(KINDS.values()) - {"commit_offset", "query_offset"} - recorder.kept.keys()
    assert not absent, f"never said: {sorted(absent)}"
    kept = recorder.kept
    if only:
        fresh = {name: frames for name, frames in kept.items() if name.startswith(tuple(only))}
        kept = json.loads(FRAMES.read_text()) | fresh
    FRAMES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(f"{len(kept)} exchanges, {FRAMES.stat().st_size} bytes in {FRAMES}")


if __name__ == "__main__":
    main(sys.argv[1:])
