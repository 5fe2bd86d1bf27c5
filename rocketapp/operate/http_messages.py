"""Requests and responses of the operators' HTTP server, and which requests are refused. No socket.

Probes and metrics are answered to every client. The pages name handlers, failures and messages, so a browser gets them
only under a host name that no foreign page can have made for this address (DNS rebinding). Requests that change
something (pause, resume, replay, try) are accepted from this machine only, and never from a form of another site.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from rocketapp.errors import RocketAppError

TEXT: Final = "text/plain; charset=utf-8"
READ: Final = ("GET", "HEAD")
FOR_ALL: Final = frozenset({"/health", "/ready", "/metrics"})
"""Probes and metrics; the others name what is handled and what fails."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
"""A proxy on this machine passes on what comes from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. Header names are in lower case."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = "127.0.0.1"
    """The address that it comes from."""
    query: str = ""
    """What follows the path."""

    def form(self, fields: Sequence[str]) -> dict[str, str]:
        """The fields of its form: exactly these, each once. Raises ValueError that says which fields to send."""
        try:
            text = self.body.decode("ascii")
            given = parse_qs(text, keep_blank_values=True, strict_parsing=True, max_num_fields=len(fields))
            return {name: value for name in fields for (value,) in (given[name],)}
        except (ValueError, KeyError):
            raise ValueError(f"give {', '.join(f'{name}=' for name in fields)} as a form") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One HTTP response. No header contains text of a request."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Request, str], Response]
"""What a server asks: the second is the name or address of `--http`, under which the pages may be opened as well."""


def refusal(
    request: Request, host: str, *, reads: Mapping[str, object], changes: Mapping[str, object]
) -> Response | None:
    """Why this request is not answered; None when it is. `reads` and `changes`: the paths that there are."""
    may_change, is_read = request.path in changes, request.method in READ
    if may_change and not is_read:
        return _refused_change(request, host)
    if request.path not in reads:
        missing = text(404, f"there are {', '.join(reads)}")
        return text(405, "POST is needed", Allow="POST") if may_change else missing
    if not is_read:
        return text(405, "GET is needed", Allow="GET, HEAD")
    problem = "" if request.path in FOR_ALL else _strange_host(request, host)
    return text(403, problem) if problem else None


def _refused_change(request: Request, host: str) -> Response | None:
    if request.method != "POST":
        return text(405, "POST is needed", Allow="POST")
    problem = _strange_host(request, host, is_needed=True) or _strange_origin(request) or _strange_peer(request)
    return text(403, problem) if problem else None


def outcome_of(call: Callable[[], str]) -> tuple[int, str]:
    """HTTP status and text for what an operator asked for: 200 and the result, or an error status and the reason."""
    try:
        return 200, call()
    except RocketAppError as error:
        return 503, str(error)


def html(page: str, status: int = 200, *, policy: str = "") -> Response:
    """Where probes and metrics alone are asked for, nothing of the pages is imported. `policy`: of its contents; empty
    is that of the pages here.
    """
    from rocketapp.operate.html_parts import CONTENT_POLICY

    headers = {"Content-Security-Policy": policy or CONTENT_POLICY, "Referrer-Policy": "same-origin"}
    body = page.encode("utf-8", "replace")
    return Response(status=status, body=body, content_type="text/html; charset=utf-8", headers=headers)


def _strange_host(request: Request, host: str, *, is_needed: bool = False) -> str:
    """Why this Host header is refused: a foreign page may use a name that resolves to our address."""
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


def text(status: int, said: str, **headers: str) -> Response:
    """One line, or several, as plain text."""
    return Response(status=status, body=f"{said}\n".encode("utf-8", "replace"), headers=headers)
