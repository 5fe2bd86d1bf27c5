"""The embedded broker beside Apache RocketMQ's: sends, drains, synchronous flush, sends beside other work, its start.

The two take turns, in every second round in reverse, and their figures are medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.runs import Bench, Figures, resident_mb
from tests.peers.bare import Bare
from tests.peers.clusters import Apache, Embedded

SENDING = {1: 24, 16: 6, 64: 6}
"""Threads -> which part of `--count` they send."""
PACED, RATE, HALVES = 20_000, 1000, 20_000
"""Sends beside other work, how many of them a second, and the transactions that are open meanwhile."""
SEGMENT_BYTES = 8 << 20
"""Of the logs that take them: each goes on in another file every few seconds."""
TOPICS, MORE = 10_000, 50
"""Topics that are there, and those whose creation is measured then."""
QUEUES = 2000
"""Of the directory with which a start is measured."""
_SEND, _QUERY, _CREATE_TOPIC, _DELETE_TOPIC = 310, 12, 17, 215
_HALF_MESSAGE = 4

Broker = Apache | Embedded
Measure = Callable[[Broker], float | str]
"""What was measured, or why it could not be."""


class BrokerBench:
    """One run of the part `brokers`. `found` has the figures of both, by their names."""

    def __init__(self, bench: Bench, home: Path, loop: str, messages: int, rounds: int) -> None:
        self._bench, self._home, self._loop, self._messages, self._rounds = bench, home, loop, messages, rounds
        self.found: dict[str, Figures] = {"embedded": {}, "apache": {}}

    def measure(self, apache: Apache) -> None:
        self.found["embedded"]["start to serving, s"] = start_s(self._home, self._home / "started")
        with _running(Embedded(self._home / "embedded")) as embedded:
            both: tuple[Broker, Broker] = embedded, apache
            for threads, part in SENDING.items():
                self._in_turn(f"sends/s, {threads} threads", both, self._sending(threads, self._messages // part))
            bench, count = self._bench, self._messages
            filled = {one.name: self._filled(one) for one in both}

            def ours(broker: Broker) -> float:
                return _rate(bench.consume_ours(broker.name_server, filled[broker.name], count, "async", self._loop))

            def java(broker: Broker) -> float:
                return _rate(bench.consume_java(broker.name_server, filled[broker.name], count, "concurrently"))

            def go(broker: Broker) -> float | str:
                figures = bench.consume_go(broker.name_server, filled[broker.name], count)
                return figures if isinstance(figures, str) else _rate(figures)

            for who, measure in (("ours", ours), ("Java", java), ("Go", go)):
                self._in_turn(f"drained by {who}, messages/s", both, measure)
            for one in both:
                self.found[one.name]["resident at the end, MB"] = resident_mb(one.broker_pid)
        with self._both("sync", {"flush": "sync"}, ("flushDiskType=SYNC_FLUSH",)) as both:
            sends = self._sending(64, self._messages // 12)
            self._in_turn("sends/s, 64 threads, synchronous flush", both, sends)
        conf = f"mappedFileSizeCommitLog={SEGMENT_BYTES}", "transactionCheckInterval=60000", "transactionTimeOut=6000"
        with self._both("busy", {"segment_bytes": SEGMENT_BYTES}, conf) as both:
            for one in both:
                open_transactions(one, bench.fresh("halves"), HALVES)
            self._in_turn("p99 of sends beside other work, ms", both, self._beside_other_work)
        with _running(Embedded(self._home / "topics")) as embedded:
            self.found["embedded"]["a new topic, ms"] = new_topic_ms(embedded)
        with _running(Embedded(self._home / "queues")) as embedded:
            fill_queues(embedded)
        self.found["embedded"][f"start with {QUEUES:,} queues, s"] = start_s(self._home, embedded.store)

    def _in_turn(self, what: str, both: Sequence[Broker], measure: Measure) -> None:
        rounds: dict[str, list[float]] = {one.name: [] for one in both}
        for number in range(self._rounds):
            for one in both if number % 2 == 0 else reversed(both):
                value = measure(one)
                shown = value if isinstance(value, str) else f"{value:,.2f}"
                print(f"round {number + 1}, {one.name}: {what}: {shown}", file=sys.stderr, flush=True)
                if not isinstance(value, str):
                    rounds[one.name].append(value)
        for name, values in rounds.items():
            if values:
                self.found[name][what] = statistics.median(values)
                self.found[name].setdefault("rounds", {})[what] = values

    def _sending(self, threads: int, count: int) -> Measure:
        """Sends of 1 KiB from the Java producer, one message each."""

        def sends(broker: Broker) -> float:
            topic = self._bench.fresh("sends")
            figures = self._bench.produce(broker.name_server, topic, max(2000, count), batch=1, threads=threads)
            if figures["failed_sends"]:
                raise RuntimeError(f"{figures['failed_sends']} sends failed on {broker.name}")
            return _rate(figures)

        return sends

    def _filled(self, broker: Broker) -> str:
        topic = self._bench.fresh("drain")
        self._bench.produce(broker.name_server, topic, self._messages, batch=32, threads=4)
        return topic

    @contextmanager
    def _both(self, home: str, options: dict[str, object], conf: tuple[str, ...]) -> Iterator[tuple[Broker, Broker]]:
        """Two more brokers with these settings."""
        apache = Apache(self._home / home / "apache", heap="1g", conf=conf)
        with _running(apache), _running(Embedded(self._home / home / "embedded", options=options)) as embedded:
            yield embedded, apache

    def _beside_other_work(self, broker: Broker) -> float:
        """While others look for messages by key, and create and delete topics."""
        keyed, paced, over = self._bench.fresh("keyed"), self._bench.fresh("paced"), threading.Event()
        self._bench.produce(broker.name_server, keyed, 2000, batch=1, threads=4)
        self._bench.java(broker.name_server, "warm", paced)
        others = [threading.Thread(target=work, args=(broker, keyed, over)) for work in (_query, _create_and_delete)]
        for thread in others:
            thread.start()
        try:
            figures = self._bench.java(broker.name_server, "pace", paced, str(PACED), str(RATE))
        finally:
            over.set()
            for thread in others:
                thread.join()
        return float(figures["send_ms_p99"])


@contextmanager
def _running(broker: Broker) -> Iterator[Broker]:
    try:
        yield broker
    finally:
        broker.stop()


def _rate(figures: Figures) -> float:
    return float(figures["per_second"])


def start_s(home: Path, directory: Path) -> float:
    """Seconds from the start of a process of `rocketapp broker` until it serves this directory; the second of two.

    Its modules are compiled then, as those of an installed package are.
    """
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(home / "compiled")}
    seconds = 0.0
    for _ in range(2):
        command = [sys.executable, "-m", "rocketapp", "broker", "--dir", str(directory), "--listen", "127.0.0.1:0"]
        began = time.monotonic()
        with subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.monotonic() - began
            process.terminate()
        if not line.startswith("serving on "):
            raise RuntimeError(f"the broker did not start: {line!r}")
    return seconds


def fill_queues(broker: Broker) -> None:
    """One message in each of `QUEUES` queues."""
    with Bare(broker.broker_address, timeout=30) as bare:
        for number in range(QUEUES):
            topic = f"bench_{number // 4}"
            if number % 4 == 0:
                _create(broker, topic)
            send = {"a": "bench", "b": topic, "c": "TBW102", "d": 4, "e": number % 4, "f": 0, "g": 0, "h": 0}
            send |= {"i": f"UNIQ_KEY\x01{number:032X}\x02", "j": 0, "k": "false", "m": "false"}
            answer = bare.ask(_SEND, b"x" * 100, **send)
            if answer.code:
                raise RuntimeError(f"{broker.name} answers a send with code {answer.code}")


def open_transactions(broker: Broker, topic: str, count: int) -> None:
    """Half messages of a producer group without a member, so that none of them ends."""
    _create(broker, topic)
    with Bare(broker.broker_address, timeout=30) as bare:
        for number in range(count):
            properties = f"TRAN_MSG\x01true\x02PGROUP\x01bench_halves\x02UNIQ_KEY\x01{number:032X}\x02"
            send = {"a": "bench_halves", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": _HALF_MESSAGE, "g": 0}
            send |= {"h": 0, "i": properties, "j": 0, "k": "false", "m": "false"}
            answer = bare.ask(_SEND, b"x" * 100, **send)
            if answer.code:
                raise RuntimeError(f"{broker.name} answers a half message with code {answer.code}")


def new_topic_ms(broker: Broker) -> float:
    """Milliseconds of one more topic where there are many; the median."""
    took = []
    for number in range(TOPICS + MORE):
        began = time.monotonic()
        _create(broker, f"bench_{number}")
        took.append(time.monotonic() - began)
    return statistics.median(took[TOPICS:]) * 1000


def _create(broker: Broker, topic: str) -> None:
    with Bare(broker.broker_address, timeout=30) as bare:
        answer = bare.ask(
            _CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=4, writeQueueNums=4, perm=6,
            topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
        )  # fmt: skip
    if answer.code:
        raise RuntimeError(f"{broker.name} answers the creation of a topic with code {answer.code}")


def _query(broker: Broker, topic: str, over: threading.Event) -> None:
    """Ten times a second: by a key that one message has, and by one that none has."""
    with Bare(broker.broker_address, timeout=30) as bare:
        while not over.wait(0.1):
            for key in ("k1000", "none"):
                bare.ask(
                    _QUERY, topic=topic, key=key, maxNum=64, beginTimestamp=0, endTimestamp=int(time.time() * 1000)
                )


def _create_and_delete(broker: Broker, topic: str, over: threading.Event) -> None:
    """Twice a second."""
    with Bare(broker.broker_address, timeout=30) as bare:
        while not over.wait(0.5):
            _create(broker, f"{topic}_other")
            bare.ask(_DELETE_TOPIC, topic=f"{topic}_other")
