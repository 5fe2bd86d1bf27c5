"""What a handler returns answers the request that it handles."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from rocketapp.app.places import plain_function
from rocketapp.app.publish.publishing import Publishing
from rocketapp.errors import SendRefused, SendUnknown, named_message
from rocketapp.model.outcome import is_outcome

Call = Callable[[Any], Any]
log: logging.Logger = logging.getLogger("rocketapp.handlers")
_MARK = b"REPLY_TO_CLIENT\x01"
"""In the properties of every request."""


def answers(function: Callable[..., Any]) -> bool:
    """Whether what it returns is meant for those who ask: it says what that is."""
    try:
        said = inspect.signature(plain_function(function)).return_annotation
    except (TypeError, ValueError):
        return False
    return said not in (inspect.Signature.empty, None, "None", type(None), NoReturn, "NoReturn")


def answering(call: Call, publishing: Publishing, *, is_async: bool) -> Call:
    """Reply with what `call` returns when its message is a request. None and outcomes do not answer.

    A reply that does not arrive is logged: the message is handled, and the one that asked may be gone.
    """

    async def one_async(message: Any) -> Any:
        value = await call(message)
        if value is None or _MARK not in message.raw_properties or is_outcome(value):
            return value
        try:
            await publishing.reply(message, value)
        except (SendRefused, SendUnknown) as error:
            _tell(message, error)
        return None

    def one(message: Any) -> Any:
        value = call(message)
        if value is None or _MARK not in message.raw_properties or is_outcome(value):
            return value
        try:
            publishing.reply_sync(message, value)
        except (SendRefused, SendUnknown) as error:
            _tell(message, error)
        return None

    return one_async if is_async else one


def _tell(request: Any, error: Exception) -> None:
    named = named_message(request.message_id, request.keys)
    log.warning("no reply to the request %s in %s, which is done all the same: %s", named, request.topic, error)
