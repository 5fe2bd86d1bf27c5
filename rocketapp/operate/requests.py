"""What a running app answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from rocketapp.clock import SystemClock
from rocketapp.errors import RocketAppError
from rocketapp.operate.desk import Desk
from rocketapp.operate.gate import READ, Answer, Request, Response, html, outcome_of, refusal, text
from rocketapp.operate.verdict import MOST, judge
from rocketapp.operate.view import snapshots_of
from rocketapp.plugin import Metric
from rocketapp.plugins.prometheus import CONTENT_TYPE, exposition


def answering(desk: Desk) -> Answer:
    """What a server needs to answer for this app."""
    return lambda request, host: answer(request, desk, host)


def answer(request: Request, desk: Desk, host: str) -> Response:
    """`host`: the name or address of `--http`, under which the page may be opened as well."""
    if refused := refusal(request, host, reads=_READS, changes=_CHANGES):
        return refused
    if request.method in READ:
        return _READS[request.path](desk)
    fields, do = _CHANGES[request.path]
    try:
        given = request.form(fields)
    except ValueError as error:
        return text(400, str(error))
    return do(desk, given)


def _health(desk: Desk) -> Response:
    verdict = judge(desk.now())
    if verdict.is_alive:
        return text(200, "alive")
    return text(503, "\n".join(["the event loop does not run", *(one.text for one in verdict.findings[:MOST])]))


def _ready(desk: Desk) -> Response:
    verdict = judge(desk.now())
    lines = ["ready" if verdict.is_ready else "not ready", *(one.text for one in verdict.findings[:MOST])]
    if len(verdict.findings) > MOST:
        lines.append(f"and {len(verdict.findings) - MOST} more")
    return text(200 if verdict.is_ready else 503, "\n".join(lines))


def _metrics(desk: Desk) -> Response:
    now = desk.now()
    app = now.counted
    blocked = sum(one.blocked is not None for one in now.processes)
    own = (
        _gauge("ready", "1", "1 when /ready says so.", judge(now).is_ready),
        _gauge("processes", "{process}", "Processes of the app that consume.", len(snapshots_of(now.processes))),
        _gauge("loops_blocked", "{process}", "Processes whose event loop does not run.", blocked),
    )
    figures = exposition(replace(app, metrics=(*app.metrics, *own)), now.counts)
    return Response(status=200, body=figures.encode(), content_type=CONTENT_TYPE)


def _gauge(name: str, unit: str, meaning: str, value: int) -> Metric:
    return Metric(name=f"rocketapp.{name}", kind="gauge", unit=unit, meaning=meaning, samples=(({}, int(value)),))


def _page(desk: Desk) -> Response:
    """Where probes and metrics alone are asked for, nothing of the pages is imported."""
    from rocketapp.operate.page import page

    now = desk.now()
    return html(page(now, judge(now), SystemClock().now()))


def _try_page(desk: Desk) -> Response:
    from rocketapp.operate.page import page_of_try

    now = desk.now()
    return html(page_of_try(now, {})) if now.may_try else text(403, _NO_TRY)


def _doctor(desk: Desk) -> Response:
    import msgspec

    now = desk.now()
    verdict = judge(now)
    said = {"app": now.app, "ready": verdict.is_ready, "findings": verdict.findings[:MOST]}
    return Response(status=200, body=msgspec.json.encode(said), content_type="application/json")


def _docs(desk: Desk) -> Response:
    """What the app receives and sends, for people; nothing of it is imported before it is asked for."""
    described = _asyncapi(desk)
    if described.status != 200:
        return described
    import msgspec

    from rocketapp.asyncapi.page import CONTENT_POLICY as OF_DOCS
    from rocketapp.asyncapi.page import page_of

    return html(page_of(msgspec.json.decode(described.body)), policy=OF_DOCS)


def _asyncapi(desk: Desk) -> Response:
    try:
        return Response(status=200, body=desk.describe(), content_type="application/json")
    except RocketAppError as error:
        return text(503, str(error))


_READS: Final[Mapping[str, Callable[[Desk], Response]]] = {
    "/": _page,
    "/try": _try_page,
    "/health": _health,
    "/ready": _ready,
    "/metrics": _metrics,
    "/doctor": _doctor,
    "/docs": _docs,
    "/asyncapi.json": _asyncapi,
}


def _switch(call: Literal["pause", "resume"], desk: Desk, given: Mapping[str, str]) -> Response:
    try:
        desk.change(call, given["topic"], given["group"])
    except RocketAppError as error:
        return text(404, str(error))
    return text(303, "done", Location="/")


def _replay(desk: Desk, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.page import page_of_outcome

    status, outcome = outcome_of(lambda: desk.replay(given["group"], given["id"]))
    return html(page_of_outcome(desk.now(), "Replay of a dead letter", outcome), status)


def _try(desk: Desk, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.page import page_of_try

    if not desk.now().may_try:
        return text(403, _NO_TRY)
    status, outcome = outcome_of(lambda: desk.try_handler(given["handler"], given["body"], given["tag"]))
    return html(page_of_try(desk.now(), given, outcome), status)


_NO_TRY: Final = "handlers are tried in the environment development only"
_CHANGES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Desk, Mapping[str, str]], Response]]]] = {
    "/pause": (("topic", "group"), partial(_switch, "pause")),
    "/resume": (("topic", "group"), partial(_switch, "resume")),
    "/replay": (("group", "id"), _replay),
    "/try": (("handler", "tag", "body"), _try),
}
"""What a form must have, and what it does."""
