"""Name servers whose addresses are read from a URL, and read again every two minutes. Java: TopAddressing.

A look that fails changes nothing: the last addresses stay. An address that stays keeps its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple
from urllib.parse import urlsplit

from rocketapp.client.name_servers import parse_name_servers
from rocketapp.errors import ConfigError, RocketAppError, TransportError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.transport.stream import join_address
from rocketapp.transport.web import ReadUrl, shown_url

INTERVAL, JITTER = 120.0, 0.1
"""Seconds between two looks (Java: 2 minutes), and the part of it by which they differ: processes that started together
do not ask together."""
_PORTS = {"http": 80, "https": 443}


class AddressServerUrl(NamedTuple):
    """Where addresses of name servers are read."""

    text: str
    """All of it, which may hold a token: for the request alone, not to be shown."""
    scheme: str
    address: str
    """`host:port` of the server."""
    path: str


def address_server(text: str) -> AddressServerUrl | None:
    """The URL that stands in place of addresses; None for addresses. Raises ConfigError for an illegal URL."""
    text = text.strip()
    if "://" not in text:
        return None
    shown = repr(shown_url(text))
    if "@" in text.partition("?")[0]:
        raise ConfigError("name server", f"{shown}: leave user and password out of the URL: they are not sent")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError("name server", f"{shown} cannot be read as a URL: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or ";" in text or any(map(str.isspace, text)):
        raise ConfigError("name server", f"{shown}: write a URL of http or https, or host:port[;host:port]")
    if parts.path in ("", "/"):
        problem = "is a URL: write host:port, or the URL of an address server with its path (/rocketmq/nsaddr)"
        raise ConfigError("name server", f"{shown} {problem}")
    return AddressServerUrl(text, parts.scheme, join_address(parts.hostname, port or _PORTS[parts.scheme]), parts.path)


class AddressServer:
    """Keeps the addresses of a cluster's name servers up to date."""

    def __init__(
        self,
        url: AddressServerUrl,
        *,
        read: ReadUrl,
        adopt: Callable[[Sequence[str]], Awaitable[None]],
        timeout: float,
        random: Random,
        observe: Observe,
    ) -> None:
        """`adopt` receives the addresses after each look; `timeout`: seconds that one look may take."""
        self._url, self._read, self._adopt = url, read, adopt
        self._timeout, self._random, self._observe = timeout, random, observe

    def __repr__(self) -> str:
        return f"<AddressServer {shown_url(self._url.text)}>"

    async def look(self) -> None:
        """Read the addresses and adopt them. Raises TransportError without an answer, and for one without addresses."""
        await self._adopt(self._parsed(await self._read(self._url.text, self._timeout)))

    async def run(self) -> None:
        """Look every two minutes, until cancelled. Errors do not end the loop; one that stays is told once."""
        told = ""
        while True:
            await asyncio.sleep(INTERVAL * (1 + JITTER * (2 * self._random.random() - 1)))
            problem = ""
            try:
                await self.look()
            except RocketAppError as error:
                problem = str(error)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != told:
                self._observe(LoopFailed("address server", problem))
            told = problem

    def _parsed(self, text: str) -> list[str]:
        # The first line alone, as Java reads it.
        line = (text.strip().splitlines() or [""])[0]
        try:
            addresses = parse_name_servers(line)
        except ConfigError as error:
            raise TransportError(shown_url(self._url.text), f"names no name servers: {error.problem}") from None
        if not addresses:
            raise TransportError(shown_url(self._url.text), "names no name servers: its first line is empty")
        return addresses
