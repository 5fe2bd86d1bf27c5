"""Message context in every line that a handler logs, whatever logger it uses.

Nothing stands in front of a handler unless this is on: `app.log_context`, or without it `app.log_format = "json"`.
"""

from __future__ import annotations

import logging

from rocketapp.plugin import AppConfig, Subscription, Surface, Wrapper, hookimpl
from rocketapp.plugins import current_message


def is_on(config: AppConfig) -> bool:
    """Whether lines of handlers carry their message."""
    return config.log_format == "json" if config.log_context is None else config.log_context


class LogContext:
    """Adds the facts of the current message to every log record of a call."""

    def __init__(self) -> None:
        self._is_on = False

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self._is_on = is_on(app.options(AppConfig))

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        return current_message.wrapper(subscription) if self._is_on else None


_ATTRIBUTES = ("topic", "group", "handler", "message_id", "attempt", "trace_id")


class MessageFilter(logging.Filter):
    """Adds the context of the current message to every record: put it on a `logging.Handler`, not on a logger.

    The facts are members of `record.fields`, where rocketapp's formatters find them (fields of the call itself win),
    and attributes of the record for formats of your own, such as `%(message_id)s`: empty outside of handlers.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: no line is left out."""
        current = current_message.CURRENT.get()
        found = current_message.fields_of(current) if current is not None and current[3] else {}
        known = record.__dict__
        if found:
            own = known.get("fields")
            known["fields"] = {**found, **own} if isinstance(own, dict) else found
        for name in _ATTRIBUTES:
            if name not in known:
                known[name] = found.get(name, "")
        return True
