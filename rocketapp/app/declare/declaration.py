"""One `@subscribe(...)`, as written: checked on its own, not yet completed by the app.

What one declaration can say wrongly is found here, at the decorator, with its line.
Contradictions between declarations are found in `registry`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NoReturn

from rocketapp.app.places import is_async, place_of_function
from rocketapp.errors import SetupError
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, group_problem, topic_problem
from rocketapp.model.subscription import Start, parse_tags

MAX_BATCH = 65_535
"""The most unfinished messages that one queue may have (ConsumerConfig.queue_max_messages)."""
MAX_CONCURRENCY, MAX_THREADS = 65_535, 1000


class UnlessSetInt(int):
    """A default of the signature that settings may still change; a number written down stays."""


DEFAULT_RETRIES = UnlessSetInt(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The arguments of one `subscribe`, its function, and where both stand."""

    function: Callable[..., Any]
    place: str
    names: Mapping[str, Any]
    """Local names at the decorator, for string annotations."""
    topic: str
    tags: str
    group: str | None
    orderly: bool
    batch: int | None
    batch_wait: float
    concurrency: int | None
    retries: int
    start: Start
    timeout: float | None
    cluster: str | None
    enabled: bool

    def check(self) -> None:
        """Raises SetupError when this declaration is wrong by itself."""
        self._check_names()
        self._check_kinds()
        try:
            parse_tags(self.tags)
        except ValueError as error:
            self.refuse(str(error))
        self._check_batch()
        self._check_numbers()
        self._check_start()

    def within(self, *, prefix: str, group: str | None, cluster: str | None) -> Declaration:
        """The same inside a router. RocketMQ's own topics (`%DLQ%...`) are named by groups and get no prefix."""
        own = not isinstance(self.topic, str) or self.topic.startswith((DLQ_PREFIX, RETRY_PREFIX))
        return replace(
            self,
            topic=self.topic if own else prefix + self.topic,
            group=group if self.group is None else self.group,
            cluster=cluster if self.cluster is None else self.cluster,
        )

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, problem)

    def refuse_function(self, problem: str) -> NoReturn:
        raise SetupError(place_of_function(self.function, self.place), problem)

    def _check_names(self) -> None:
        for name, value, problem_of in (("topic", self.topic, topic_problem), ("group", self.group, group_problem)):
            if value is None and name == "group":
                continue
            if not isinstance(value, str):
                self.refuse(f"{name}={value!r} is not a name: give a string")
            problem = problem_of(value)
            if problem is not None:
                self.refuse(problem)
        if self.topic in (DLQ_PREFIX, RETRY_PREFIX):
            self.refuse(f"topic {self.topic!r} lacks the group's name behind it")

    def _check_kinds(self) -> None:
        for name in ("orderly", "enabled"):
            if not isinstance(getattr(self, name), bool):
                self.refuse(f"{name}={getattr(self, name)!r}: give True or False")
        if not isinstance(self.tags, str):
            self.refuse(f"tags={self.tags!r}: give one string, several tags separated by ||")
        if self.cluster is not None and not isinstance(self.cluster, str):
            self.refuse(f"cluster={self.cluster!r} is not a name: give a string")

    def _check_batch(self) -> None:
        if self.batch is not None:
            self._check_whole("batch", self.batch, least=1, most=MAX_BATCH)
        elif self.batch_wait != 0.1:
            self.refuse(f"batch_wait={self.batch_wait!r} means nothing without batch=: add it, or remove batch_wait")
        if not _is_number(self.batch_wait) or not 0 <= self.batch_wait < math.inf:
            self.refuse(f"batch_wait={self.batch_wait!r}: give seconds, 0 or more")

    def _check_numbers(self) -> None:
        runs_on_loop = is_async(self.function)
        if self.concurrency is not None:
            kind = "async" if runs_on_loop else "sync"
            self._check_whole(
                "concurrency", self.concurrency, least=1, most=MAX_CONCURRENCY if runs_on_loop else MAX_THREADS, of=kind
            )
        self._check_whole("retries", self.retries, least=-1, most=2**31 - 1)
        if self.timeout is None:
            return
        if not _is_number(self.timeout) or not 0 < self.timeout < math.inf:
            self.refuse(f"timeout={self.timeout!r}: give seconds, more than 0")
        if not runs_on_loop:
            self.refuse_function(
                f"timeout={self.timeout!r} needs an async handler: nothing can stop a sync function in its thread; "
                "make it `async def`, or remove timeout="
            )

    def _check_whole(self, name: str, value: object, *, least: int, most: int, of: str = "") -> None:
        handler = f" for a {of} handler" if of == "sync" else f" for an {of} handler" if of else ""
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"{name}={value!r}: give a whole number from {least} to {most}{handler}")
        if not least <= value <= most:
            self.refuse(f"{name}={value!r} is out of bounds: from {least} to {most}{handler}")

    def _check_start(self) -> None:
        if isinstance(self.start, datetime):
            if self.start.utcoffset() is None:
                self.refuse(f"start={self.start!r} has no time zone: add one, such as tzinfo=datetime.UTC")
        elif self.start not in ("first", "last"):
            self.refuse(f'start={self.start!r}: give "first", "last" or an aware datetime')


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
