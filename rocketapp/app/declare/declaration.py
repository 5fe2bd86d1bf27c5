"""One handler declaration: from the decorator, through Routers, app and settings, to a complete subscription.

Errors of one declaration are found here, at the decorator, with its line; errors of a Router or an app at theirs.
Contradictions between declarations are found in `registry`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, NoReturn

from rocketapp.app.call.arguments import Argument, Kind, UnresolvedError, inner_layers, read_signature
from rocketapp.app.call.chain import Layer, Scope, around_layers, in_order, plugin_layers
from rocketapp.app.call.context import Pull, SyncPull
from rocketapp.app.call.provided import Providers
from rocketapp.app.call.returned import Publication, answer_layer, answers, publication_layer
from rocketapp.app.declare.options import INHERITED, POLLED, option_problem, tags_said, topic_name_problem
from rocketapp.app.payloads import described
from rocketapp.app.places import function_problem, is_async, name_of_function, place_of_function
from rocketapp.app.publishing import Publisher, Publishing
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import SetupError
from rocketapp.hooks.manager import Plugins
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, group_problem, retry_topic
from rocketapp.model.outcome import Decisions
from rocketapp.model.policy import unfit_for_concurrent
from rocketapp.model.snapshot import HandlerStats
from rocketapp.model.subscription import ALL_TAGS, Subscription, kind_of

_BROKERS_OWN = frozenset({SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"})
"""Topics of delayed messages and of open transactions: a consumer would take the messages too early."""
_SYSTEM_GROUPS = "CID_RMQ_SYS_"
_NOT_YET: Any = None
_AGAINST_POP = {
    "orderly": "messages that are popped have no order",
    "order_by": "messages that are popped have no order",
    "broadcast": "a message that is popped is handed to one member",
}
_OF_POLLED = frozenset({Kind.PULL, Kind.PUBLISHER, Kind.PROVIDER})
"""What fills the arguments of a polled handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One handler: what was written, what its function asks for, and its subscription.

    names: local names at the decorator, for annotations that are strings.
    kind: the payload's type, when the topic is a Topic.
    options: by the names of SubscribeOptions; absent ones are inherited, at last from settings.
    scopes: the handler's own scope, those of its routers and of the app, innermost first.
    publication: what happens to the value that it returns.
    arguments: what fills the arguments of the function; None: not known before the start.
    subscription: set when it is in an app; complete with settings and policies from the start on.
    """

    function: Callable[..., Any]
    place: str
    names: Mapping[str, Any]
    topic: str
    kind: Any = None
    options: Mapping[str, Any]
    scopes: tuple[Scope, ...]
    publication: Publication | None = None
    arguments: tuple[Argument, ...] | None = None
    subscription: Subscription = _NOT_YET

    def check(self) -> None:
        """Raises SetupError when this declaration is wrong by itself."""
        problem = topic_name_problem(self.topic)
        if problem is not None:
            self.refuse(problem)
        for name, value in self.options.items():
            problem = option_problem(name, value, runs_on_loop=self.is_async)
            if problem is not None:
                self.refuse(f"{problem}{self._from(name)}")
        for problem in self._contradictions():
            self.refuse(problem)
        if self.publication is not None:
            self.publication.check()  # once more: a Router's prefix is part of its topic
            if self.options.get("batch") is not None:
                mend = "a batch= handler returns outcomes: ask for a Publisher, or remove batch="
                raise SetupError(self.publication.place, f"publishes: {mend}")
        timeout = self.options.get("timeout")
        if timeout is not None and not self.is_async:
            mend = "remove timeout=" if self._says("timeout") else "give this handler timeout=None"
            self.refuse_function(
                f"timeout={timeout!r}{self._from('timeout')} needs an async handler: nothing can stop a sync function "
                f"in its thread; make it `async def`, or {mend}"
            )

    def within(self, scope: Scope, *, prefix: str = "") -> Declaration:
        """This declaration inside a Router or an app, which gives it options that it lacks.

        RocketMQ's own topics (`%DLQ%...`) belong to groups and get no prefix; a Topic has its full name already.
        """
        own = (
            self.kind is not None
            or not isinstance(self.topic, str)
            or self.topic.startswith((DLQ_PREFIX, RETRY_PREFIX))
        )
        taken = POLLED if self.is_polled else INHERITED
        new = {name: value for name, value in scope.options.items() if name in taken and name not in self.options}
        return replace(
            self,
            topic=self.topic if own else prefix + self.topic,
            options={**self.options, **new},
            scopes=(*self.scopes, scope),
            publication=None if self.publication is None else self.publication.within(prefix),
        )

    def read(self, providers: Providers, *, at_start: bool = False) -> Declaration:
        """This declaration with its function's signature read. Raises SetupError with the function's line.

        An annotation that names something not defined yet is read again at the start, and refused then.
        """
        function, place = self.function, self.place_of_function
        if (problem := function_problem(function)) is not None:
            raise SetupError(place, f"a handler is a function: {problem}")
        try:
            arguments = read_signature(
                function,
                batch=self.options.get("batch") is not None,
                place=place,
                providers=providers,
                names=self.names,
                is_last=at_start,
            )
        except UnresolvedError:
            return self
        self._check_arguments(arguments)
        return replace(self, arguments=arguments)

    def resolved(self, providers: Providers) -> Declaration:
        """This declaration with every argument known. Raises SetupError for one that is still unknown."""
        return self if self.arguments is not None else self.read(providers, at_start=True)

    def complete(self, group: str, consumer: ConsumerConfig) -> Declaration:
        """This declaration with its complete subscription: settings and defaults fill what nobody set.

        Raises SetupError for what depends on the completed group and retries.
        """
        said = {**self.options}
        (expression, tags), _ = tags_said(said.pop("tags", ALL_TAGS)), said.pop("enabled", None)
        said.update({name: float(said[name]) for name in ("batch_wait", "every") if name in said})
        by_key = said.get("order_by") is not None
        # In order, attempts in place need no broker.
        drops = bool(said.get("broadcast")) and not (by_key or said.get("orderly"))
        if self.is_polled or drops:
            said["retries"] = -1 if self.is_polled else 0
        threads_or_tasks = consumer.concurrency if self.is_async else consumer.threads
        usual = {"group": group, "concurrency": threads_or_tasks, "retries": consumer.retries}
        subscription = Subscription(
            **{**usual, **said, "orderly": said.get("orderly", False) and not by_key},
            topic=self.topic,
            tags=tags,
            expression=expression,
            concurrency_most=consumer.concurrency_most,
            is_async=self.is_async,
            handler_name=name_of_function(self.function),
            place=self.place,
            publishes="" if self.publication is None else self.publication.topic_name,
            retries_from="broadcast" if drops else self.said_by("retries") or "consumer.retries",
            retry_from=self.said_by("retry"),
        )
        for problem in _problems(subscription):
            sources = {"retries": subscription.retries_from, "retry": subscription.retry_from}
            source = sources.get(problem.partition("=")[0], "handler")
            self.refuse(problem if source == "handler" else f"{problem} (from {source})")
        return replace(self, subscription=subscription)

    def layers(
        self,
        publishing: Publishing,
        plugins: Plugins,
        *,
        decisions: Decisions | None = None,
        owners: dict[CodeType, str] | None = None,
        stats: HandlerStats | None = None,
    ) -> list[Layer]:
        """The layers around the function, outermost first; call `resolved` first.

        publishing: the running app's.
        decisions: for a handler that commits by hand.
        owners: filled with which code belongs to which plugin.
        stats: counts the messages that filters refuse.
        Raises SetupError and PluginError for wrappers that cannot stand there.
        """
        one, arguments = self.subscription, self.arguments or ()
        found = plugin_layers(one, plugins, owners, stats or HandlerStats())
        if not self.is_polled:  # a polled call has no message that a middleware could see
            found += around_layers(self.scopes, one)
            if self.publication is not None:
                found.append(publication_layer(self.publication, one, publishing, found))
            elif self.answers:
                found.append(answer_layer(one, publishing))
        return in_order([*found, *inner_layers(arguments, one, publishing, decisions)])

    @property
    def answers(self) -> bool:
        """Whether its return value answers requests."""
        is_called = not self.is_polled and self.options.get("batch") is None
        return is_called and self.publication is None and answers(self.function)

    @property
    def is_polled(self) -> bool:
        """Whether it was declared by `poll`: it pulls messages itself."""
        return "every" in self.options

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop, not in a thread."""
        return is_async(self.function)

    @property
    def enabled(self) -> bool:
        return bool(self.options.get("enabled", True))

    @property
    def place_of_function(self) -> str:
        """`file:line` of the function, or of the declaration of one without code."""
        return place_of_function(self.function, self.place)

    def refuse(self, problem: str) -> NoReturn:
        raise SetupError(self.place, problem)

    def refuse_function(self, problem: str) -> NoReturn:
        raise SetupError(self.place_of_function, problem)

    def said_by(self, name: str) -> str:
        """Who set an option: `handler`, or the Router or app that it is inherited from; empty for nobody."""
        if name not in self.options:
            return ""
        origin = next(scope for scope in self.scopes if name in scope.options)
        return origin.what if origin is self.scopes[0] else f"{origin.what} at {origin.place}"

    def _says(self, name: str) -> bool:
        """Whether the handler itself sets this option."""
        return name in self.scopes[0].options

    def _from(self, name: str) -> str:
        return "" if self._says(name) or name not in self.options else f" (from the {self.said_by(name)})"

    def _contradictions(self) -> Iterator[str]:
        """Why its options contradict each other. Inherited options give way to the handler's own."""
        said, by_key = self.options.get, self.options.get("order_by") is not None
        if "batch_wait" in self.options and said("batch") is None:
            yield f"batch_wait={said('batch_wait')!r} means nothing without batch=: add it, or remove batch_wait"
        if by_key and said("orderly") and self._says("orderly"):
            yield "order_by= keeps the order of each key, orderly=True that of the queue: remove one of them"
        if by_key and said("batch") is not None:
            yield "order_by= handles the messages of a key one by one: remove batch=, or order_by="
        if "sql" in self.options and "tags" in self.options:
            yield "sql= and tags= exclude each other: name the tag in the SQL as TAGS, or remove one of them"
        for why in self._against_broadcast() if said("broadcast") else ():
            yield f"broadcast=True{self._from('broadcast')}: {why}"
        for name, why in _AGAINST_POP.items() if said("mode") == "pop" else ():
            if said(name):
                mend = f'remove {name}={self._from(name)}, or write mode="push"'
                yield f'mode="pop"{self._from("mode")}: {why}: {mend}'

    def _against_broadcast(self) -> Iterator[str]:
        if self.options.get("idempotent"):
            mend = "remove one of them" if self._says("idempotent") else "give this handler idempotent=False"
            why = "every member handles every message, and idempotent= lets one of them do it"
            yield f"{why}{self._from('idempotent')}: {mend}"
        if self.options.get("orderly") or self.options.get("order_by") is not None:
            return  # what fails is tried again in place
        own = self.scopes[0].options
        if own.get("retries"):
            why = "a message that fails is dropped, since a copy that is sent back would come to every member"
            yield f"{why}: remove retries=, or add orderly=True"
        if own.get("retry") is not None and own["retry"].delays:
            yield "a message that fails is dropped at once: remove the delays of retry="

    def _check_arguments(self, arguments: tuple[Argument, ...]) -> None:
        """Check that its kind of handler can have these arguments. Raises SetupError."""
        for argument in arguments:
            if self.kind is not None and argument.kind is Kind.PAYLOAD and argument.type != self.kind:
                wanted = described(self.kind)
                self.refuse_function(
                    f"argument {argument.name!r} is a {argument.type_name}, but topic {self.topic!r} holds "
                    f"{wanted}: annotate it as {wanted}, or ask for the Message"
                )
        if self.options.get("commit") == "manual" and all(one.kind is not Kind.CONTEXT for one in arguments):
            self.refuse_function('commit="manual": the handler would never commit; add an argument `context: Context`')
        pulls = [one for one in arguments if one.kind is Kind.PULL]
        if pulls and not self.is_polled:
            mend = "declare it with @app.poll(topic, every=...), or ask for the Message"
            self.refuse_function(f"argument {pulls[0].name!r} is a {pulls[0].type.__name__}: {mend}")
        kind, pull = ("an async", Pull) if self.is_async else ("a sync", SyncPull)
        wrong = [one.name for one in arguments if one.kind not in _OF_POLLED or one.type not in (None, pull, Publisher)]
        if self.is_polled and (wrong or not pulls):
            mend = f"change {' and '.join(map(repr, wrong))}" if wrong else "add it"
            taken = f"`pull: {pull.__name__}`, and beside it only a Publisher and what the container provides"
            self.refuse_function(f"{kind} polled handler takes {taken}: {mend}")


def _problems(one: Subscription) -> Iterator[str]:
    """Why this subscription is impossible, given its completed group and retries."""
    if (problem := group_problem(one.group)) is not None:
        yield problem
    if one.topic in _BROKERS_OWN:
        yield f"{one.topic} holds what the broker still works on: subscribe the topic that its messages are sent to"
    if one.group.startswith(_SYSTEM_GROUPS):
        yield f"group {one.group!r}: names that begin with {_SYSTEM_GROUPS} are the broker's own: choose another"
    if any(unicodedata.category(character) == "Cc" for character in one.expression):
        yield f"tags={one.expression!r} has a control character in it, which no tag has: remove it"
    if one.topic == retry_topic(one.group):
        yield f"{one.topic} is the group's own retry topic, which it consumes anyway: remove this subscription"
    if one.topic.startswith(DLQ_PREFIX) and one.retries < 0:
        yield f"{one.topic}: unlimited retries make no sense for dead letters"
    if one.commit == "manual" and not one.orderly:
        yield 'commit="manual" needs orderly=True: only in order "everything so far" has a meaning'
    if one.commit == "manual" and one.idempotent:
        yield 'commit="manual" handles a message again after a rollback, and idempotent= skips it then: remove one'
    if kind_of(one).in_order:
        return
    if one.retries < 0:
        why = "a concurrent message would go round for ever behind the others"
        yield f"retries=-1 (unlimited) needs orderly=True: {why}"
    if one.retry is not None and (problem := unfit_for_concurrent(one.retry)) is not None:
        yield problem
