"""An S3 server on loopback, with a bucket that is empty."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

BUCKET, KEY, SECRET, REGION = "lake", "key-of-tests", "secret-of-tests", "us-east-1"


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
            end = time.monotonic() + 100
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < end
            urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")).close()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
