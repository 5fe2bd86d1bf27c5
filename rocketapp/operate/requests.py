"""What is asked over HTTP, what is answered, and what is refused: without a socket.

Probes and metrics are answered to all that can connect. The page and its state name handlers and failures, so a browser
gets them only under a name that no stranger's page can have made for this address. What changes something (to pause,
resume, replay, try) is for this machine alone, and never for a form of another site.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import parse_qs

from rocketapp.clock import SystemClock
from rocketapp.errors import RocketAppError
from rocketapp.operate.desk import Desk
from rocketapp.operate.verdict import MOST, judge
from rocketapp.operate.view import snapshots_of
from rocketapp.plugin import Metric
from rocketapp.plugins.prometheus import CONTENT_TYPE, exposition

TEXT: Final = "text/plain; charset=utf-8"
_READ = ("GET", "HEAD")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""A proxy on this machine passes on what comes from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Names of headers are in lower case."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = "127.0.0.1"
    """The address that it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One answer. Nothing of a request is in its headers."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(request: Request, desk: Desk, host: str) -> Response:
    """`host`: the name or address of `--http`, under which the page may be opened as well."""
    if request.path in _CHANGES and request.method not in _READ:
        return _change(request, desk, host)
    read = _READS.get(request.path)
    if read is None:
        if request.path in _CHANGES:
            return _text(405, "POST is needed", Allow="POST")
        return _text(404, f"there are {', '.join(_READS)}")
    if request.method not in _READ:
        return _text(405, "GET is needed", Allow="GET, HEAD")
    if request.path not in _FOR_ALL and (problem := _strange_host(request, host)):
        return _text(403, problem)
    return read(desk)


def _health(desk: Desk) -> Response:
    verdict = judge(desk.now())
    if verdict.is_alive:
        return _text(200, "alive")
    return _text(503, "\n".join(["the event loop does not run", *(one.text for one in verdict.findings[:MOST])]))


def _ready(desk: Desk) -> Response:
    verdict = judge(desk.now())
    lines = ["ready" if verdict.is_ready else "not ready", *(one.text for one in verdict.findings[:MOST])]
    if len(verdict.findings) > MOST:
        lines.append(f"and {len(verdict.findings) - MOST} more")
    return _text(200 if verdict.is_ready else 503, "\n".join(lines))


def _metrics(desk: Desk) -> Response:
    now = desk.now()
    app = now.counted
    blocked = sum(one.blocked is not None for one in now.processes)
    own = (
        _gauge("ready", "1", "1 when /ready says so.", judge(now).is_ready),
        _gauge("processes", "{process}", "Processes of the app that consume.", len(snapshots_of(now.processes))),
        _gauge("loops_blocked", "{process}", "Processes whose event loop does not run.", blocked),
    )
    text = exposition(replace(app, metrics=(*app.metrics, *own)), now.counts)
    return Response(status=200, body=text.encode(), content_type=CONTENT_TYPE)


def _gauge(name: str, unit: str, meaning: str, value: int) -> Metric:
    return Metric(name=f"rocketapp.{name}", kind="gauge", unit=unit, meaning=meaning, samples=(({}, int(value)),))


def _page(desk: Desk) -> Response:
    """Where probes and metrics alone are asked for, nothing of the pages is imported."""
    from rocketapp.operate.page import page

    now = desk.now()
    return _html(page(now, judge(now), SystemClock().now()))


def _try_page(desk: Desk) -> Response:
    from rocketapp.operate.page import page_of_try

    now = desk.now()
    return _html(page_of_try(now, {})) if now.may_try else _text(403, _NO_TRY)


def _html(text: str, status: int = 200) -> Response:
    from rocketapp.operate.page import CONTENT_POLICY

    headers = {"Content-Security-Policy": CONTENT_POLICY, "Referrer-Policy": "same-origin"}
    body = text.encode("utf-8", "replace")
    return Response(status=status, body=body, content_type="text/html; charset=utf-8", headers=headers)


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

    body = page_of(msgspec.json.decode(described.body)).encode()
    headers = {"Content-Security-Policy": OF_DOCS}
    return Response(status=200, body=body, content_type="text/html; charset=utf-8", headers=headers)


def _asyncapi(desk: Desk) -> Response:
    try:
        return Response(status=200, body=desk.describe(), content_type="application/json")
    except RocketAppError as error:
        return _text(503, str(error))


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
_FOR_ALL: Final = frozenset({"/health", "/ready", "/metrics"})
"""Probes and metrics; the others name handlers and failures."""


def _change(request: Request, desk: Desk, host: str) -> Response:
    if request.method != "POST":
        return _text(405, "POST is needed", Allow="POST")
    problem = _strange_host(request, host, is_needed=True) or _strange_origin(request) or _strange_peer(request)
    if problem:
        return _text(403, problem)
    fields, do = _CHANGES[request.path]
    try:
        given = parse_qs(
            request.body.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=len(fields)
        )
        values = {name: value for name in fields for (value,) in (given[name],)}
    except (ValueError, KeyError):
        return _text(400, f"give {', '.join(f'{name}=' for name in fields)} as a form")
    return do(desk, values)


def _pause(desk: Desk, given: Mapping[str, str]) -> Response:
    return _switch(desk, "pause", given)


def _resume(desk: Desk, given: Mapping[str, str]) -> Response:
    return _switch(desk, "resume", given)


def _switch(desk: Desk, call: Literal["pause", "resume"], given: Mapping[str, str]) -> Response:
    try:
        desk.change(call, given["topic"], given["group"])
    except RocketAppError as error:
        return _text(404, str(error))
    return _text(303, "done", Location="/")


def _replay(desk: Desk, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.page import page_of_outcome

    try:
        status, text = 200, desk.replay(given["group"], given["id"])
    except RocketAppError as error:
        status, text = 503, str(error)
    return _html(page_of_outcome(desk.now(), "Replay of a dead letter", text), status)


def _try(desk: Desk, given: Mapping[str, str]) -> Response:
    from rocketapp.operate.page import page_of_try

    if not desk.now().may_try:
        return _text(403, _NO_TRY)
    handler, _, topic = given["handler"].rpartition(" ")
    try:
        status, text = 200, desk.try_handler(handler, topic, given["body"], given["tag"])
    except RocketAppError as error:
        status, text = 503, str(error)
    return _html(page_of_try(desk.now(), given, text), status)


_NO_TRY: Final = "handlers are tried in the environment development only"
_CHANGES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Desk, Mapping[str, str]], Response]]]] = {
    "/pause": (("topic", "group"), _pause),
    "/resume": (("topic", "group"), _resume),
    "/replay": (("group", "id"), _replay),
    "/try": (("handler", "tag", "body"), _try),
}
"""What a form must have, and what it does."""


def _strange_host(request: Request, host: str, *, is_needed: bool = False) -> str:
    """Why this name is refused: a page of a stranger may have a name that leads to our address."""
    name = request.headers.get("host", "")
    if not name:
        return "the header Host is missing" if is_needed else ""
    bare = name.rpartition(":")[0] if not name.endswith("]") and ":" in name else name
    bare = bare.strip("[]").lower().rstrip(".")
    if bare in ("localhost", host.lower()) or bare.endswith(".localhost") or _is_address(bare):
        return ""
    return "open it by its IP address, as localhost, or by the name that is given to --http"


def _strange_origin(request: Request) -> str:
    headers = request.headers
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None:
        return "" if origin in (f"http://{host}", f"https://{host}") else "this form is not of this page"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "this form is not of this page"
    return ""


def _strange_peer(request: Request) -> str:
    address = ipaddress.ip_address(request.peer.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    if (mapped or address).is_loopback and not any(name in request.headers for name in _FORWARDED):
        return ""
    return "buttons work from this machine only: forward the port to it (ssh -L, kubectl port-forward)"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _text(status: int, text: str, **headers: str) -> Response:
    return Response(status=status, body=f"{text}\n".encode("utf-8", "replace"), headers=headers)
