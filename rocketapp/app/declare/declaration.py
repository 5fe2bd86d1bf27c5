"""One `@subscribe(...)`, as written: checked on its own, not yet completed by the app.

What one declaration can say wrongly is found here, at the decorator, with its line; what a Router or an app says
wrongly for its handlers, at theirs. Contradictions between declarations are found in `registry`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

from rocketapp.app.call.chain import Around
from rocketapp.app.call.returned import Publication
from rocketapp.app.declare.options import POLLED, Inherited
from rocketapp.app.places import is_async, is_generator, name_of_function, place_of_function, takes
from rocketapp.errors import SetupError
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, group_problem, topic_problem
from rocketapp.model.numbers import is_number, is_whole
from rocketapp.model.policy import Policy
from rocketapp.model.subscription import parse_tags

MAX_BATCH = 65_535
"""The most unfinished messages that one queue may have (ConsumerConfig.queue_max_messages)."""
MAX_CONCURRENCY, MAX_THREADS = 65_535, 1000
_MOST = sys.float_info.max
"""A larger whole number cannot be made a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The arguments of one `subscribe`, its function, and where both stand."""

    function: Callable[..., Any]
    place: str
    names: Mapping[str, Any]
    """Local names at the decorator, for string annotations."""
    topic: str
    kind: Any = None
    """The payload's type, when the topic is a Topic."""
    options: Mapping[str, Any]
    """By the names of SubscribeOptions; what is absent is inherited, at last from settings."""
    origins: Mapping[str, Inherited] = field(default_factory=dict)
    """The options that came from a Router or an app."""
    around: tuple[Around, ...] = ()
    """What its routers and its app put around it, innermost first."""
    publication: Publication | None = None
    """What becomes of the value that it returns."""

    def check(self) -> None:
        """Raises SetupError when this declaration is wrong by itself."""
        problem = _topic_problem(self.topic)
        if problem is not None:
            self.refuse(problem)
        for name, value in self.options.items():
            problem = option_problem(name, value, runs_on_loop=is_async(self.function))
            if problem is not None:
                self.refuse(f"{problem}{self._from(name)}")
        self._check_batch()
        self._check_order()
        self._check_filter()
        self._check_broadcast()
        self._check_pop()
        self._check_timeout()

    def within(self, inherited: Inherited, around: Around, *, prefix: str = "") -> Declaration:
        """The same inside a Router or an app: what is absent here comes from there.

        RocketMQ's own topics (`%DLQ%...`) are named by groups and get no prefix, a Topic is named in full.
        """
        own = (
            self.kind is not None
            or not isinstance(self.topic, str)
            or self.topic.startswith((DLQ_PREFIX, RETRY_PREFIX))
        )
        new = {name: value for name, value in inherited.options.items() if name not in self.options}
        if self.is_polled:
            new = {name: value for name, value in new.items() if name in POLLED}
        return replace(
            self,
            topic=self.topic if own else prefix + self.topic,
            options={**self.options, **new},
            origins={**self.origins, **dict.fromkeys(new, inherited)},
            around=(*self.around, around),
            publication=None if self.publication is None else self.publication.within(prefix),
        )

    @property
    def is_polled(self) -> bool:
        """It was declared by `poll`."""
        return "every" in self.options

    @property
    def enabled(self) -> bool:
        return bool(self.options.get("enabled", True))

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, problem)

    def refuse_function(self, problem: str) -> NoReturn:
        raise SetupError(place_of_function(self.function, self.place), problem)

    def said_by(self, name: str) -> str:
        """Where an option was said: `handler`, or the Router or app that it is inherited from; empty for none."""
        if name not in self.options:
            return ""
        origin = self.origins.get(name)
        return "handler" if origin is None else f"{origin.what} at {origin.place}"

    def _from(self, name: str) -> str:
        origin = self.origins.get(name)
        return "" if origin is None else f" (from the {origin.what} at {origin.place})"

    def _check_batch(self) -> None:
        if self.publication is not None and self.options.get("batch") is not None:
            raise SetupError(
                self.publication.place,
                "publishes: a batch= handler returns outcomes: ask for a Publisher, or remove batch=",
            )
        if self.options.get("batch") is None and "batch_wait" in self.options:
            wait = self.options["batch_wait"]
            self.refuse(f"batch_wait={wait!r} means nothing without batch=: add it, or remove batch_wait")

    def _check_order(self) -> None:
        if self.options.get("order_by") is None:
            return
        if self.options.get("orderly") and "orderly" not in self.origins:
            self.refuse("order_by= keeps the order of each key, orderly=True that of the queue: remove one of them")
        if self.options.get("batch") is not None:
            self.refuse("order_by= handles the messages of a key one by one: remove batch=, or order_by=")

    def _check_filter(self) -> None:
        if "sql" in self.options and "tags" in self.options:
            self.refuse("sql= and tags= exclude each other: name the tag in the SQL as TAGS, or remove one of them")

    def _check_broadcast(self) -> None:
        if not self.options.get("broadcast"):
            return
        if self.options.get("idempotent"):
            mend = "give this handler idempotent=False" if "idempotent" in self.origins else "remove one of them"
            why = "every member handles every message, and idempotent= lets one of them do it"
            self.refuse(f"broadcast=True{self._from('broadcast')}: {why}{self._from('idempotent')}: {mend}")
        is_in_order = self.options.get("orderly") or self.options.get("order_by") is not None
        if "retries" in self.options and "retries" not in self.origins and self.options["retries"] and not is_in_order:
            why = "a message that fails is dropped, since a copy that is sent back would come to every member"
            self.refuse(f"broadcast=True{self._from('broadcast')}: {why}: remove retries=, or add orderly=True")
        policy = self.options.get("retry")
        if policy is not None and policy.delays and "retry" not in self.origins and not is_in_order:
            why = "a message that fails is dropped at once"
            self.refuse(f"broadcast=True{self._from('broadcast')}: {why}: remove the delays of retry=")

    def _check_pop(self) -> None:
        if self.options.get("mode") != "pop":
            return
        reasons = {
            "orderly": "messages that are popped have no order",
            "order_by": "messages that are popped have no order",
            "broadcast": "a message that is popped is handed to one member",
        }
        for name, why in reasons.items():
            if self.options.get(name):
                self.refuse(
                    f'mode="pop"{self._from("mode")}: {why}: remove {name}={self._from(name)}, or write mode="push"'
                )

    def _check_timeout(self) -> None:
        timeout = self.options.get("timeout")
        if timeout is None or is_async(self.function):
            return
        mend = "give this handler timeout=None" if "timeout" in self.origins else "remove timeout="
        self.refuse_function(
            f"timeout={timeout!r}{self._from('timeout')} needs an async handler: nothing can stop a sync function "
            f"in its thread; make it `async def`, or {mend}"
        )


def check_inherited(inherited: Inherited) -> None:
    """Raises SetupError, with the place of the Router or app, for an option that no handler could have."""
    for name, value in inherited.options.items():
        problem = option_problem(name, value)
        if problem is not None:
            raise SetupError(inherited.place, f"{inherited.what}: {problem}")


def option_problem(name: str, value: object, *, runs_on_loop: bool | None = None) -> str | None:
    """Why this value of this option is wrong, for every handler or for an async (sync) one; or None."""
    if name == "concurrency" and runs_on_loop is not None:
        most, kind = (MAX_CONCURRENCY, "an async") if runs_on_loop else (MAX_THREADS, "a sync")
        return _whole(1, most, f" for {kind} handler")(name, value)
    return _CHECKS[name](name, value)


def _topic_problem(topic: object) -> str | None:
    problem = _name_problem("topic", topic) or topic_problem(str(topic))
    if problem is None and topic in (DLQ_PREFIX, RETRY_PREFIX):
        problem = f"topic {topic!r} lacks the group's name behind it"
    return problem


def _name_problem(name: str, value: object) -> str | None:
    return None if isinstance(value, str) else f"{name}={value!r} is not a name: give a string"


def _group_problem(name: str, value: object) -> str | None:
    return _name_problem(name, value) or group_problem(str(value))


def _idempotent_problem(name: str, value: object) -> str | None:
    if isinstance(value, bool):
        return None
    return _key_problem(name, value, "True, False, or a function that takes the Message and returns its key")


def _order_problem(name: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return None
    return _key_problem(name, value, "a function of the message that returns its key, or the name of a property")


def _key_problem(name: str, function: Any, wanted: str) -> str | None:
    if not callable(function) or isinstance(function, type):
        return f"{name}={function!r}: give {wanted}"
    if is_async(function):
        return f"{name}= is an async function: its key is needed at once, make it a plain `def`"
    if is_generator(function):
        return f"{name}= is a generator: its code would never run; remove the yield"
    if not takes(function, "message"):
        return f"{name}= is called with the Message alone, and {name_of_function(function)} cannot be"
    return None


def _tags_problem(name: str, value: object) -> str | None:
    if not isinstance(value, str):
        return f"{name}={value!r}: give one string, several tags separated by ||"
    try:
        parse_tags(value)
    except ValueError as error:
        return str(error)
    return None


def _start_problem(name: str, value: object) -> str | None:
    if isinstance(value, datetime) and value.utcoffset() is None:
        return f"{name}={value!r} has no time zone: add one, such as tzinfo=datetime.UTC"
    is_right = isinstance(value, datetime) or value in ("first", "last")
    return None if is_right else f'{name}={value!r}: give "first", "last" or an aware datetime'


def _retry_problem(name: str, value: object) -> str | None:
    if value is None or isinstance(value, Policy):
        return None
    mend = "write retries= for the number of attempts" if is_number(value) else "give a Policy(delays=..., on=...)"
    return f"{name}={value!r}: {mend}"


def _given(is_right: Callable[[Any], bool], wanted: str) -> _Check:
    return lambda name, value: None if is_right(value) else f"{name}={value!r}: give {wanted}"


def _above_zero(value: Any) -> bool:
    return is_number(value) and 0 < value <= _MOST


def _whole(least: int, most: int, of: str = "", *, or_none: bool = False) -> _Check:
    def problem(name: str, value: object) -> str | None:
        if value is None and or_none:
            return None
        if not is_whole(value):
            return f"{name}={value!r}: give a whole number from {least} to {most}{of}"
        return None if least <= value <= most else f"{name}={value!r} is out of bounds: from {least} to {most}{of}"

    return problem


_Check = Callable[[str, object], str | None]
"""The name and the value of an option -> why the value is wrong, or None."""
_FLAG = _given(lambda value: isinstance(value, bool), "True or False")
_CHECKS: Mapping[str, _Check] = {
    "group": _group_problem,
    "cluster": _name_problem,
    "broadcast": _FLAG,
    "sql": _given(
        lambda value: isinstance(value, str) and bool(value.strip()),
        "an expression such as \"amount > 5 AND TAGS = 'paid'\"",
    ),
    "orderly": _FLAG,
    "mode": _given(lambda value: value in ("push", "pop"), '"push" or "pop"'),
    "concurrency": _whole(1, MAX_CONCURRENCY),
    "retries": _whole(-1, 2**31 - 1),
    "retry": _retry_problem,
    "start": _start_problem,
    "timeout": _given(lambda value: value is None or _above_zero(value), "seconds, more than 0"),
    "tags": _tags_problem,
    "batch": _whole(1, MAX_BATCH, or_none=True),
    "batch_wait": _given(lambda value: is_number(value) and 0 <= value <= _MOST, "seconds, 0 or more"),
    "rate": _given(lambda value: value is None or _above_zero(value), "messages per second, more than 0"),
    "commit": _given(lambda value: value in ("auto", "manual"), '"auto" or "manual"'),
    "order_by": _order_problem,
    "enabled": _FLAG,
    "every": _given(_above_zero, "the seconds between two calls, more than 0"),
    "idempotent": _idempotent_problem,
}
