"""The paths that a broker serves over HTTP."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal
from urllib.parse import parse_qs

from rocketapp.model.names import group_problem
from rocketapp.operate.broker_console import PROBED_WITHIN, BrokerConsole
from rocketapp.operate.http_messages import READ, Answer, Request, Response, html, outcome_of, refusal, text
from rocketapp.plugin import Metric
from rocketapp.plugins.prometheus import CONTENT_TYPE, text_of

Query = Mapping[str, str]
Kind = Literal["counter", "gauge"]
REPLAY_FIELDS: Final = ("group", "id", "token")
_MOST_FIELDS = 8


def answering(console: BrokerConsole) -> Answer:
    """What a server needs to answer for this broker."""
    return lambda request, host: answer(request, console, host)


def answer(request: Request, console: BrokerConsole, host: str) -> Response:
    """`host`: the name or address of `--http`, under which the page may be opened as well."""
    if refused := refusal(request, host, reads=_READS, changes={"/replay": None}):
        return refused
    try:
        if request.method not in READ:
            return _replay(console, request.form(REPLAY_FIELDS))
        found = parse_qs(request.query, max_num_fields=_MOST_FIELDS)
        return _READS[request.path](console, {name: values[0] for name, values in found.items()})
    except ValueError as error:
        return text(400, str(error))
    except TimeoutError:
        return text(503, "the event loop of the broker does not answer")


def _health(console: BrokerConsole, _query: Query) -> Response:
    console.state(PROBED_WITHIN)
    return text(200, "alive")


def _ready(console: BrokerConsole, _query: Query) -> Response:
    problem = console.state(PROBED_WITHIN).problem
    return text(503, f"not ready\n{problem}") if problem else text(200, "ready")


def _metrics(console: BrokerConsole, _query: Query) -> Response:
    return Response(status=200, body=text_of(_figures(console)).encode(), content_type=CONTENT_TYPE)


def _figures(console: BrokerConsole) -> Iterator[Metric]:
    state, disk, groups = console.state(), console.disk(), console.groups()

    def one(name: str, unit: str, meaning: str, value: float, kind: Kind = "gauge") -> Metric:
        return Metric(name=f"rocketapp.broker.{name}", kind=kind, unit=unit, meaning=meaning, samples=(({}, value),))

    yield one("ready", "1", "1 when messages are stored.", int(not state.problem))
    yield one("stored", "{message}", "Messages stored since the start.", state.stored, "counter")
    yield one("served", "{message}", "Messages given to consumers since the start.", state.served, "counter")
    yield one("log", "By", "Bytes of the log.", state.log_end - state.log_begin)
    yield one("log_unflushed", "By", "Bytes of the log that are not on disk yet.", state.log_end - state.durable_end)
    yield one("scrub_position", "By", "How far the log was read in search of damage.", state.scrub_position)
    yield one("damaged", "{message}", "Damaged messages that the search has found.", state.damaged, "counter")
    yield one("mended", "{entry}", "Entries of queues made again from the log.", state.mended, "counter")
    if state.slaves is not None:
        yield one("slaves", "{slave}", "Slaves that copy the log.", len(state.slaves))
        lacks = max((state.log_end - slave.confirmed for slave in state.slaves), default=0)
        yield one("slaves_behind", "By", "Bytes of the log that the slave furthest behind lacks.", lacks)
    if state.copies_from is not None:
        yield one("copies", "1", "1 while the log of the master is copied.", int(bool(state.copies_from)))
    if disk is not None:
        yield one("disk_free", "By", "Bytes that are free on its disk.", disk[0])
    yield one("topics", "{topic}", "Topics, the broker's own ones included.", state.topics)
    yield one("delayed", "{message}", "Messages whose delay is not over.", state.delayed)
    yield one("open_transactions", "{message}", "Messages of open transactions.", state.open_transactions)
    members = one("members", "{member}", "Members of a group.", 0)
    yield replace(members, samples=tuple(({"group": group.name}, group.members) for group in groups))
    dead = one("dead_letters", "{message}", "Dead letters of a group.", 0)
    yield replace(dead, samples=tuple(({"group": group.name}, group.dead_letters) for group in groups))
    lag = one("lag", "{message}", "Messages of a topic that a group has not committed.", 0)
    behind = (({"group": group.name, "topic": topic}, lag) for group in groups for topic, lag in group.lag.items())
    yield replace(lag, samples=tuple(behind))


def _replay(console: BrokerConsole, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.broker_page import outcome_page

    if not hmac.compare_digest(given["token"].encode(), console.token.encode()):
        return text(403, "the token is not of this process: load the page with the button again")
    if problem := group_problem(given["group"]):
        return text(400, problem)
    status, outcome = outcome_of(lambda: console.replay(given["group"], given["id"]))
    return html(outcome_page(console, given["group"], outcome), status)


def _shown(path: str, console: BrokerConsole, query: Query) -> Response:
    """Where probes and metrics alone are asked for, nothing of the pages is imported."""
    from rocketapp.operate.broker_page import page

    return html(page(path, console, query))


_PAGES: Final = (
    *("/", "/topics", "/topic", "/groups", "/group"),
    *("/messages", "/message", "/dead-letters", "/waiting"),
)
_READS: Final[Mapping[str, Callable[[BrokerConsole, Query], Response]]] = {
    **{path: partial(_shown, path) for path in _PAGES},
    "/health": _health,
    "/ready": _ready,
    "/metrics": _metrics,
}
