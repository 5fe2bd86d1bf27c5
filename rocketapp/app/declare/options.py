"""The keywords of `subscribe`, `Router` and `RocketApp`: each is declared here once, with its meaning and its check.

An option that is left out is absent, and then the next one outside decides: handler, inner router, outer router,
app, settings, default.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

from rocketapp.app.call.chain import Scope
from rocketapp.app.places import function_problem
from rocketapp.app.settings import nearest
from rocketapp.errors import SetupError
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, group_problem, topic_problem
from rocketapp.model.numbers import is_number, is_whole
from rocketapp.model.policy import Policy
from rocketapp.model.subscription import ALL_TAGS, Mode, Start, parse_tags
from rocketapp.wire.record import Message

MAX_BATCH = 65_535
"""The most unfinished messages that one queue may have (ConsumerConfig.queue_max_messages)."""
MAX_CONCURRENCY, MAX_THREADS = 65_535, 1000
_OTHER_SEPARATOR = re.compile(r"(?<!\|)\|(?!\|)|,")
_MOST = sys.float_info.max
"""A larger whole number cannot be made a float."""


Check = Callable[[str, object], str | None]
"""The name and the value of an option -> why the value is wrong, or None."""


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


def _filter_problem(name: str, value: object) -> str | None:
    wanted = "a function of the message that says whether the handler takes it"
    return None if value is None else _key_problem(name, value, wanted)


def _key_problem(name: str, function: Any, wanted: str) -> str | None:
    problem = function_problem(function, "message", wanted="def")  # its answer is needed at once
    return None if problem is None else f"{name}=: give {wanted}: {problem}"


def _tags_problem(name: str, value: object) -> str | None:
    if isinstance(value, list | tuple):
        wrong = [one for one in value if not isinstance(one, str) or not one or one != one.strip() or "||" in one]
        if wrong or not value or (ALL_TAGS in value and len(value) > 1):
            return f"{name}={value!r}: give a list of tags, without blanks at their ends and without ||"
        return None
    if not isinstance(value, str):
        return f'{name}={value!r}: give a string, or several tags in a list: {name}=["paid", "refunded"]'
    if _OTHER_SEPARATOR.search(value):
        several = [one for one in re.split(r"[|,\s]+", value) if one]
        return f"{name}={value!r}: || separates tags, and nothing else: write {name}={json.dumps(several)}"
    try:
        parse_tags(value)
    except ValueError as error:
        return str(error)
    return None


def tags_said(value: str | Sequence[str]) -> tuple[str, frozenset[str]]:
    """The expression as brokers take it, and the tags; none for all of them."""
    if isinstance(value, str):
        return value, parse_tags(value)
    return " || ".join(value), frozenset() if list(value) == [ALL_TAGS] else frozenset(value)


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


def _given(is_right: Callable[[Any], bool], wanted: str) -> Check:
    return lambda name, value: None if is_right(value) else f"{name}={value!r}: give {wanted}"


def _above_zero(value: Any) -> bool:
    return is_number(value) and 0 < value <= _MOST


def _whole(least: int, most: int, of: str = "", *, or_none: bool = False) -> Check:
    def problem(name: str, value: object) -> str | None:
        if value is None and or_none:
            return None
        if not is_whole(value):
            return f"{name}={value!r}: give a whole number from {least} to {most}{of}"
        return None if least <= value <= most else f"{name}={value!r} is out of bounds: from {least} to {most}{of}"

    return problem


_FLAG = _given(lambda value: isinstance(value, bool), "True or False")
_MODE = _given(lambda value: value in ("push", "pop"), '"push" or "pop"')
_COMMIT = _given(lambda value: value in ("auto", "manual"), '"auto" or "manual"')
_SECONDS = _given(lambda value: is_number(value) and 0 <= value <= _MOST, "seconds, 0 or more")
_LIMIT = _given(lambda value: value is None or _above_zero(value), "seconds, more than 0")
_RATE = _given(lambda value: value is None or _above_zero(value), "messages per second, more than 0")
_FUNCTIONS = _given(lambda value: isinstance(value, list | tuple), "a list of functions (message, call_next)")
_SQL = _given(
    lambda value: isinstance(value, str) and bool(value.strip()),
    "an expression such as \"amount > 5 AND TAGS = 'paid'\"",
)


class _Shared(TypedDict, total=False):
    """What a Router, an app, a subscription and a `poll` may say.

    group: the consumer group. None is the same as leaving it out; the last resort is `app.group`, else the app's name.
    cluster: one of `RocketApp(clusters=...)`, or "" for the unnamed one. None is the same as leaving it out.
    broadcast: every member of the group, that is each worker process, gets every message. A group is broadcast as a
        whole.
    concurrency: messages in flight at once, or queues for which a polled handler runs. None is the same as leaving it
        out; the last resort is `consumer.concurrency` (64) for an async handler and `consumer.threads` (20) for a sync
        one.
    start: where a group without offsets begins: "first", "last" or an aware datetime.
    timeout: seconds that one attempt, or one call of a polled handler, may take if it is async; None is without a
        limit.
    """

    group: Annotated[str | None, _group_problem]
    cluster: Annotated[str | None, _name_problem]
    broadcast: Annotated[bool, _FLAG]
    concurrency: Annotated[int | None, _whole(1, MAX_CONCURRENCY)]
    start: Annotated[Start, _start_problem]
    timeout: Annotated[float | None, _LIMIT]


class InheritedOptions(_Shared, total=False):
    """What a Router or an app says for every subscription in it that does not say otherwise.

    orderly: per queue one message after the other, across the whole group.
    mode: "push": queues are shared out and pulled. "pop": brokers hand out messages one by one.
    retries: attempts after the first, then the message is dead; -1 is unlimited (orderly only).
    retry: delays between the attempts, and what exceptions mean; None: the usual delays, and each exception is retried.
    idempotent: handle each message once, as far as the idempotency store remembers: copies are told by message id and
        body, or by the key that this function returns.
    """

    orderly: Annotated[bool, _FLAG]
    mode: Annotated[Mode, _MODE]
    retries: Annotated[int, _whole(-1, 2**31 - 1)]
    retry: Annotated[Policy | None, _retry_problem]
    idempotent: Annotated[bool | Callable[[Message], str], _idempotent_problem]


class _Selecting(TypedDict, total=False):
    """What a subscription and a `poll` select, and whether they hold.

    tags: `["paid", "refunded"]` or `"paid || refunded"`; `"*"` takes what no other handler of the topic names.
    sql: an SQL92 filter that the broker applies, instead of `tags`. None is the same as leaving it out.
    enabled: False checks the declaration and leaves it out.
    """

    tags: Annotated[str | Sequence[str], _tags_problem]
    sql: Annotated[str | None, _SQL]
    enabled: Annotated[bool, _FLAG]


class SubscribeOptions(InheritedOptions, _Selecting, total=False):
    """What one subscription says.

    batch: hand over lists of this many messages, or of what came within `batch_wait` seconds.
    batch_wait: seconds that a smaller batch waits for more.
    commit: "manual": an orderly handler says by `Context.commit` and `Context.rollback` what becomes of what it
        handled.
    rate: messages that may start per second in each process; None is without a limit.
    filter: a function of the message: what it refuses is done and counted, and the handler is not called.
    order_by: messages with equal keys one after the other, many keys at once, under the lock of their queue: a function
        of the message, or the name of one of its properties. It replaces an inherited `orderly`.
    middlewares: functions `(message, call_next)` around this handler alone, the first one outermost.
    """

    batch: Annotated[int | None, _whole(1, MAX_BATCH, or_none=True)]
    batch_wait: Annotated[float, _SECONDS]
    commit: Annotated[Literal["auto", "manual"], _COMMIT]
    rate: Annotated[float | None, _RATE]
    filter: Annotated[Callable[[Message], bool] | None, _filter_problem]
    order_by: Annotated[str | Callable[[Message], Hashable] | None, _order_problem]
    middlewares: Annotated[Sequence[Callable[..., Any]], _FUNCTIONS]


class PollOptions(_Shared, _Selecting, total=False):
    """What one `poll` says beside its interval."""


INHERITED = frozenset(InheritedOptions.__annotations__)
KNOWN = frozenset(SubscribeOptions.__annotations__)
POLLED = frozenset(PollOptions.__annotations__)
ABSENT_WHEN_NONE = frozenset({"group", "cluster", "concurrency", "sql"})


def options_given(function: str, given: Mapping[str, Any], known: frozenset[str], place: str) -> dict[str, Any]:
    """What was written, without what is the same as absent.

    Raises SetupError for a keyword that the function does not take, with the nearest one that it takes.
    """
    for name in given:
        if name not in known:
            raise SetupError(place, f"{function} takes no keyword {name!r}: {nearest(name, known)}")
    return {name: value for name, value in given.items() if value is not None or name not in ABSENT_WHEN_NONE}


def read_inherited(what: str, given: Mapping[str, Any], place: str, *, beside: frozenset[str] = frozenset()) -> Scope:
    """What a Router or an app says for its handlers. `beside`: the other keywords that it takes.

    Raises SetupError, with its place, for an unknown keyword and for an option that no handler could have.
    """
    options = options_given(what, given, INHERITED | beside, place)
    for name, value in options.items():
        problem = option_problem(name, value)
        if problem is not None:
            raise SetupError(place, f"{what}: {problem}")
    return Scope(what, place, options)


def option_problem(name: str, value: object, *, runs_on_loop: bool | None = None) -> str | None:
    """Why this value of this option is wrong, for every handler or for an async (sync) one; or None."""
    if name == "concurrency" and runs_on_loop is not None:
        most, kind = (MAX_CONCURRENCY, "an async") if runs_on_loop else (MAX_THREADS, "a sync")
        return _whole(1, most, f" for {kind} handler")(name, value)
    return _CHECKS[name](name, value)


def topic_name_problem(topic: object) -> str | None:
    problem = _name_problem("topic", topic) or topic_problem(str(topic))
    if problem is None and topic in (DLQ_PREFIX, RETRY_PREFIX):
        problem = f"topic {topic!r} lacks the group's name behind it"
    return problem


_CHECKS: Mapping[str, Check] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(SubscribeOptions, include_extras=True).items()
} | {"every": _given(_above_zero, "the seconds between two calls, more than 0"), "idle": _LIMIT}
"""By name; `every` is an argument of `poll`, and `idle` of `Client.messages`."""
