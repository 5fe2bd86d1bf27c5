"""`poll`, for RocketApp and Router alike: what is written goes to `_take`, as from `subscribe`."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from rocketapp.app.declare.calling import called_as
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.options import POLLED, PollOptions, options_given
from rocketapp.app.declare.transacting import Transacting
from rocketapp.app.places import place_at, place_of_call
from rocketapp.errors import SetupError
from rocketapp.model.topic import Topic
from rocketapp.user_line import calling_frame

F = TypeVar("F", bound=Callable[..., Any])


class Polling(Transacting):
    """Where polled handlers are declared."""

    @called_as('poll takes a topic, and keywords: write @app.poll("the-topic", every=5.0)')
    def poll(self, topic: str | Topic[Any], *, every: float, **options: Unpack[PollOptions]) -> Callable[[F], F]:
        """Have a function called for each queue of a topic at its times: it pulls what it wants.

        `async def work(pull: Pull)` awaits `pull(32)`, a plain `def work(pull: SyncPull)` runs in a thread. Each queue
        that this member has gets its own calls, one after the other; never two at a time, in the whole group. When
        the function returns, what it has pulled is committed. When it raises, nothing of it is, and the next call
        gets the same messages: there is neither a retry topic nor a dead letter. Skip, raised or returned, commits;
        Retry(after=) sets the next time; Stop pauses the topic. Beside the pull it may take a Publisher and what a
        container provides.

        topic: its name; behind the router's prefix, if any. Or a Topic.
        every: seconds from the start of one call for a queue to the start of the next, more than 0. A call that takes
            longer is followed at once. `pull.next_in(seconds)` sets another time.
        tags, sql, group, cluster, start, broadcast, enabled: as in `subscribe`.
        concurrency: queues for which the function runs at once in this process: `consumer.concurrency` (64) for an
            async function, `consumer.threads` (20) for a sync one.
        timeout: seconds that one call of an async function may take; None is without a limit.

        What is left out comes from the innermost Router that says it, then from the app, then from the settings.
        Middlewares and exception handlers see single messages or batches, as do most wrappers of plugins: they do not
        stand around a polled function. Traces, metrics and the log context do. Raises SetupError for a topic that the
        group takes with `subscribe`, too.
        """
        name = topic.name if isinstance(topic, Topic) else topic
        if callable(name):
            raise SetupError(place_of_call(), 'poll needs a topic: write @app.poll("the-topic", every=5.0)')
        frame = calling_frame(sys._getframe())
        place, names = place_at(frame), dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}
        given = {**options_given("poll", options, POLLED, place), "every": every}

        def decorate(function: F) -> F:
            kind = topic.kind if isinstance(topic, Topic) else None
            self._take(Declaration(function=function, place=place, names=names, topic=name, kind=kind, options=given))
            return function

        return decorate

    @abstractmethod
    def _take(self, declaration: Declaration) -> None:
        """Accept one declaration, or raise SetupError."""
