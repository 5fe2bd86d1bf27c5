"""`python -m tests.faults [NAME...] [--small]`: the full fault runs, one after the other; prints the figures of each.

Names: deliveries, order, broker-kills, consumer-kills, bounce. Without a name: all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults import scenarios
from tests.faults.scenarios import Figures, Scale
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import Peer

Run = Callable[[], Figures]


def _runs(clusters: list[Cluster], peer: Peer, home: Path, size: Scale) -> Iterator[tuple[str, str, Run]]:
    """Name, title and the run itself."""
    for cluster in clusters:
        for kind, workers in (("async", 1), ("sync", 1), ("orderly", 1), ("async", 2)):
            place = home / f"deliveries-{cluster.name}-{kind}-{workers}"
            run = partial(scenarios.deliveries, cluster, peer, place, size, kind=kind, workers=workers)
            yield "deliveries", f"deliveries {cluster.name} {kind} x{workers}", run
    for cluster in clusters:
        yield (
            "order",
            f"order {cluster.name}",
            partial(scenarios.order, cluster, peer, home / f"order-{cluster.name}", size),
        )
    yield "broker-kills", "broker kills", partial(scenarios.broker_kills, peer, home / "broker-kills", size)
    for cluster in clusters:
        place = home / f"consumer-kills-{cluster.name}"
        run = partial(scenarios.consumer_kills, cluster, peer, place, size)
        yield "consumer-kills", f"consumer kills {cluster.name}", run
    yield "bounce", "bounce", partial(scenarios.bounce, peer, home / "bounce", size)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    names = ("deliveries", "order", "broker-kills", "consumer-kills", "bounce")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--small", action="store_true", help="the figures of `make test` instead of the full ones")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    size = scenarios.SMALL if options.small else scenarios.FULL
    home = Path(tempfile.mkdtemp(prefix="rocketapp-faults-"))
    clusters: list[Cluster] = []
    peer, failed = None, 0
    try:
        clusters += [Apache(home / "apache"), Embedded(home / "embedded")]
        peer = Peer(home / "java")
        for name, title, run in _runs(clusters, peer, home, size):
            if options.names and name not in options.names:
                continue
            try:
                print(f"{title}: {json.dumps(run())}", flush=True)
            except Exception:
                failed += 1
                print(f"{title}: FAILED\n{traceback.format_exc()}", flush=True)
    finally:
        if peer is not None:
            peer.stop()
        for cluster in clusters:
            cluster.stop()
        if not failed:
            shutil.rmtree(home, ignore_errors=True)
    print("0 failed" if not failed else f"{failed} failed; everything they wrote is in {home}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
