"""`rocketapp broker`: the embedded broker alone; and `rocketapp broker promote`, the way to a slave of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError, problem_of
from rocketapp.cli.options import Seconds, cluster_options, overrides_of, refuse_empty
from rocketapp.cli.output import print_json, say

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.promotion import Copy, Fleet

BETWEEN_LOOKS = 1.0
"""Seconds."""

_NAMES = {"dir": "--dir", "listen": "--listen", "broker_http": "--http", "register": "--register"}
"""The command's own options, by their parameters."""


@click.group("broker", invoke_without_command=True, epilog="Example: rocketapp broker --listen 127.0.0.1:9876")
@click.option("--dir", metavar="DIR", help="Directory of the store; default .rocketapp.")
@click.option("--memory", is_flag=True, help="Keep everything in memory; nothing is left at the end.")
@click.option("--listen", metavar="H:P", help="Address to serve on; default 127.0.0.1:9876, port 0 takes a free one.")
@click.option("--http", "broker_http", metavar="H:P", help="Serve /health, /ready, /metrics and a page there.")
@click.option("--register", metavar="H:P[;H:P]", help="Register with these name servers of Apache RocketMQ too.")
@click.option("-c", "--conf", metavar="FILE", help="Options by Apache RocketMQ's names, as in its broker.conf.")
def command(memory: bool, conf: str | None, **own: str | None) -> int:
    """Run the embedded broker alone. Until SIGINT, SIGTERM or SIGHUP."""
    if click.get_current_context().invoked_subcommand is not None:
        if memory or conf or any(own.values()):
            raise CommandError("what stands before promote is for a broker that starts: name one with --name-server")
        return DONE
    from rocketapp.cli.logs import set_up_logging
    from rocketapp.cli.processes.broker import DRAIN_TIMEOUT, names_of, parse_listen, serve_broker
    from rocketapp.cli.processes.stop import ProcessStop
    from rocketapp.cli.settings import read_settings

    refuse_empty({**{_NAMES[parameter]: value for parameter, value in own.items()}, "--conf": conf})
    if own["dir"] and memory:
        raise CommandError("--dir and --memory exclude each other: leave one out")
    given = overrides_of(own).get("broker", {})
    said = _options_in(conf) if conf else {}
    settings = read_settings({"broker": {**said, **given}})
    names = names_of(settings, dir="--dir", listen="--listen", http="--http")
    parse_listen(settings.broker.listen, names["listen"], has_keys=settings.broker.authentication)
    set_up_logging(settings.app)
    stop = ProcessStop(DRAIN_TIMEOUT)

    async def serve() -> None:
        await serve_broker(settings, memory=memory, or_free_port=False, names=names, stop=stop, on_serving=_say_serving)

    stop.run(serve)
    return DONE


def _options_in(conf: str) -> dict[str, Any]:
    from rocketapp.config.properties import from_java

    try:
        return from_java(Path(conf).read_text("utf-8", "replace"), conf)
    except OSError as error:
        raise CommandError(f"--conf {conf}: {problem_of(error)}") from error


def _say_serving(address: str) -> None:
    say(f"serving on {address}", flush=True)


@command.command("promote", epilog="Example: rocketapp broker promote --timeout 600")
@click.option("--broker", metavar="NAME", help="The one whose slave takes its place. Default: the only one.")
@click.option("--timeout", type=Seconds(), default=180.0, show_default=True, help="Seconds to wait for the slave.")
@cluster_options
def promote_command(*, broker: str | None, timeout: float, as_json: bool) -> int:
    """Wait until a slave can take the broker's place. Shows the broker and its slaves, waits until the slave that is
    furthest has everything, and says how to let it take over. Changes nothing. Ends with 1 when there is no slave, or
    when the slave has other records than its master or lacks something when the time is over.
    """
    from dataclasses import asdict

    from rocketapp.admin.promotion import check_records, steps, survey
    from rocketapp.cli.cluster import ask_cluster

    async def work(cluster: AdminCluster) -> tuple[Fleet, list[str]]:
        fleet = await survey(cluster, broker)
        if not as_json:
            _say_fleet(fleet)
        if fleet.successor is None:
            return fleet, ["a slave: the name server knows none"]
        await check_records(cluster, fleet, fleet.successor)
        return fleet, await _wait(cluster, fleet, fleet.successor, timeout, tell=not as_json)

    fleet, lacks = ask_cluster(work)
    successor = fleet.successor
    to_do = [] if lacks or successor is None else steps(fleet, successor)
    if as_json:
        print_json({**asdict(fleet), "lacks": lacks, "steps": to_do})
    if lacks:
        who = fleet.broker if successor is None else f"after {timeout:g} s slave {successor.broker_id}"
        raise CommandError(f"{who} lacks {'; '.join(lacks)}", FAILED)
    if not as_json:
        say("It has everything. Now, in this order:")
        for number, step in enumerate(to_do, 1):
            say(f"{number}. {step}")
    return DONE


def _say_fleet(fleet: Fleet) -> None:
    say(f"master   {fleet.broker} at {fleet.address}, {fleet.role}, its log ends at {fleet.end}")
    for copy in fleet.slaves:
        source = copy.copies_from or "nobody"
        say(f"slave {copy.broker_id}  at {copy.address}, copies from {source}, its log ends at {copy.end}")


async def _wait(cluster: AdminCluster, fleet: Fleet, successor: Copy, timeout: float, *, tell: bool) -> list[str]:
    """What the slave lacks in the end. Says it whenever that changes."""
    import asyncio

    from rocketapp.admin.promotion import Watch

    loop, watch, told = asyncio.get_running_loop(), Watch(cluster, fleet, successor), list[str]()
    deadline = loop.time() + timeout
    while (lacks := await watch.look()) and loop.time() < deadline:
        if tell and lacks != told:
            say(f"slave {successor.broker_id} lacks {'; '.join(lacks)}", flush=True)
            told = lacks
        await asyncio.sleep(BETWEEN_LOOKS)
    return lacks
