"""broker.json: written whole, believed only when its process lives and answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from rocketapp.embedded.running import (
    ServingBroker,
    find_serving,
    is_alive,
    read_running,
    remove_running,
    write_running,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_running(tmp_path, "127.0.0.1:4711")
    assert read_running(tmp_path) == ServingBroker("127.0.0.1:4711", os.getpid())
    assert [path.name for path in tmp_path.iterdir()] == ["broker.json"]


def test_only_its_writer_removes_it(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text('{"address": "127.0.0.1:4711", "pid": 1}')
    remove_running(tmp_path)
    assert read_running(tmp_path) == ServingBroker("127.0.0.1:4711", 1)
    write_running(tmp_path, "127.0.0.1:4711")
    remove_running(tmp_path)
    assert read_running(tmp_path) is None


def test_rubbish_is_no_broker(tmp_path: Path) -> None:
    for text in ("", "[]", '{"address": 1}', "{", '{"address": "x", "pid": "y"}'):
        (tmp_path / "broker.json").write_text(text)
        assert read_running(tmp_path) is None


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_a_broker_that_was_killed_is_not_found(tmp_path: Path) -> None:
    """The port may have been taken by anybody since."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "broker.json").write_text(f'{{"address": "127.0.0.1:{port}", "pid": {ended_process()}}}')
    assert await find_serving(tmp_path) is None
    server.close()
    await server.wait_closed()


async def test_a_process_that_does_not_serve_is_not_found(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    write_running(tmp_path, f"127.0.0.1:{port}")
    assert await find_serving(tmp_path) == ServingBroker(f"127.0.0.1:{port}", os.getpid())
    server.close()
    await server.wait_closed()
    assert await find_serving(tmp_path) is None


async def test_what_is_not_an_address_is_not_found(tmp_path: Path) -> None:
    write_running(tmp_path, "nowhere")
    assert await find_serving(tmp_path) is None


def test_processes_of_others_are_alive_too() -> None:
    assert is_alive(1)
    assert is_alive(os.getpid())
    assert not is_alive(ended_process())
