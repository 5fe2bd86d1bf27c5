"""Every hook: when it is called, how often, and what it costs.

No hook is called per message. A plugin is asked while the app starts; what it returns
is folded into the chain, and a plugin that declines costs nothing afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from rocketapp.consumer.modes.sink import NewWriter, Sink
    from rocketapp.consumer.offsets.stores import OffsetStore
    from rocketapp.hooks.hook_types import Codec, Predicate, PublishWrapper, ReadMetrics, Wrapper
    from rocketapp.hooks.idempotency import IdempotencyStore
    from rocketapp.hooks.surface import Surface
    from rocketapp.model.event import Observe
    from rocketapp.model.subscription import Subscription
    from rocketapp.state.allocation import Allocation


PROJECT: Final = "rocketapp"
"""Name of the pluggy project and of the entry-point group where plugins are found."""

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook that has its name."""


@hookspec
def app_made(app: Any) -> None:
    """Declare on the app what a user could, and keep it for what is asked of the plugin where the app does not run.

    `app` is the RocketApp. Called once per app, at the end of `RocketApp(plugins=[...])`, for the objects in that list:
    before anything else is declared. What it raises reaches whoever makes the app.
    """


@hookspec
def app_methods(app: Any) -> Mapping[str, Callable[..., Any]] | None:
    """Return functions that the app gets as methods, by name, or None to decline.

    `app` is the RocketApp. Called at most once per app: when a name is first used that RocketApp does not have. The
    functions are called as they are, without the app in front. Calls of RocketApp's own methods cost nothing more.
    """


@hookspec
def options() -> tuple[str, type[Any]] | None:
    """Return a table name and a frozen dataclass of options for it, or None to decline.

    Called once, before the settings are read. The fields are declared with `rocketapp.plugin.option`; they are checked
    like our own, and `Surface.options(TheClass)` returns the values.
    """


@hookspec
def app_setup(app: Surface) -> None:
    """Read the settings, and make what the other hooks of this run need.

    Called once per run, when the settings are complete: before observers are asked, handlers are wrapped and anything
    connects. Nothing is to be opened here: that is for `app_startup`. What it raises stops the start. In the order of
    registration.
    """


@hookspec
def observe_events(app: Surface) -> Observe | None:
    """Return a function that receives every event of the engine, or None to decline.

    Called once, before anything connects. The function is called on the event loop for
    each state change, retry and dead letter, and with counts of handled messages; it must
    not block. What it raises is logged and goes no further. One event comes from a thread: a `LoopBlocked` that is not
    over, for the loop does not run then.
    """


@hookspec
def handler_wrapper(subscription: Subscription) -> Wrapper | None:
    """Return a wrapper around the handler of one subscription, or None to decline.

    Called once per subscription while the app starts, never per message: a plugin
    that declines costs nothing. A wrapper names its layer; of several in one layer the last registered
    is outermost. Around a polled handler stand those with `polled=True`.
    """


@hookspec
def message_filter(subscription: Subscription) -> Predicate | None:
    """Return a predicate that says which messages the handler sees, or None to decline.

    Called once per subscription while the app starts. The predicate runs per message, in the thread of a sync handler
    or on the loop of an async one. A message that one predicate refuses is done, and counts as handled. Not called for
    polled handlers.
    """


@hookspec
def sink(subscription: Subscription) -> NewWriter | Sink | None:
    """Return what makes writers for the queues of one subscription, or None to decline.

    Called once per subscription while the app starts. A writer is made for each session of each queue, takes the
    messages that were pulled, and acknowledges them by itself, perhaps much later: when a table has stored them. A
    topic that is consumed in this way has one handler and is not declared in order; a Sink may ask for the
    locks of its queues, say where their sessions begin, and how much is pulled ahead. What comes back for a retry is
    consumed concurrently, by the handler. Topics that no plugin wants are consumed as before.
    """


@hookspec
def allocation_strategy(app: Surface) -> Allocation | None:
    """Return a strategy that says which queues each member of a group gets, or None to decline.

    Called once, while the app starts. The strategy is used when `consumer.allocation` has its name, by all groups of
    the app; every member of a group needs the same. It is asked for each topic at each rebalance, never per message.
    """


@hookspec
def offset_store(app: Surface) -> OffsetStore | None:
    """Return a store that keeps the offsets of all groups of the app in place of the brokers, or None to decline.

    Called once, while the app starts. Two plugins with a store refuse the start. All members of a group need the same
    store. It is asked when a queue is taken and at each commit, never per message.
    """


@hookspec
def metrics(app: Surface) -> ReadMetrics | None:
    """Return a function that says what the plugin measures, or None to decline.

    Called once per run, before anything connects. The function is called on the event loop for each snapshot of the
    app, with the snapshot as it is without plugins: when metrics are collected, never per message. It returns the same
    metrics each time, those without samples too. What it raises is logged, and its metrics are left out.
    """


@hookspec
def publish_wrapper(app: Surface) -> PublishWrapper | None:
    """Return a wrapper around publishing, or None to decline.

    Called once, while the app starts, before it connects. The wrapper receives the next callable once and returns
    the one that is called per `publish`, `publish_many`, `publish_one_way` and `publish_sync`, on the event loop
    and in the caller's context. Of several wrappers, the last registered is outermost. Without one, publishing
    calls the producer directly.
    """


@hookspec
def argument_provider(kind: Any) -> Callable[[], Any] | None:
    """Return a function that gives handlers the values of arguments with this annotation, or None to decline.

    Called once per argument that the framework and the container do not fill, while handlers
    are declared. The function runs per message, before the handler and inside of all wrappers;
    for an async handler it may be async. A CheckedArgument also says which handlers cannot have it.
    """


@hookspec
def payload_codec() -> Codec | None:
    """Return a codec for one content type, or None to decline.

    Called once, while handlers are declared or the app starts. The codec is asked once per handler for a decoder. Of
    several for one content type the last registered is used, before a built-in one. Without one, publishing and
    decoding are those of JSON.
    """


@hookspec
def idempotency_store(app: Surface) -> IdempotencyStore | None:
    """Return a store for the marks of handlers with `idempotent=`, or None to decline.

    Called once while the app starts, and only if it has such a handler. Of several stores
    the last one is used; the one of the settings `[idempotency]` is the first.
    """


@hookspec
def app_startup(app: Surface) -> Awaitable[None] | None:
    """Called once, sync or async, when the cluster is connected and the start positions are fixed.

    Runs before the app's own `on_startup` functions and before the first message. What
    it raises stops the start. In the order of registration.
    """


@hookspec
def app_shutdown(app: Surface) -> Awaitable[None] | None:
    """Called once, sync or async, when no handler runs any more and publishing still works.

    Runs after the app's own `on_shutdown` functions, in the reverse order of
    registration, and only for plugins whose start was completed. What it raises is logged.
    """
