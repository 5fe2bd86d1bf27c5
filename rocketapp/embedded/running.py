"""`broker.json`: the address of the embedded broker that serves a directory.

Written atomically by the process itself when it serves, and removed when it stops. After a kill the file stays, so a
reader checks that process and port exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

FILE = "broker.json"
PROBE_TIMEOUT = 2.0
"""Seconds that connecting to a broker on the same machine may take."""


class ServingBroker(msgspec.Struct, frozen=True):
    """The content of the file."""

    address: str
    pid: int


def write_running(directory: Path, address: str) -> None:
    """Write that this process serves the directory at this address."""
    unfinished = directory / f".{FILE}.{os.getpid()}"
    unfinished.write_bytes(msgspec.json.encode(ServingBroker(address, os.getpid())) + b"\n")
    unfinished.replace(directory / FILE)


def remove_running(directory: Path) -> None:
    """Remove the file if it is ours."""
    running = read_running(directory)
    if running is not None and running.pid == os.getpid():
        with contextlib.suppress(FileNotFoundError):
            (directory / FILE).unlink()


def read_running(directory: Path) -> ServingBroker | None:
    """The content of the file; None when it is missing or unreadable."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=ServingBroker)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


async def find_serving(directory: Path) -> ServingBroker | None:
    """The broker of this directory if it really serves: its process lives and its port answers."""
    running = read_running(directory)
    if running is None or not is_alive(running.pid):
        return None
    host, _, port = running.address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), PROBE_TIMEOUT)
    except (OSError, ValueError, TimeoutError):
        return None
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return running
