"""The log: one line per retry, dead letter, state change and reason for standing still. Written as a plugin.

Handled messages are a count every 10 seconds; each gets its own line only at DEBUG, through a wrapper that does not
exist otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rocketapp.plugin import Subscription, Surface, Wrapper, events, hookimpl
from rocketapp.plugins import current_message
from rocketapp.plugins.log_lines import QUEUE_TOPIC, Line, line_of, queues_text

COUNT_INTERVAL: Final = 10.0
"""Seconds between two lines with counts of handled messages."""

messages: logging.Logger = logging.getLogger("rocketapp.messages")
states: logging.Logger = logging.getLogger("rocketapp.states")


@hookimpl
def observe_events(app: Surface) -> events.Observe:
    """Log events, and counts every 10 seconds and at the end."""
    log = EventLog()
    app.every(COUNT_INTERVAL, log.tell_counts)
    return log.observe


@hookimpl
def handler_wrapper(subscription: Subscription) -> Wrapper | None:
    """Logs each handled message, if DEBUG is on."""
    if not messages.isEnabledFor(logging.DEBUG):
        return None
    return current_message.around(lambda handed: handed, partial(_tell_call, subscription))


class EventLog:
    """Turns the events of one app into log lines and counts."""

    def __init__(self, later: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._handled: Counter[tuple[str, str]] = Counter()
        self._unmatched: Counter[str] = Counter()
        self._moved: dict[tuple[type[events.Event], str, str, str], list[events.Assigned | events.Released]] = {}
        self._told: dict[Line, bool] = {}
        self._traced: set[tuple[object, ...]] = set()
        self._later = later or (lambda call: asyncio.get_running_loop().call_soon(call))

    def observe(self, event: events.Event) -> None:
        """One event; cheap for counts."""
        if isinstance(event, events.Handled):
            self._handled[event.handler, event.topic] += event.count
        elif isinstance(event, events.Unmatched):
            self._unmatched[event.topic] += event.count
        elif isinstance(event, events.Assigned | events.Released):
            self._remember_move(event)
        else:
            self._tell_moves()
            self._tell(line_of(event), self._traceback_of(event))

    def tell_counts(self) -> None:
        """Log the messages handled since the last such line, if any."""
        self._tell_moves()
        if self._handled:
            total = self._handled.total()
            each = ", ".join(f"{handler} {count}" for (handler, _), count in self._handled.most_common())
            fields = {"handled": total, "by_handler": [[*names, count] for names, count in self._handled.items()]}
            messages.info("handled %d: %s", total, each, extra={"fields": fields})
            self._handled.clear()
        if self._unmatched:
            each = ", ".join(f"{topic} {count}" for topic, count in self._unmatched.most_common())
            fields = {"unmatched": self._unmatched.total()}
            messages.warning("no handler wanted %d: %s", self._unmatched.total(), each, extra={"fields": fields})
            self._unmatched.clear()
        # A failure that came again since the last count stays told; one that ceased may be told anew.
        self._told = {line: False for line, again in self._told.items() if again}
        self._traced.clear()

    def _traceback_of(self, event: events.Event) -> BaseException | None:
        """The traceback of a dead letter's last attempt, unless an equal one was just logged."""
        if not isinstance(event, events.DeadLettered | events.Dropped) or event.error is None:
            return None
        raised_at = [line for _, line in traceback.walk_tb(event.error.__traceback__)]
        like = (event.handler, type(event.error), *raised_at)
        if like in self._traced:
            return None
        self._traced.add(like)
        return event.error

    def _tell(self, line: Line, error: BaseException | None = None) -> None:
        """Log a line, unless the same background failure was just logged and goes on."""
        if line.repeats:
            known = line in self._told
            self._told[line] = True
            if known:
                return
        logger = messages if line.is_about_message else states
        logger.log(line.level, "%s", line.text, extra={"fields": line.fields}, exc_info=error)

    def _remember_move(self, event: events.Assigned | events.Released) -> None:
        """Collect assigned and released queues: a rebalance is one line per topic and broker."""
        if not self._moved:
            self._later(self._tell_moves)
        reason = event.reason if isinstance(event, events.Released) else ""
        topic = QUEUE_TOPIC.format(topic=event.queue.topic, broker=event.queue.broker_name)
        self._moved.setdefault((type(event), event.group, topic, reason), []).append(event)

    def _tell_moves(self) -> None:
        moved, self._moved = self._moved, {}
        for (kind, group, topic, reason), same in moved.items():
            text = queues_text(kind, group, topic, reason, same)
            fields = {"group": group, "queues": [str(event.queue) for event in same]}
            states.info("%s", text, extra={"fields": fields})


def _tell_call(subscription: Subscription, handed: Any, result: object, error: BaseException | None) -> None:
    """A line for each message of one call, with what became of it."""
    if error is not None and not isinstance(error, Exception):
        return
    for message in handed if subscription.batch is not None else (handed,):
        fields = {"topic": message.topic, "message_id": message.message_id, "attempt": message.attempt}
        outcome = _outcome(error or result)
        messages.debug("%s took %r: %s", subscription.handler_name, message, outcome, extra={"fields": fields})


def _outcome(outcome: object) -> str:
    if isinstance(outcome, type) and issubclass(outcome, Exception):
        return outcome.__name__  # `return Retry` means what `return Retry()` does
    return f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else "done"
