"""`rocketapp.Client`: publish, ask and read without an app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Any, Final, Self, Unpack

from rocketapp.app.places import place_of_call
from rocketapp.app.publishing import Publisher, Publishing, running_loop, through
from rocketapp.app.settings import Settings, check_tables
from rocketapp.app.sources import settings_in_code
from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import trace_topic_of
from rocketapp.clock import SystemClock
from rocketapp.errors import SetupError
from rocketapp.hooks.hook_types import PublishCall
from rocketapp.producer.producer import Producer
from rocketapp.scripts.following import Following, Reading, Wanted
from rocketapp.scripts.reading import AsMember, ReadOptions, log, tell, wanted_of
from rocketapp.tasks import scope
from rocketapp.transport.http_get import shown_url
from rocketapp.transport.tcp import dial_tcp
from rocketapp.wire.record import Message

_ONE_CLUSTER: Final = "a Client talks to one cluster: leave it out"
GROUP: Final = "rocketapp_client"
"""The producer group of clients, unless the settings name one."""


class Client(Publisher):
    """Talks to one cluster, inside `async with`. It has no handlers. It publishes as RocketApp does.

    name_server: `host:port`, several separated by `;`; or the URL of an address server that names them.
    settings: options by table, `{"producer": {"send_timeout": 5}}`; no file and no variable is read.

    Entering raises TransportError when no name server answers, ConfigError for settings that are wrong and
    for keys that the cluster refuses.
    """

    def __init__(self, name_server: str, *, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        place = place_of_call()
        if not isinstance(name_server, str) or not name_server.strip():
            raise SetupError(place, f'Client({name_server!r}): give the name server, Client("host:port")')
        tables: Mapping[str, Mapping[str, Any]] = {} if settings is None else settings
        check_tables(tables, place)
        given = dict(tables)
        given["client"] = {**given.get("client", {}), "name_server": name_server}
        self._shown = shown_url(name_server)
        self._settings = settings_in_code(given, place)
        self._run: _Run | None = None
        self._publishing = Publishing(self._must_run)

    def __repr__(self) -> str:
        return f"<Client of {self._shown}, {'connected' if self._run is not None else 'not connected'}>"

    async def __aenter__(self) -> Self:
        if self._run is not None:
            raise SetupError(place_of_call(), f"{self!r} is entered already: make another one")
        run = _Run(self._settings)
        await run.start()
        self._run = run
        return self

    async def __aexit__(self, *_: object) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        async with scope(run.stop()) as (stopping,):
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                # Each step of a stop has its limit; what a step left out would go on for ever, as heartbeats do.
                await asyncio.wait({stopping})
                raise

    def _through(self) -> Publishing:
        return self._publishing

    async def messages(self, topic: str, **options: Unpack[ReadOptions]) -> AsyncGenerator[Message, None]:
        """Every message of a topic as it comes, of all its queues: `async for message in client.messages("orders")`.

        Each queue's messages come in its order. A topic that does not exist yet is waited for.
        tags: `["paid", "refunded"]` or `"paid || refunded"`; `"*"` (default) is all of them.
        start: "first"; "last" (default), what is stored after brokers have said where their queues end, a moment behind
            the first question for a message; or an aware datetime, what was stored at that time or later. In a group it
            is for queues of which the group has no offset.
        idle: ends when no message came for this many seconds; None (default) goes on for ever.
        group: read as a member of this consumer group, which shares the queues among its members. A message is done,
            and its offset is committed, when the loop asks for the next one. The message at which a loop is left
            comes again. None (default): no group takes part, and nothing is committed.
        """
        reading = await self._read(topic, options, place_of_call())
        try:
            while batch := await reading.next():
                for message in batch:
                    yield message
        finally:
            await self._end(reading)

    async def _read(self, topic: str, options: ReadOptions, place: str) -> Reading:
        """Begin to read. Raises SetupError for arguments that `messages` does not take."""
        run, wanted = self._must_run(), wanted_of(topic, options, place)
        reading = run.reading(wanted)
        run.readings[reading] = wanted.group
        try:
            await reading.start()
        except BaseException:
            del run.readings[reading]
            raise
        return reading

    async def _end(self, reading: Reading) -> None:
        await reading.stop()
        if self._run is not None:
            self._run.readings.pop(reading, None)

    def _must_run(self) -> _Run:
        run = self._entered()
        if running_loop() not in (None, run.loop):
            mend = "make one for each event loop and process, or a SyncClient, which threads may share"
            raise SetupError(place_of_call(), f"{self!r}: it belongs to the event loop in which it was entered: {mend}")
        return run

    def _entered(self) -> _Run:
        if self._run is None:
            raise SetupError(place_of_call(), f"{self!r}: write `async with {type(self).__name__}(...) as client:`")
        return self._run


class _Run:
    """A connected client."""

    def __init__(self, settings: Settings) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.send_timeout: float = settings.producer.send_timeout
        self.random: Random = Random()
        self.readings: dict[Reading, str | None] = {}
        """Those that have begun, with their groups: a loop that was left ends when Python gets to it, or with the
        client."""
        self._settings = settings
        self._clock = clock = SystemClock()
        self.client: ClientInstance = ClientInstance(
            config=settings.client, dial=dial_tcp, clock=clock, random=self.random, observe=tell
        )
        self._producer = Producer(
            client=self.client,
            config=settings.producer,
            group=settings.producer.group or GROUP,
            clock=clock,
            random=self.random,
            max_inflated_bytes=settings.client.max_inflated_bytes,
            trace_topic=trace_topic_of(settings.client),
        )
        self.send: PublishCall = through(self.producer)

    async def start(self) -> None:
        """Raises what stopped it; then nothing is left running."""
        try:
            await self.client.start()
            if self._settings.client.access_key:
                await self.client.check_keys()
            await self._producer.start()
        except BaseException:
            await self.client.stop()
            raise

    async def stop(self) -> None:
        await asyncio.gather(*(reading.stop() for reading in self.readings))
        await self._producer.stop()
        await self.client.stop()

    def reading(self, wanted: Wanted) -> Reading:
        """Raises SetupError for a group that this client reads in already: a member subscribes once."""
        if wanted.group is None:
            return Following(self.client, self._settings, wanted, observe=tell, say=log.warning)
        if wanted.group in self.readings.values():
            raise SetupError(
                wanted.place, f"messages: this client is in group {wanted.group} already: make another one"
            )
        return AsMember(
            self.client, self._producer, self._settings, wanted, wanted.group, clock=self._clock, random=self.random
        )

    def producer(self, cluster: str) -> Producer:
        """Raises SetupError for any other cluster than this one, which has no name."""
        if cluster:
            raise SetupError("", f"cluster={cluster!r}: {_ONE_CLUSTER}")
        return self._producer
