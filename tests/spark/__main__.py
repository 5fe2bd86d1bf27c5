"""`python -m tests.spark cluster|restart|writes|versions|landing`: on a cluster, under kills, on every Spark."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.spark import cluster, landing, restart, versions, writes


def on_cluster(arguments: argparse.Namespace) -> bool:
    right = True
    for kind in arguments.kind or ("batch", "stream"):
        with tempfile.TemporaryDirectory(prefix="rocketapp-cluster-") as directory:
            figures = cluster.run(Path(directory), kind, arguments.count, apache=arguments.broker == "apache")
        print(json.dumps(figures), flush=True)
        right = cluster.is_right(figures) and right
    return right


def under_restarts(arguments: argparse.Namespace) -> bool:
    right = True
    for kind in arguments.broker or ("embedded", "apache"):
        with tempfile.TemporaryDirectory(prefix="rocketapp-restart-") as directory:
            figures = restart.run(Path(directory), arguments.rounds, apache=kind == "apache")
        print(json.dumps(figures), flush=True)
        right = restart.is_right(figures) and right
    return right


def under_kills(arguments: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="rocketapp-writes-") as directory:
        figures = writes.run(Path(directory), arguments.count, apache=arguments.broker == "apache")
    print(json.dumps(figures), flush=True)
    return writes.is_right(figures)


def on_versions(arguments: argparse.Namespace) -> bool:
    return versions.run(arguments.only or versions.VERSIONS, arguments.mode or versions.MODES, arguments.pytest)


def on_landing(arguments: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="rocketapp-landing-") as directory:
        figures = landing.run(
            Path(directory),
            count=arguments.count,
            kills=arguments.kills,
            format=arguments.format,
            is_naive=arguments.naive,
        )
    print(json.dumps(figures), flush=True)
    return landing.is_right(figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark", description=__doc__)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("cluster", help="spark-submit on two workers, one executor killed; the rows of local mode")
    one.add_argument("--count", type=int, default=400_000, help="messages of 256 bytes (400000)")
    one.add_argument("--broker", choices=("embedded", "apache"), default="embedded")
    one.add_argument("--kind", choices=("batch", "stream"), action="append", help="may be given again (both)")
    one.set_defaults(run=on_cluster)
    rolling = parts.add_parser("restart", help="two brokers restarted in turn under a stream, which goes on")
    rolling.add_argument("--rounds", type=int, default=2, help="how often both (2)")
    rolling.add_argument("--broker", choices=("embedded", "apache"), action="append", help="may be given again (both)")
    rolling.set_defaults(run=under_restarts)
    written = parts.add_parser("writes", help="a write of which a task and the broker are killed; every row is there")
    written.add_argument("--count", type=int, default=400_000, help="messages of 256 bytes (400000)")
    written.add_argument("--broker", choices=("embedded", "apache"), default="apache")
    written.set_defaults(run=under_kills)
    other = parts.add_parser("versions", help="the tests of the source on each version of Spark, below .cache/spark")
    other.add_argument("--only", action="append", metavar="VERSION", help="may be given again (all)")
    other.add_argument("--mode", choices=versions.MODES, action="append", help="may be given again (all)")
    other.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    other.set_defaults(run=on_versions)
    last = parts.add_parser(
        "landing", help="many messages of Apache RocketMQ into Parquet files, the app killed on the way"
    )
    last.add_argument("--count", type=int, default=1_000_000, help="messages of 256 bytes (1000000)")
    last.add_argument("--kills", type=int, default=3, help="of the process group (3)")
    last.add_argument("--format", choices=("parquet", "arrow"), default="parquet", help="`arrow` does without Spark")
    last.add_argument("--naive", action="store_true", help="the control: a handler that appends its batches")
    last.set_defaults(run=on_landing)
    arguments = parser.parse_args()
    return 0 if arguments.run(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
