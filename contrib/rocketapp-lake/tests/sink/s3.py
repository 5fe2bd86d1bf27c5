"""An S3 server on loopback, with a bucket that is empty."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

BUCKET, KEY, SECRET, REGION = "lake", "key-of-tests", "secret-of-tests", "us-east-1"


@contextmanager
def serving() -> Iterator[str]:
    """Within: its address."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        for path, method in (("moto-api/reset", "POST"), (BUCKET, "PUT")):
            urlopen(Request(f"{address}/{path}", method=method)).close()
        yield address
    finally:
        server.stop()
