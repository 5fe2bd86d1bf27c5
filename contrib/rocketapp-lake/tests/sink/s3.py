"""An S3 server on loopback, with a bucket that is empty."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.request import Request, urlopen

from tests.peers.waiting import wait_until

BUCKET, KEY, SECRET, REGION = "lake", "key-of-tests", "secret-of-tests", "us-east-1"


def storage(endpoint: str) -> dict[str, str]:
    """The options by which Delta's library reaches it."""
    return {
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true",
        "aws_region": REGION,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
    }


def as_setting(options: Mapping[str, str]) -> str:
    """The variable ROCKETAPP_LAKE__STORAGE with them."""
    return "[" + ", ".join(f"'{name}={value}'" for name, value in options.items()) + "]"


@contextmanager
def serving() -> Iterator[str]:
    """Within: its address.

    It is a process of its own: Delta's library waits for answers without giving this one a chance to give them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: _accepts(server, port), within=20, what="the S3 server accepts connections")
            urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")).close()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _accepts(server: subprocess.Popen[bytes], port: int) -> bool:
    assert server.poll() is None
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0
