"""How `rocketapp doctor` asks a running app for its findings, over HTTP."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

import msgspec

from rocketapp.operate.health import Finding
from rocketapp.operate.server import parse_address

TIMEOUT = 5.0
"""Seconds that an app on the same machine, or near it, may take."""
_MOST_BYTES = 4 * 1024 * 1024
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """The answer of a running app to `/doctor`."""

    app: str
    ready: bool
    findings: tuple[Finding, ...]


def ask(address: str) -> DoctorAnswer:
    """Raises ValueError for what is not an address and for an answer that no app gives, OSError when none comes."""
    host, port = parse_address(address)
    host = _EVERYWHERE.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/doctor")
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
    except http.client.HTTPException as error:
        raise ValueError(f"what answers is not an app with --http ({type(error).__name__})") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ValueError(f"what answers is not an app with --http (status {response.status})")
    try:
        return msgspec.json.decode(body, type=DoctorAnswer)
    except msgspec.DecodeError as error:
        raise ValueError("what answers is not an app with --http") from error
