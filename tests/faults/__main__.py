"""`python -m tests.faults [NAME...] [--small]`: the fault runs, one after the other; prints the figures of each."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults import (
    changing_hands,
    connections,
    disks,
    effects,
    frames,
    kills,
    large_logs,
    links,
    loads,
    mixed,
    outages,
    replays,
    replication,
    restarts,
    roll_out,
    scenarios,
    slaves,
    storms,
)
from tests.faults.scenarios import Figures
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.databases import HAS_MARIADB
from tests.peers.java_client import Peer

Run = Callable[[], Figures]
BOTH = ("apache", "embedded")


class Parts:
    """What the runs need: each part is started when the first run asks for it."""

    def __init__(self, home: Path, *, small: bool) -> None:
        self.home, self.small = home, small
        self._clusters: dict[str, Cluster] = {}
        self._peer: Peer | None = None

    def cluster(self, name: str) -> Cluster:
        if name not in self._clusters:
            place = self.home / name
            self._clusters[name] = Apache(place, heap="1g") if name == "apache" else Embedded(place)
        return self._clusters[name]

    @property
    def peer(self) -> Peer:
        if self._peer is None:
            self._peer = Peer(self.home / "java")
        return self._peer

    def stop(self) -> None:
        if self._peer is not None:
            self._peer.stop()
        for cluster in self._clusters.values():
            cluster.stop()


def _runs(parts: Parts) -> Iterator[tuple[str, str, str, Run]]:
    """Name, cluster (or none), what else is in the title, and the run itself."""
    small, home = parts.small, parts.home
    size = scenarios.SMALL if small else scenarios.FULL

    def on(run: Callable[..., Figures], title: str, cluster: str, *arguments: object, **more: object) -> Run:
        place = home / f"{title.replace(' ', '-')}-{cluster}"
        return lambda: run(parts.cluster(cluster), parts.peer, place, *arguments, **more)

    for cluster in BOTH:
        for kind, workers in (("async", 1), ("sync", 1), ("orderly", 1), ("async", 2)):
            title = f"deliveries {kind} x{workers}"
            yield (
                "deliveries",
                cluster,
                title,
                on(scenarios.deliveries, title, cluster, size, kind=kind, workers=workers),
            )
    for cluster in BOTH:
        yield "order", cluster, "order", on(scenarios.order, "order", cluster, size)
    often = size if small else size._replace(kills=50)
    yield "broker-kills", "", "broker kills", lambda: scenarios.broker_kills(parts.peer, home / "broker-kills", often)
    for cluster in BOTH:
        yield "consumer-kills", cluster, "consumer kills", on(scenarios.consumer_kills, "kills", cluster, size)
    yield "bounce", "", "bounce", lambda: scenarios.bounce(parts.peer, home / "bounce", size)
    in_order, at_once = (
        (storms.SMALL_ORDERLY, storms.SMALL_CONCURRENT) if small else (storms.FULL_ORDERLY, storms.FULL_CONCURRENT)
    )
    ways: tuple[tuple[str, Callable[..., Figures], storms.Storm], ...] = (
        ("orderly", storms.orderly, in_order),
        ("keyed", storms.keyed, in_order),
        ("polled", storms.polled, in_order),
        ("by-hand", storms.by_hand, in_order),
        ("broadcast", storms.broadcast, in_order),
        ("popped", storms.popped, at_once),
        ("concurrent", storms.concurrent, at_once),
    )
    for way, storming, storm in ways:
        for cluster in BOTH:
            name = f"storm-{way}"
            yield name, cluster, name.replace("-", " "), on(storming, name, cluster, storm)
    for cluster in BOTH:
        for workers in (1, 2):
            title, rounds = f"rolling x{workers}", 1 if small else 3
            run = on(restarts.rolling, title, cluster, rounds=rounds, workers=workers)
            yield "rolling", cluster, title, lambda run=run: restarts.repeats_no_short_call(run())  # type: ignore[misc]
    delays = (0.0, 2.0) if small else (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
    yield "broker-pause", "", "broker pause", lambda: restarts.broker_pause(parts.peer, home / "pause", delays)
    for cluster in BOTH:
        run = on(mixed.mixed, "mixed", cluster, changes=6 if small else 50)
        yield "mixed", cluster, "mixed", lambda run=run: mixed.settles_in_time(run())  # type: ignore[misc]
    for orderly in (False, True):
        title = "slave orderly" if orderly else "slave"
        place = home / title.replace(" ", "-")
        run = partial(slaves.slave, seconds=20.0 if small else 60.0, orderly=orderly)
        yield "slave", "", title, lambda run=run, place=place: run(parts.peer, place)
    killed = partial(replication.synchronous, kills=2 if small else 10)
    harm = partial(links.links, faults=3, heads=1, megabytes=100) if small else links.links
    for cluster in BOTH:
        for title, run in (("replication", killed), ("replication links", harm)):
            place = home / f"{title.replace(' ', '-')}-{cluster}"
            yield "replication", cluster, title, partial(run, place, cluster)
    away = 20.0 if small else 120.0
    for orderly in (False, True):
        title = "three brokers orderly" if orderly else "three brokers"
        place = home / title.replace(" ", "-")
        run = partial(outages.three_brokers, seconds=away, orderly=orderly)
        yield "three-brokers", "", title, lambda run=run, place=place: run(parts.peer, place)
    beside = partial(outages.frozen_of_two, rounds=1 if small else 3)
    yield "frozen-of-two", "", "frozen of two", lambda: beside(parts.peer, home / "frozen-of-two")
    for cluster in BOTH:
        count = 1_000 if small else 10_000
        yield "replay", cluster, "replay", on(replays.replay, "replay", cluster, count=count)
        letters, killed = (300, 2) if small else (2_000, 5)
        title = "replay to members"
        yield (
            "replay-to-members",
            cluster,
            title,
            on(replays.replay_to_members, title, cluster, count=letters, kills=killed),
        )
    for cluster in BOTH:
        for guard in ("roll-out", "off"):
            title = f"roll out {guard}"
            yield "roll_out", cluster, title, on(roll_out.roll_out, title, cluster, guard=guard)
    for held in (False, True):
        title = "slow taker held" if held else "slow taker"
        yield "slow-taker", "apache", title, on(roll_out.slow_taker, title, "apache", held=held)
    for cluster in BOTH:
        yield "kill-in-flight", cluster, "kill in flight", on(kills.killed_in_flight, "in-flight", cluster)
        for end in ("cut", "kill"):
            title = f"forward {end}"
            yield "cut-forward", cluster, title, on(kills.cut_forward, title, cluster, end=end)
    yield "hostile-frames", "", "hostile frames", partial(frames.hostile_frames, 5_000 if small else 1_000_000)
    for name, opening, count in (
        ("idle-connections", connections.idle_connections, 500 if small else 10_000),
        ("half-frames", connections.half_frames, 100 if small else 1_000),
    ):
        yield name, "", name.replace("-", " "), partial(opening, home / name, count)
    run = partial(changing_hands.changing_hands, home / "hands", 2_000 if small else 100_000)
    yield "changing-hands", "", "changing hands", run
    yield "power-losses", "", "power losses", partial(disks.power_losses, 100 if small else 2_000)
    yield "failing-calls", "", "failing calls", partial(disks.failing_calls, 60, 20 if small else 1)
    yield (
        "large-log",
        "",
        "large log",
        partial(large_logs.large_log, home / "large-log", 1 << 28 if small else 10 << 30),
    )
    yield from _runs_of_effects(parts)
    for cluster in BOTH:
        yield "idle-queues", cluster, "idle queues", on(loads.idle_queues, "idle", cluster)
    for cluster in BOTH:
        count, rounds = (100_000, 1) if small else (300_000, 5)
        yield "hung-topic", cluster, "hung topic", on(loads.hung_topic, "hung", cluster, count=count, rounds=rounds)
    for cluster in BOTH:
        queues = 200 if small else 1000
        yield "memory", cluster, "memory", on(loads.memory, "memory", cluster, queues=queues)


def _runs_of_effects(parts: Parts) -> Iterator[tuple[str, str, str, Run]]:
    """The same, without the Java client."""
    harm = effects.SMALL if parts.small else effects.FULL
    of_sql = ("sqlite", "postgresql", *(("mariadb",) if HAS_MARIADB else ()))
    kinds: tuple[tuple[str, str, Callable[..., Figures], tuple[str, ...]], ...] = (
        ("effects", "exactly once", effects.exactly_once, of_sql),
        ("marks", "marks in", effects.marked_elsewhere, ("redis", "sqlite")),
        ("outbox", "outbox", effects.outbox, of_sql),
    )
    for name, what, run, databases in kinds:
        for cluster in BOTH:
            for kind in databases:
                title = f"{what} {kind}"
                place = parts.home / f"{title.replace(' ', '-')}-{cluster}"
                on = partial(run, directory=place, kind=kind, damage=harm)
                yield name, cluster, title, lambda on=on, cluster=cluster: on(parts.cluster(cluster))


def main() -> int:
    with tempfile.TemporaryDirectory() as nowhere:
        names = list(dict.fromkeys(name for name, *_ in _runs(Parts(Path(nowhere), small=True))))
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--small", action="store_true", help="the figures of `make test` instead of the full ones")
    parser.add_argument("--cluster", choices=BOTH, help="only on this one")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was started is ended on the way
    home = Path(tempfile.mkdtemp(prefix="rocketapp-faults-"))
    parts, failed = Parts(home, small=options.small), 0
    try:
        for name, cluster, title, run in _runs(parts):
            if options.names and name not in options.names:
                continue
            if cluster and options.cluster not in (None, cluster):
                continue
            try:
                print(f"{title} {cluster}: {json.dumps(run())}", flush=True)
            except Exception:
                failed += 1
                print(f"{title} {cluster}: FAILED\n{traceback.format_exc()}", flush=True)
    finally:
        parts.stop()
        if not failed:
            shutil.rmtree(home, ignore_errors=True)
    if not HAS_MARIADB and (not options.names or {"effects", "outbox"} & set(options.names)):
        print("NOT RUN: effects and outbox in MariaDB, for this machine lacks a MariaDB server")
    print("0 failed" if not failed else f"{failed} failed; everything they wrote is in {home}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
