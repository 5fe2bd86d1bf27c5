"""The paths that a running app serves over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from rocketapp.clock import SystemClock
from rocketapp.errors import RocketAppError
from rocketapp.operate.app_console import AppConsole
from rocketapp.operate.app_state import snapshots_of
from rocketapp.operate.health import MOST, check_health
from rocketapp.operate.http_messages import READ, Answer, Request, Response, html, outcome_of, refusal, text
from rocketapp.plugin import Metric
from rocketapp.plugins.prometheus import CONTENT_TYPE, exposition


def answering(console: AppConsole) -> Answer:
    """What a server needs to answer for this app."""
    return lambda request, host: answer(request, console, host)


def answer(request: Request, console: AppConsole, host: str) -> Response:
    """`host`: the name or address of `--http`, under which the page may be opened as well."""
    if refused := refusal(request, host, reads=_READS, changes=_CHANGES):
        return refused
    if request.method in READ:
        return _READS[request.path](console)
    fields, do = _CHANGES[request.path]
    try:
        given = request.form(fields)
    except ValueError as error:
        return text(400, str(error))
    return do(console, given)


def _health(console: AppConsole) -> Response:
    health = check_health(console.state())
    if health.is_alive:
        return text(200, "alive")
    return text(503, "\n".join(["the event loop does not run", *(one.text for one in health.findings[:MOST])]))


def _ready(console: AppConsole) -> Response:
    health = check_health(console.state())
    lines = ["ready" if health.is_ready else "not ready", *(one.text for one in health.findings[:MOST])]
    if len(health.findings) > MOST:
        lines.append(f"and {len(health.findings) - MOST} more")
    return text(200 if health.is_ready else 503, "\n".join(lines))


def _metrics(console: AppConsole) -> Response:
    state = console.state()
    app = state.counted
    blocked = sum(one.blocked is not None for one in state.processes)
    own = (
        _gauge("ready", "1", "1 when /ready says so.", check_health(state).is_ready),
        _gauge("processes", "{process}", "Processes of the app that consume.", len(snapshots_of(state.processes))),
        _gauge("loops_blocked", "{process}", "Processes whose event loop does not run.", blocked),
    )
    figures = exposition(replace(app, metrics=(*app.metrics, *own)), state.counts)
    return Response(status=200, body=figures.encode(), content_type=CONTENT_TYPE)


def _gauge(name: str, unit: str, meaning: str, value: int) -> Metric:
    return Metric(name=f"rocketapp.{name}", kind="gauge", unit=unit, meaning=meaning, samples=(({}, int(value)),))


def _page(console: AppConsole) -> Response:
    """Where probes and metrics alone are asked for, nothing of the pages is imported."""
    from rocketapp.operate.app_page import page

    state = console.state()
    return html(page(state, check_health(state), SystemClock().now()))


def _try_page(console: AppConsole) -> Response:
    from rocketapp.operate.app_page import page_of_try

    state = console.state()
    return html(page_of_try(state, {})) if state.may_try else text(403, _NO_TRY)


def _doctor(console: AppConsole) -> Response:
    import msgspec

    state = console.state()
    health = check_health(state)
    said = {"app": state.app, "ready": health.is_ready, "findings": health.findings[:MOST]}
    return Response(status=200, body=msgspec.json.encode(said), content_type="application/json")


def _docs(console: AppConsole) -> Response:
    """What the app receives and sends, for people; nothing of it is imported before it is asked for."""
    described = _asyncapi(console)
    if described.status != 200:
        return described
    import msgspec

    from rocketapp.asyncapi.page import CONTENT_POLICY as OF_DOCS
    from rocketapp.asyncapi.page import page_of

    return html(page_of(msgspec.json.decode(described.body)), policy=OF_DOCS)


def _asyncapi(console: AppConsole) -> Response:
    try:
        return Response(status=200, body=console.describe(), content_type="application/json")
    except RocketAppError as error:
        return text(503, str(error))


_READS: Final[Mapping[str, Callable[[AppConsole], Response]]] = {
    "/": _page,
    "/try": _try_page,
    "/health": _health,
    "/ready": _ready,
    "/metrics": _metrics,
    "/doctor": _doctor,
    "/docs": _docs,
    "/asyncapi.json": _asyncapi,
}


def _switch(call: Literal["pause", "resume"], console: AppConsole, given: Mapping[str, str]) -> Response:
    try:
        console.change(call, given["topic"], given["group"])
    except RocketAppError as error:
        return text(404, str(error))
    return text(303, "done", Location="/")


def _replay(console: AppConsole, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.app_page import page_of_outcome

    status, outcome = outcome_of(lambda: console.replay(given["group"], given["id"]))
    return html(page_of_outcome(console.state(), "Replay of a dead letter", outcome), status)


def _try(console: AppConsole, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.app_page import page_of_try

    if not console.state().may_try:
        return text(403, _NO_TRY)
    status, outcome = outcome_of(lambda: console.try_handler(given["handler"], given["body"], given["tag"]))
    return html(page_of_try(console.state(), given, outcome), status)


_NO_TRY: Final = "handlers are tried in the environment development only"
_CHANGES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[AppConsole, Mapping[str, str]], Response]]]] = {
    "/pause": (("topic", "group"), partial(_switch, "pause")),
    "/resume": (("topic", "group"), partial(_switch, "resume")),
    "/replay": (("group", "id"), _replay),
    "/try": (("handler", "tag", "body"), _try),
}
"""What a form must have, and what it does."""
