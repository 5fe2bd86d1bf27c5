"""A handler that commits by hand: its rollback is the outcome of its call, as the code around it sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketapp.consumer.items import first_of
from rocketapp.model.decisions import Decisions
from rocketapp.model.outcome import Retry, is_outcome


def decided(call: Callable[[Any], Any], decisions: Decisions, *, is_async: bool) -> Callable[[Any], Any]:
    """`call`, which returns the Retry of its rollback; an outcome of its own comes first."""

    def outcome(item: Any, result: Any) -> Any:
        decision = decisions.look(first_of(item).queue)
        return decision if isinstance(decision, Retry) and not is_outcome(result) else result

    async def on_loop(item: Any) -> Any:
        return outcome(item, await call(item))

    def in_thread(item: Any) -> Any:
        return outcome(item, call(item))

    return on_loop if is_async else in_thread
