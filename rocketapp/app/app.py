"""RocketApp: what a user declares and calls. It declares; `lifecycle` runs it.

Two phases: first everything is declared, then it runs. Nothing at module level
remembers anything, so two apps in one process do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from rocketapp.app.call.returned import Publications
from rocketapp.app.call.transaction import Transaction
from rocketapp.app.declare.changes import DEFAULT_REASON, AdjustOptions, LimitChange, TopicChange
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.options import InheritedOptions, read_inherited
from rocketapp.app.declare.phases import Declared, TwoPhases
from rocketapp.app.places import place_of_call
from rocketapp.app.publishing import TopicPublisher, check_names
from rocketapp.app.router import Subscribing
from rocketapp.app.user_code import When, read_hook
from rocketapp.errors import RocketAppError, SendRefused, SetupError, did_you_mean
from rocketapp.model.outgoing import Outgoing, SendOptions
from rocketapp.model.topic import Topic
from rocketapp.producer.checks import problem_of

if TYPE_CHECKING:
    from rocketapp.app.run.lifecycle import Lifecycle

F = TypeVar("F", bound=Callable[..., Any])
Upcast = TypeVar("Upcast", bound=Callable[[dict[str, Any]], dict[str, Any]])
T = TypeVar("T")
_OWN = frozenset({"clusters", "plugins", "container", "version", "settings", "options"})


def _mend(name: str) -> str:
    """The end of a message about a method that is not there."""
    if name == "sink":
        return ": it comes with pip install 'rocketapp[lake]'"
    if name == "run":
        return ": the command `rocketapp run module:app` runs it, or `async with app:` in a loop of yours"
    return did_you_mean(name, [known for known in dir(RocketApp) if not known.startswith("_")])


class RocketApp(TwoPhases, Subscribing):
    """An application of message handlers.

    name: names the consumer group and the producer group unless something else does.
    clusters: name servers by cluster name, `{"eu": "h:p;h:p"}`; the unnamed cluster is the settings'.
    plugins: objects with hooks, beside those found by entry point.
    container: a dependency_injector container; it overrides our parts and provides arguments.
    version: of your app; dead letters carry it.
    settings: options by table, as settings.toml says them; file, environment and command line override them.
    options: a table of settings of your own: a frozen dataclass whose fields are `rocketapp.plugin.option(...)`. Its
        table is named as the app, with underscores for dashes, or as in `("table", TheClass)`. `app.options(TheClass)`
        and an argument of this type give the values.
    The other options (`group`, `cluster`, `broadcast`, `mode`, `orderly`, `concurrency`, `retries`, `retry`, `start`,
    `timeout`, `idempotent`) are for subscriptions that neither say them nor are in a Router that does. They mean what
    they mean in `subscribe`.
    """

    def __init__(
        self,
        name: str,
        *,
        clusters: Mapping[str, str] | None = None,
        plugins: Iterable[object] = (),
        container: object = None,
        version: str = "",
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        options: type[Any] | tuple[str, type[Any]] | None = None,
        **inherited: Unpack[InheritedOptions],
    ) -> None:
        place = place_of_call()
        self._scope, self._publications = read_inherited("RocketApp", inherited, place, beside=_OWN), Publications()
        declared = Declared(
            name,
            clusters=clusters or {},
            plugins=plugins,
            container=container,
            version=version,
            settings=settings or {},
            options=options,
            place=place,
        )
        super().__init__(declared)
        self._run_here: Lifecycle | None = None
        """What `async with` has started."""
        declared.tell_made(self)

    def on_startup(self, function: F) -> F:
        """Run this when the cluster is reached, before the first message; it may publish.

        Its arguments are filled as a handler's: by the app (annotated so, or the sole one), a Publisher, the app's own
        settings, and what the container or a plugin provides.
        """
        return self._add_hook("on_startup", function)

    def on_shutdown(self, function: F) -> F:
        """Run this when no handler runs any more; it may still publish. Its arguments: see `on_startup`."""
        return self._add_hook("on_shutdown", function)

    def lifespan(self, function: F) -> F:
        """Enter this async context manager at start and leave it at stop; an async generator function will do.

        Its arguments: see `on_startup`. What a container provides as a generator is closed when it has been left.
        """
        return self._add_hook("lifespan", function)

    def outgoing(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> Outgoing:
        """The message that `publish` would send: checked, and encoded by the codecs and versions of this app.

        Nothing is sent, and the app need not run: for an outbox, which stores messages and sends them later.
        Raises what `publish` raises before it sends, SetupError for a cluster that the app does not name. How large a
        body may be is a setting, and only checked while the app runs.
        """
        check_names("outgoing", options, SendOptions)
        through = self._through()
        message = replace(through.outgoing(topic, body, options), cluster=through.cluster_of(options))
        self._declared.check_cluster(message.cluster, place_of_call(), "outgoing: ")
        in_use = self._declared.settings_in_use
        if problem := problem_of(message, inf if in_use is None else in_use.producer.max_message_bytes):
            raise SendRefused(message.topic, problem, True)
        return message

    def options(self, kind: type[T]) -> T:
        """The values of a table of settings: the app's own, or `ConsumerConfig` and the like.

        Raises SetupError while the app does not run: settings are read when it starts.
        """
        return self._declared.options(kind)

    async def __aenter__(self) -> Self:
        """Start in the running loop, as `rocketapp run` would; returns when messages flow.

        Settings come from ./settings.toml and the environment. Without a name server in them, the embedded broker that
        serves this folder is used.

        Raises ConfigError, SetupError and PluginError, and TransportError for a cluster that was not reached within
        `app.connect_timeout`; then nothing is left running.
        """
        from rocketapp.app.run.lifecycle import start_here

        self._run_here = await start_here(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop as SIGTERM does: handlers may run for `app.drain_timeout` seconds, offsets are committed.

        Returns when nothing runs any more. Cancelling it cuts the drain.
        """
        if (run := self._run_here) is not None:
            run.check_loop()
            self._run_here = None
            await run.leave()

    def upcaster(self, kind: type[Any], *, version: int) -> Callable[[Upcast], Upcast]:
        """This function turns the members of a payload of version `version` into those of the next one.

        kind: the class that handlers ask for and that is published; its own version is one above its last upcaster. A
            class that derives from it has its versions, unless it has upcasters of its own.
        What is published carries its version as the property `payload-version`; a message without one has version 1.
        An old payload goes through all upcasters from its version on. What one raises makes a dead letter.
        """
        self._may_declare("upcaster")
        place = place_of_call()

        def decorate(function: Upcast) -> Upcast:
            self._declared.payloads.add_upcaster(kind, version, function, place)
            return function

        return decorate

    @overload
    def publisher(self, topic: Topic[T]) -> TopicPublisher[T]: ...
    @overload
    def publisher(self, topic: str, kind: type[T]) -> TopicPublisher[T]: ...

    def publisher(self, topic: str | Topic[Any], kind: type[Any] | None = None) -> TopicPublisher[Any]:
        """What publishes payloads of one type to one topic, wherever `publish` may be called.

        Raises SetupError for a name that no topic has, and when the type is given twice or not at all.
        """
        place = place_of_call()
        if isinstance(topic, Topic) and kind is None:
            return self._publisher_of(topic)
        if isinstance(topic, Topic) or kind is None:
            raise SetupError(place, 'publisher needs one type: publisher("orders", Order) or publisher(a_topic)')
        try:
            return self._publisher_of(Topic(topic, kind))
        except (TypeError, ValueError) as error:
            raise SetupError(place, str(error)) from None

    def pause(
        self,
        topic: str | None = None,
        reason: str = DEFAULT_REASON,
        *,
        group: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Start no more handlers of a topic, or of all topics of a group, and pull no more of their messages.

        Handlers that run may finish. The app stays a member of its groups and keeps its queues, locks and the
        messages that it has pulled; messages that were sent back for a retry are held as well. A pause holds until
        `resume`, over rebalances and reconnects; one from before the start is kept. Reasons add up.
        topic: in all groups of the app that take it, or in `group` alone.
        cluster: where the app subscribes several clusters, on this one alone; "" is the unnamed one.

        May be called at any time and from any thread; from a thread it holds within a turn of the event loop.
        Raises SetupError for a topic or group that the app does not have; before the start, when it starts.
        """
        self._change_pause("pause", reason, topic=topic, group=group, cluster=cluster)

    def resume(
        self,
        topic: str | None = None,
        reason: str | None = None,
        *,
        group: str | None = None,
        cluster: str | None = None,
    ) -> None:
        """Lift a reason of `pause`, or without one all of them. A topic goes on when all its reasons were lifted.

        Nothing happens if it is not paused for that reason. Otherwise as `pause`.
        """
        self._change_pause("resume", reason, topic=topic, group=group, cluster=cluster)

    def adjust(
        self,
        topic: str | None = None,
        *,
        group: str | None = None,
        cluster: str | None = None,
        **limits: Unpack[AdjustOptions],
    ) -> None:
        """Change limits while the app runs: `app.adjust("orders", concurrency=8, queue_max_messages=100)`.

        topic: in all groups of the app that take it, or in `group` alone; without both, everything that it consumes.
        cluster: on this one alone, as in `pause`.
        concurrency, rate, batch: of each handler of the topic; a rate or batch only where one was declared.
        queue_max_messages, queue_max_bytes, queue_max_span, topic_max_messages, topic_max_bytes, pull_interval,
        pull_batch_size: in place of the settings of the same name, with their units and bounds.
        pop_invisible_time, pop_max_messages, pop_batch_size: the same of popped topics, from their next pop on.
        None: what was declared or set at the start. A change holds until the next one or the end of the process, for
        queues that come later too. What runs beyond a lower limit ends first. Of several topics those have a value that
        can.

        May be called from handlers, from on_startup functions and from any thread; from a thread it holds within a
        turn of the event loop. Raises SetupError for a value out of its bounds, a limit that no named topic has, a
        topic or group that the app does not have, and before the start; TypeError for a limit that cannot be changed.
        """
        self._change(LimitChange(topic=topic, group=group, cluster=cluster, values=limits, place=place_of_call()))

    if not TYPE_CHECKING:  # for a checker an unknown name stays an error

        def __getattr__(self, name: str) -> Any:
            """A method that a plugin adds."""
            # Names with underscores are asked for by copy, pickle and debuggers, also of an app half made.
            if not name.startswith("_"):
                try:
                    method = self._declared.method(name, self)
                except RocketAppError as error:
                    raise AttributeError(f"RocketApp has no attribute {name!r}, and {error}") from error
                if method is not None:
                    return method
            raise AttributeError(f"RocketApp has no attribute {name!r}, and no plugin adds it{_mend(name)}")

    def _change_pause(self, kind: str, reason: str | None, **names: str | None) -> None:
        change = TopicChange(kind=kind, reason=reason, place=place_of_call(), **names)
        if all(name is None for name in names.values()):
            change.refuse("needs a topic, a group= or a cluster=")
        self._change(change)

    def _take(self, declaration: Declaration) -> None:
        self._may_declare("subscribe")
        self._declared.add(declaration.within(self._scope))

    def _take_transaction(self, transaction: Transaction[Any], prefix: str) -> None:
        self._may_declare("transaction")
        self._declared.check_cluster(transaction.cluster, transaction.place, "transaction: ")
        transaction.join(self, prefix=prefix)
        for other in self._declared.transactions:
            if (other.topic_name, other.cluster) == (transaction.topic_name, transaction.cluster):
                why = f"topic {other.topic_name!r} has a transaction at {other.place} already: use that one"
                raise SetupError(transaction.place, why)  # a broker that asks names the topic alone
        self._declared.transactions.append(transaction)

    def _publisher_of(self, topic: Topic[T]) -> TopicPublisher[T]:
        # At run time there may be one per message: what is described is what was declared.
        if self._alive() is None and topic not in self._declared.publishers:
            self._declared.publishers.append(topic)
        return TopicPublisher(self, topic)

    def _check_complete(self) -> None:
        self._publications.check()
        for transaction in self._declared.transactions:
            transaction.check_complete()

    def _add_hook(self, hook: When, function: F) -> F:
        self._may_declare(hook)
        declared = self._declared
        declared.lifecycle_hooks.append(read_hook(hook, function, type(self), place_of_call(), declared.providers))
        return function

    def __repr__(self) -> str:
        state = "running" if self._alive() is not None else "not running"
        return f"<RocketApp {self.name}: {len(self._declared.handlers)} subscriptions, {state}>"
