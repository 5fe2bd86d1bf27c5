"""The transactional outbox: a message is written beside the effect, and sent when both are committed.

A relay in every process sends what is there. Messages with equal order keys are in one slot; a slot
belongs to one relay at a time, by a lease in the database, and is sent in the order of writing. A
process that dies leaves its slots to others when its leases end. Sending is at least once.
"""

from __future__ import annotations

import uuid
import zlib
from typing import Any, Final, Literal, TypedDict, Unpack

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from rocketapp import RocketApp, Topic
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

    A plugin: `RocketApp(plugins=[database, outbox])`. It writes wherever this app is imported, and sends while the app
    runs. An outbox that is no app's writes bytes and str, which some other app sends.

    lease: seconds after which another relay sends the messages of one that died.
    interval: seconds between two looks at the table. What is committed in this process is sent at once.
    """

    def __init__(self, database: Database, *, lease: float = 15.0, interval: float = 1.0) -> None:
        if lease < 5.0:
            raise ValueError(f"Outbox(lease={lease}): give 5 seconds or more, a send may take 3")
        self._database, self._lease, self._interval = database, lease, interval
        self._tasks = Tasks()
        self._relay: Relay | None = None
        self._app: RocketApp | None = None

    def __repr__(self) -> str:
        return f"<Outbox in {self._database!r}>"

    def publish(
        self, session: Session | AsyncSession, topic: str | Topic[Any], body: Any, **options: Unpack[OutboxOptions]
    ) -> None:
        """Send this message when the session's transaction is committed, and never when it is rolled back.

        body: what `RocketApp.publish` takes. It is encoded now, as the app that has this outbox among its plugins
        declares it; the app need not run. Without an app: bytes and str.
        The options mean what they mean in `RocketApp.publish`. What that refuses is refused now: TypeError, ValueError,
        SendRefused, or SetupError for a cluster that the app does not name. Messages of a topic with equal `order_key`
        are sent in the order of writing; let their transactions exclude each other, by a row that all of them change.

        The message carries the property `outbox_id`: a consumer with
        `idempotent=lambda message: message.properties["outbox_id"]` handles it once, although it may be sent twice.
        """
        session.add(self.message(topic, body, **options))
        relay = self._relay
        if relay is not None:
            sync_session = session.sync_session if isinstance(session, AsyncSession) else session
            sync_session.info[WRITTEN] = True
            if not event.contains(sync_session, "after_commit", relay.committed):
                event.listen(sync_session, "after_commit", relay.committed)

    def message(self, topic: str | Topic[Any], body: Any, **options: Unpack[OutboxOptions]) -> OutboxMessage:
        """The row that `publish` adds to the session, with its `slot`, `topic`, `body` and `options`.

        For what writes to the table `rocketapp_outbox` without SQLAlchemy, such as another ORM in its own transaction.
        It is sent within `interval` seconds of the commit.
        """
        unknown = set(options) - set(OutboxOptions.__annotations__)
        if unknown:
            raise TypeError(f"Outbox.publish takes no keyword {min(unknown)!r}")
        app = self._app
        if app is None:
            if not isinstance(body, bytes | str):
                mend = "give bytes or str, or give the outbox to an app: RocketApp(plugins=[database, outbox])"
                raise TypeError(f"a body of type {type(body).__qualname__}, for an outbox of no app: {mend}")
            app = RocketApp("outbox")  # checks what it is given
        message, message_id = app.outgoing(topic, body, **options), uuid.uuid4().hex
        properties = {**context_of_writer(), **message.properties, OUTBOX_ID: message_id}
        row = OutboxMessage()
        row.slot = zlib.crc32((message.order_key or message_id).encode()) % SLOTS
        row.topic, row.body = message.topic, message.body
        row.options = {**options, "cluster": message.cluster, "keys": list(message.keys), "properties": properties}
        return row

    @hookimpl
    def app_made(self, app: RocketApp) -> None:
        if self._app is not None:
            problem = f"is among the plugins of app {self._app.name!r} already: give each app one of its own"
            raise PluginError(repr(self), problem)
        self._app = app

    @hookimpl
    def app_setup(self) -> None:
        self._database.outbox = self.publish  # for what this app's handlers publish in their transactions

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        if not self._database.serves(app):  # it makes the tables
            raise PluginError(repr(self), "needs its database in front of it: RocketApp(plugins=[database, outbox])")
        if not app.snapshot().client_ids:
            return  # where a handler is tried nothing is sent: what is written waits for an app that runs
        self._relay = Relay(self._database.run, app.publish, slots=SLOTS, lease=self._lease, interval=self._interval)
        await self._relay.prepare()
        self._tasks.start(self._relay.run(), "outbox relay")

    @hookimpl
    async def app_shutdown(self) -> None:
        await self._tasks.close()
        if self._relay is not None:
            await self._relay.leave()
            self._relay = None
