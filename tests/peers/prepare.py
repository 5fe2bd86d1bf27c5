"""Fetch, compile and archive what tests of real parts need: `python -m tests.peers.prepare`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from tests.peers import toolchain
from tests.peers.clusters import Apache
from tests.peers.java_client import JavaClient, Peer
from tests.peers.waiting import wait_until


def prepare(*, old: bool = True) -> None:
    """All that tests may need; with `old`, also what runs Apache RocketMQ 4.9.7."""
    toolchain.classes()
    if old:
        toolchain.jars_of_4()
    with toolchain.alone("archive"):
        if not toolchain.archive().exists():
            _make_archive(toolchain.archive())


def _make_archive(made: Path) -> None:
    """Without it each JVM reads its classes from the jars anew, which is half of its start."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        options = (*toolchain.BRIEF, f"-XX:DumpLoadedClassList={home}/%p.lst")
        apache = Apache(home / "apache", options=options)
        try:
            peer = Peer(home / "peer", properties=options[-1:])
            try:
                _use(JavaClient(peer, apache.name_server))
            finally:
                peer.stop()
        finally:
            apache.stop()
        names = home / "all.lst"
        loaded = [line for each in home.glob("*.lst") for line in each.read_text().splitlines(True)]
        names.write_text("".join(dict.fromkeys(loaded)))
        coming = made.with_name(f"{made.name}.{os.getpid()}")
        dump = ["java", *toolchain.BRIEF, "-Xshare:dump", f"-XX:SharedClassListFile={names}"]
        dump += [f"-XX:SharedArchiveFile={coming}", "-cp", f"{toolchain.jars()}/*"]
        done = subprocess.run(dump, capture_output=True, timeout=600, check=False)
        if done.returncode:
            coming.write_bytes(b"")  # this JDK makes none, and every JVM does without
        coming.rename(made)


def _use(java: JavaClient) -> None:
    """What most tests do with both: it loads many more classes than their start."""
    java.create_topic("orders", 1)
    java.send("orders", "one")
    java.transaction("orders", "two", group="deciders", local="commit")
    consumer = java.consume("orders", "readers")
    wait_until(lambda: len(consumer.bodies()) == 2, within=60, what="both are consumed")
    java.stop()
    java.admin("clusterList")


if __name__ == "__main__":
    if toolchain.missing() is None:
        prepare()
