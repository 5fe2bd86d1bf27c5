"""The transactional outbox: a message is written beside the effect, and sent when both are committed.

A relay in every process sends what is there. Messages with equal order keys are in one slot; a slot
belongs to one relay at a time, by a lease in the database, and is sent in the order of writing. A
process that dies leaves its slots to others when its leases end. Sending is at least once.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, Unpack

import msgspec
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from rocketapp.plugin import PluginError, Surface, Tasks, hookimpl
from rocketapp_sqlalchemy.database import Database
from rocketapp_sqlalchemy.relay import WRITTEN, Relay
from rocketapp_sqlalchemy.tables import OutboxMessage
from rocketapp_sqlalchemy.traces import context_of_writer

SLOTS: Final = 16
"""The most messages that are sent at one time, over all relays. A database keeps to the number it began with."""
OUTBOX_ID: Final = "outbox_id"
"""The property by which consumers tell a message that was sent twice."""


class OutboxOptions(TypedDict, total=False):
    """What `Outbox.publish` takes beside topic and body: the keywords of `RocketApp.publish`."""

    tag: str | None
    keys: list[str]
    properties: dict[str, str]
    order_key: str
    delay: float
    rounding: Literal["up"] | None
    content_type: str | None
    cluster: str


class Outbox:
    """Writes messages within a session's transaction, and sends them while the app runs.

    A plugin: `RocketApp(plugins=[database, outbox])`. An app that only writes leaves it out of its plugins;
    another app then sends.

    lease: seconds after which another relay sends the messages of one that died.
    interval: seconds between two looks at the table. What is committed in this process is sent at once.
    """

    def __init__(self, database: Database, *, lease: float = 15.0, interval: float = 1.0) -> None:
        if lease < 5.0:
            raise ValueError(f"Outbox(lease={lease}): give 5 seconds or more, a send may take 3")
        self._database, self._lease, self._interval = database, lease, interval
        self._tasks = Tasks()
        self._relay: Relay | None = None
        database.outbox = self.publish

    def __repr__(self) -> str:
        return f"<Outbox in {self._database!r}>"

    def publish(self, session: Session | AsyncSession, topic: str, body: Any, **options: Unpack[OutboxOptions]) -> None:
        """Send this message when the session's transaction is committed, and never when it is rolled back.

        body: what `RocketApp.publish` takes: encoded now, by the app that has the database among its plugins. Where no
        app runs: bytes, str (UTF-8), or a dict, list, msgspec Struct, dataclass or pydantic model (JSON).
        The options mean what they mean in `RocketApp.publish`. Messages of a topic with equal `order_key` are sent in
        the order of writing; let their transactions exclude each other, by a row that all of them change.

        The message carries the property `outbox_id`: a consumer with
        `idempotent=lambda message: message.properties["outbox_id"]` handles it once, although it may be sent twice.
        """
        unknown = set(options) - set(OutboxOptions.__annotations__)
        if unknown:
            raise TypeError(f"Outbox.publish takes no keyword {min(unknown)!r}")
        message_id = uuid.uuid4().hex
        encode = self._database.encode or _encode
        encoded, marks = encode(body, options.get("content_type"))
        stored = dict(options)
        given = options.get("properties", {})
        stored["properties"] = {**context_of_writer(), **marks, **given, OUTBOX_ID: message_id}
        row = OutboxMessage()
        row.slot = zlib.crc32((options.get("order_key") or message_id).encode()) % SLOTS
        row.topic, row.body, row.options = topic, encoded, stored
        session.add(row)
        relay = self._relay
        if relay is not None:
            sync_session = session.sync_session if isinstance(session, AsyncSession) else session
            sync_session.info[WRITTEN] = True
            if not event.contains(sync_session, "after_commit", relay.committed):
                event.listen(sync_session, "after_commit", relay.committed)

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        if self._database.encode is None:  # it makes the tables, and bodies as the app does
            raise PluginError(repr(self), "needs its database in front of it: RocketApp(plugins=[database, outbox])")
        self._relay = Relay(self._database.run, app.publish, slots=SLOTS, lease=self._lease, interval=self._interval)
        await self._relay.prepare()
        self._tasks.start(self._relay.run(), "outbox relay")

    @hookimpl
    async def app_shutdown(self) -> None:
        await self._tasks.close()
        if self._relay is not None:
            await self._relay.leave()
            self._relay = None


def _encode(body: Any, content_type: str | None) -> tuple[bytes, Mapping[str, str]]:
    """Without an app: JSON, text and bytes."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), {}
    if isinstance(body, str):
        return body.encode(), {}
    if content_type is not None:
        raise ValueError(f"content_type={content_type!r}: codecs are an app's, and none runs here: give bytes")
    plain = body.model_dump(mode="json") if hasattr(body, "model_dump") else msgspec.to_builtins(body)
    # JSON has neither infinity nor "not a number".
    return json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode(), {}
