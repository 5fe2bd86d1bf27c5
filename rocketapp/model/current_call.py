"""The call that the running code belongs to: what it publishes through the app follows that message.

A worker sets the variable once, when it begins, and it is read when something is published, so it costs nothing per
message. Tasks and threads that a handler starts inherit it. One that outlives its handler sees the worker's later
calls; a Publisher keeps its message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from rocketapp.model.subscription import Subscription

CurrentCall = Callable[[], tuple[Subscription, Any] | None]
"""Returns the subscription whose handler is called, and its Message or list of them; None between two calls."""

CURRENT_CALL: ContextVar[CurrentCall | None] = ContextVar("rocketapp.current_call", default=None)
