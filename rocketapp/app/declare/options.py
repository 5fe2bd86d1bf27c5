"""The keywords of `subscribe`, `Router` and `RocketApp`: each is declared here once, with its meaning.

An option that is left out is absent, and then the next one outside decides: handler, inner router, outer router,
app, settings, default. Each keyword has one check in `declaration`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict

from rocketapp.app.settings.values import nearest
from rocketapp.errors import SetupError
from rocketapp.model.policy import Policy
from rocketapp.model.subscription import Mode, Start
from rocketapp.wire.record import Message


class InheritedOptions(TypedDict, total=False):
    """What a Router or an app says for every subscription in it that does not say otherwise."""

    group: str | None
    """The consumer group. None is the same as leaving it out; the last resort is `app.group`, else the app's name."""
    cluster: str | None
    """One of `RocketApp(clusters=...)`, or "" for the unnamed one. None is the same as leaving it out."""
    broadcast: bool
    """Every member of the group, that is each worker process, gets every message. A group is broadcast as a whole."""
    orderly: bool
    """Per queue one message after the other, across the whole group."""
    mode: Mode
    """"push": queues are shared out and pulled. "pop": brokers hand out messages one by one."""
    concurrency: int | None
    """Messages in hand at once. None is the same as leaving it out; the last resort is `consumer.concurrency` (64)
    for an async handler and `consumer.threads` (20) for a sync one."""
    retries: int
    """Attempts after the first, then the message is dead; -1 is unlimited (orderly only)."""
    retry: Policy | None
    """Delays between the attempts, and what exceptions mean; None: the usual delays, and each exception is retried."""
    start: Start
    """Where a group without offsets begins: "first", "last" or an aware datetime."""
    timeout: float | None
    """Seconds that one attempt of an async handler may take; None is without a limit."""
    idempotent: bool | Callable[[Message], str]
    """Handle each message once, as far as the idempotency store remembers: copies are told by message id and body,
    or by the key that this function returns."""


class SubscribeOptions(InheritedOptions, total=False):
    """What one subscription says."""

    tags: str
    """`"paid || refunded"`; `"*"` takes what no other handler of the topic and group names."""
    sql: str | None
    """An SQL92 filter that the broker applies, instead of `tags`. None is the same as leaving it out."""
    batch: int | None
    """Hand over lists of this many messages, or of what came within `batch_wait` seconds."""
    batch_wait: float
    """Seconds that a smaller batch waits for more."""
    commit: Literal["auto", "manual"]
    """"manual": an orderly handler says by `Context.commit` and `Context.rollback` what becomes of what it handled."""
    rate: float | None
    """Messages that may start per second in each process; None is without a limit."""
    order_by: str | Callable[[Message], Hashable] | None
    """Messages with equal keys one after the other, many keys at once, under the lock of their queue: a function of
    the message, or the name of one of its properties. It replaces an inherited `orderly`."""
    enabled: bool
    """False checks the declaration and leaves it out."""


class PollOptions(TypedDict, total=False):
    """What one `poll` says beside its interval; each means what it means in `subscribe`."""

    group: str | None
    cluster: str | None
    broadcast: bool
    concurrency: int | None
    """Queues for which the handler runs at once."""
    start: Start
    timeout: float | None
    """Seconds that one call of an async handler may take; None is without a limit."""
    tags: str
    sql: str | None
    enabled: bool


INHERITED = frozenset(InheritedOptions.__annotations__)
KNOWN = frozenset(SubscribeOptions.__annotations__)
POLLED = frozenset(PollOptions.__annotations__)
ABSENT_WHEN_NONE = frozenset({"group", "cluster", "concurrency", "sql"})


class Inherited(NamedTuple):
    """The options of one Router or app, and where it was made."""

    what: str
    """`Router` or `RocketApp`."""
    options: Mapping[str, Any]
    place: str


def options_given(function: str, given: Mapping[str, Any], known: frozenset[str], place: str) -> dict[str, Any]:
    """What was written, without what is the same as absent.

    Raises SetupError for a keyword that the function does not take, with the nearest one that it takes.
    """
    for name in given:
        if name not in known:
            raise SetupError(place, f"{function} takes no keyword {name!r}: {nearest(name, known)}")
    return {name: value for name, value in given.items() if value is not None or name not in ABSENT_WHEN_NONE}
