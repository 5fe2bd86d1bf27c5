"""Whether anybody listens where telemetry goes: asked when an app stops, so that it waits for no dead collector."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

PATIENCE = 1.0
"""Seconds in which a collector accepts a connection."""


def is_reachable(url: str) -> bool:
    """Connects, and sends nothing; blocks for a second at most, and longer where names are looked up slowly.

    True where a proxy stands between: what is behind it is not seen from here.
    """
    from urllib.request import getproxies, proxy_bypass  # it brings HTTP and mail, and is needed at a stop only

    parts = urlsplit(url)
    host = parts.hostname or "localhost"
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return True
    try:
        with socket.create_connection((host, parts.port or (443 if parts.scheme == "https" else 80)), PATIENCE):
            return True
    except OSError:
        return False
