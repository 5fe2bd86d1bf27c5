"""Very many connections to the embedded broker, most of which do nothing, or send a frame that never ends."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from pathlib import Path

from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.frame import encode
from tests.faults.scenarios import Figures
from tests.peers.bare import GET_ROUTE, Bare
from tests.peers.clusters import Embedded
from tests.peers.waiting import wait_until

IDLE = 120.0
"""Seconds after which a connection that brings no whole frame is ended."""
_DESCRIPTORS = 512


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _may_open(count: int) -> None:
    """Raises where this process may not have so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + _DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + _DESCRIPTORS, hard))


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10.0)


def idle_connections(directory: Path, count: int) -> Figures:
    """So many clients ask for a route and then nothing: what each costs, and that others are served meanwhile."""
    _may_open(count)
    request = encode(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}))
    broker = Embedded(directory)
    with contextlib.ExitStack() as opened:
        opened.callback(broker.stop)
        before = _resident_bytes(broker.broker_pid)
        for _ in range(count):
            client = opened.enter_context(_connect(broker.broker_address))
            client.sendall(request)
            assert client.recv(1 << 16)
        cost = (_resident_bytes(broker.broker_pid) - before) / count
        began = time.monotonic()
        with Bare(broker.broker_address) as asking:
            assert asking.ask(GET_ROUTE, topic="TBW102").code == 0
        answered = time.monotonic() - began
    return {"connections": count, "kib_each": round(cost / 1024, 1), "answered_ms": round(answered * 1000)}


def half_frames(directory: Path, count: int) -> Figures:
    """So many peers send a frame byte by byte that never ends: all are ended, and others are served meanwhile."""
    _may_open(count)
    broker = Embedded(directory)
    with contextlib.ExitStack() as opened:
        opened.callback(broker.stop)
        peers = [opened.enter_context(_connect(broker.broker_address)) for _ in range(count)]
        for peer in peers:
            peer.sendall(b"\x00\x01\x00\x00")
            peer.setblocking(False)
        began = time.monotonic()

        def are_ended() -> bool:
            for peer in list(peers):
                try:
                    peer.send(b"\0")
                    ended = peer.recv(1) == b""
                except BlockingIOError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    peers.remove(peer)
            with Bare(broker.broker_address) as asking:
                assert asking.ask(GET_ROUTE, topic="TBW102").code == 0
            return not peers

        wait_until(are_ended, within=IDLE + 60.0, what=lambda: f"the rest is ended: {len(peers)}", every=1.0)
        return {"connections": count, "all_ended_s": round(time.monotonic() - began)}
