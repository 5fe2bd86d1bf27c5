"""A small text is read over HTTP within its bounds, whatever the other side does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from rocketapp.errors import TransportError
from rocketapp.transport.http_get import MOST_BYTES, read_url
from tests.unit.scripted import eventually, outcome

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


class Site:
    """Answers every request in the same way."""

    def __init__(self, answer: bytes, *, drips: bool = False, silent: bool = False) -> None:
        self._answer, self._drips, self._silent = answer, drips, silent
        self.asked: list[bytes] = []
        self.url = ""
        self.serving = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving += 1
        try:
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
            writer.write(self._answer)
            while self._drips:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
            if self._silent:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side has cut it
        finally:
            writer.transport.abort()
            self.serving -= 1


@contextlib.asynccontextmanager
async def serving(answer: bytes, *, drips: bool = False, silent: bool = False) -> AsyncIterator[Site]:
    site = Site(answer, drips=drips, silent=silent)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rocketmq/nsaddr?nofix=1"
    try:
        yield site
    finally:
        server.close()
        await eventually(lambda: not site.serving)


async def test_the_text_behind_a_url_is_read() -> None:
    text = "10.0.0.1:9876;größe:9876\n"
    async with serving(OK % (len(text.encode()), text.encode())) as site:
        assert await read_url(site.url, 3.0) == text
        assert site.asked == [b"GET /rocketmq/nsaddr?nofix=1 HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "answers 503 Service Unavailable"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "answers 302 Found"),
        (OK % (MOST_BYTES + 1, b"a" * (MOST_BYTES + 1)), f"answers more than {MOST_BYTES} bytes"),
        (OK % (1, b"\xff"), "answers what is not UTF-8"),
        (OK % (30, b"10.0.0.1:9876;10.0.0.2:98"), "ends 5 bytes early"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine"),
        (b"", "RemoteDisconnected|closed connection"),
    ],
)
async def test_another_answer_is_an_error_that_names_url_and_reason(answer: bytes, problem: str) -> None:
    async with serving(answer) as site:
        with pytest.raises(TransportError, match=problem) as raised:
            await read_url(site.url, 3.0)
        assert raised.value.address == site.url.partition("?")[0]


async def test_where_no_server_listens_the_reason_is_the_systems() -> None:
    async with serving(b"") as site:
        url = site.url
    assert "Connection refused" in str(await outcome(read_url(url, 3.0)))


@pytest.mark.parametrize(("drips", "silent"), [(True, False), (False, True)])
async def test_an_answer_that_never_ends_is_cut_and_leaves_no_thread(drips: bool, silent: bool) -> None:
    head = b"HTTP/1.0 200 OK\r\n\r\n" if drips else b""
    async with serving(head, drips=drips, silent=silent) as site:
        shown = site.url.partition("?")[0]
        assert f"{shown}: no answer within 0.2 s" in str(await outcome(read_url(site.url, 0.2)))
        name = f"read {shown}"
        await eventually(lambda: all(thread.name != name for thread in threading.enumerate()), 3.0)
