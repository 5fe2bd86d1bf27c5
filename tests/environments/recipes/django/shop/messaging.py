"""What connects Django's transactions with rocketapp."""

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.db import close_old_connections, transaction
from sqlalchemy import URL, create_engine

from rocketapp import Message, Skip
from rocketapp.plugin import Subscription, Wrapper, hookimpl, keys_of
from rocketapp_sqlalchemy import Database, Outbox

from .models import Mark, Outgoing

_default = settings.DATABASES["default"]
_url = URL.create(
    "postgresql+psycopg",
    _default["USER"],
    _default["PASSWORD"] or None,
    database=_default["NAME"],
    query={"host": _default["HOST"]},
)
database = Database(create_engine(_url))  # the relay's own connections
outbox = Outbox(database)


def publish(topic: str, body: Any, **options: Any) -> None:
    """Send this message when Django's current transaction is committed, and never when it is rolled back."""
    row = outbox.message(topic, body, **options)
    Outgoing.objects.create(slot=row.slot, topic=row.topic, body=row.body, options=row.options)


class DjangoTransactions:
    """Every handler is one transaction: effect, mark and outgoing messages are committed together or not at all."""

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        of_outbox, of_others = (
            keys_of(subscription, lambda message: message.properties["outbox_id"]),
            keys_of(subscription),
        )

        def key_of(message: Message) -> str:
            """The same for all copies: what an outbox sends twice has two message ids."""
            return (of_outbox if "outbox_id" in message.properties else of_others)(message)

        def around(call: Callable[[Message], Any]) -> Callable[[Message], Any]:
            def once(message: Message) -> Any:
                close_old_connections()
                try:
                    with transaction.atomic():
                        # A copy that comes meanwhile waits here, in the database, for the first one.
                        if not Mark.objects.get_or_create(key=key_of(message))[1]:
                            return Skip("handled before")
                        result = call(message)
                        if isinstance(result, Exception):  # an outcome that was returned rolls back like a raised one
                            raise result
                        return result
                finally:
                    close_old_connections()

            return once

        return Wrapper(layer="database", for_sync=around, write=self._write)

    def _write(self, topic: str, body: Any, options: Mapping[str, Any]) -> None:
        publish(topic, body, **options)  # what a handler with @app.publishes returns
