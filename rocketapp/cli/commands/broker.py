"""`rocketapp broker`: the embedded broker alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rocketapp.cli.failure import DONE, CommandError, problem_of
from rocketapp.cli.options import overrides_of, refuse_empty
from rocketapp.cli.output import say

_NAMES = {"dir": "--dir", "listen": "--listen", "broker_http": "--http", "register": "--register"}
"""The command's own options, by their parameters."""


@click.command(
    "broker", short_help="Run the embedded broker alone.", epilog="Example: rocketapp broker --listen 127.0.0.1:9876"
)
@click.option("--dir", metavar="DIR", help="Directory of the store; default .rocketapp.")
@click.option("--memory", is_flag=True, help="Keep everything in memory; nothing is left at the end.")
@click.option("--listen", metavar="H:P", help="Address to serve on; default 127.0.0.1:9876, port 0 takes a free one.")
@click.option("--http", "broker_http", metavar="H:P", help="Serve /health, /ready, /metrics and a page there.")
@click.option("--register", metavar="H:P[;H:P]", help="Register with these name servers of Apache RocketMQ too.")
@click.option("-c", "--conf", metavar="FILE", help="Options by Apache RocketMQ's names, as in its broker.conf.")
def command(memory: bool, conf: str | None, **own: str | None) -> int:
    """Run the embedded broker alone, until SIGINT, SIGTERM or SIGHUP."""
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
    from rocketapp.errors import ConfigError

    try:
        return from_java(Path(conf).read_text("utf-8", "replace"), conf)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"--conf {conf}: {problem_of(error)}") from error


def _say_serving(address: str) -> None:
    say(f"serving on {address}", flush=True)
