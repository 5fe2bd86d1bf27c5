"""What the code that runs now is handling: what it publishes by the app follows that message.

A worker sets the variable once, when it begins, and is asked when something is published: so it costs nothing per
message. Tasks and threads that a handler starts inherit it. One that outlives its handler finds what the worker
handles by then: a Publisher knows its message for good.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from rocketapp.model.subscription import Subscription

CurrentCall = Callable[[], tuple[Subscription, Any] | None]
"""Whose handler is called, and with what: a Message, or a list of them; None between two calls."""

CURRENT_CALL: ContextVar[CurrentCall | None] = ContextVar("rocketapp.current_call", default=None)
