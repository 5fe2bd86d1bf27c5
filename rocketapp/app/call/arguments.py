"""Reads the signature of a handler at registration, and fills its arguments per message.

Every parameter without a default is filled by the framework, or refused with the line of the function and the fix. One
with a default is left alone, unless the default marks a provider of the user's container, or the annotation is
`Message`, `Context` or `Publisher`.

Nothing is inspected per message: the shape of the function is known at start, and for each shape there is one closure.
For a plain `(message)` handler the callable is the function itself.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

from rocketapp.app.call.chain import Call, Layer, beside_others, sifted
from rocketapp.app.call.context import Context, Pull, SyncPull, context_of, publisher_of
from rocketapp.app.call.provided import Get, Part, Providers, async_call, checked, getter, sync_call
from rocketapp.app.call.returned import decided
from rocketapp.app.codecs import UnfitTypeError, without_metadata, without_none
from rocketapp.app.payloads import described, problem_of
from rocketapp.app.places import plain_function
from rocketapp.app.publishing import Publisher, Publishing
from rocketapp.errors import SetupError
from rocketapp.hooks.hook_types import CheckedArgument
from rocketapp.model.outcome import DeadLetter, Decisions, Outcomes
from rocketapp.model.subscription import Subscription
from rocketapp.wire.record import Message

_POSSIBLE = (
    "Message, bytes, str, dict, a msgspec Struct, dataclass, TypedDict or pydantic model, Context, Publisher, "
    "or a type that your container or a plugin provides"
)
_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class Kind(Enum):
    """What fills a parameter."""

    MESSAGE = "Message"
    PAYLOAD = "payload"
    CONTEXT = "Context"
    PUBLISHER = "Publisher"
    PROVIDER = "provider"
    PULL = "Pull"
    APP = "the app"


_OUR_KINDS = ((Context, Kind.CONTEXT), (Publisher, Kind.PUBLISHER), (Pull, Kind.PULL), (SyncPull, Kind.PULL))
_OURS = (Message, *(kind for kind, _ in _OUR_KINDS))


_Provide = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter that the framework fills.

    getter: `Payloads.getter` for the payload's type; called at start, when all codecs and upcasters are known.
    type: the type of the payload.
    """

    name: str
    kind: Kind
    by_name: bool = False
    getter: Callable[..., Callable[[Message], Any]] | None = None
    type_name: str = ""
    type: Any = None
    provide: _Provide | None = None

    def part(self, get: Get) -> Part:
        """This argument with the function that gives its value per message."""
        return Part(self.name if self.by_name else None, self.kind is Kind.PROVIDER, get)


class UnresolvedError(Exception):
    """An annotation names something that is not defined yet: read the signature again at start."""


def read_signature(
    function: Callable[..., Any],
    *,
    batch: bool,
    place: str,
    providers: Providers,
    names: Mapping[str, Any],
    is_last: bool = True,
) -> tuple[Argument, ...]:
    """What fills each parameter, in order. `names`: local names at the declaration, for annotations that are strings.

    Raises SetupError; UnresolvedError for an annotation that may be defined later, unless `is_last`.
    """
    reader = _Reader(function, place, batch, providers, names)
    arguments = reader.arguments(is_last)
    reader.refuse_nothing_filled(arguments)
    reader.refuse_doubles(arguments)
    return arguments


def read_lifecycle_signature(
    function: Callable[..., Any], what: str, app_class: type[Any], place: str, providers: Providers, *, is_last: bool
) -> tuple[Argument, ...]:
    """As `read_signature`, for a function that runs at start or stop: there is no message, and it may ask for the app.

    what: such as `an on_startup function`.
    """
    return _LifecycleReader(function, place, False, providers, {}, what, app_class).arguments(is_last)


@dataclass
class _Reader:
    """Reads the parameters of one function.

    _sole: what a sole parameter without an annotation gets.
    """

    _function: Callable[..., Any]
    _place: str
    _batch: bool
    _providers: Providers
    _names: Mapping[str, Any]
    _possible: ClassVar[str] = _POSSIBLE
    _sole: ClassVar[Kind] = Kind.MESSAGE

    def __post_init__(self) -> None:
        try:
            signature = inspect.signature(self._function)
        except (TypeError, ValueError) as error:
            self._refuse(f"its arguments cannot be read ({error}): wrap it in a function of your own")
        self.parameters = tuple(signature.parameters.values())
        required = [one for one in self.parameters if _must_be_filled(one)]
        self._is_sole = len(required) == 1
        self._globals = getattr(plain_function(self._function), "__globals__", {})

    def arguments(self, is_last: bool) -> tuple[Argument, ...]:
        """What fills the parameters, in order; parameters that are left alone are missing."""
        try:
            return self._arguments()
        except UnresolvedError as error:
            if not is_last:
                raise
            mend = "import or define it outside of `if TYPE_CHECKING`, at the top of the module"
            raise SetupError(self._place, f"{error}: {mend}") from error

    def _arguments(self) -> tuple[Argument, ...]:
        arguments, left_one_alone = [], False
        for parameter in self.parameters:
            argument = self._argument(parameter)
            if argument is None:
                left_one_alone = True
                continue
            by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY or left_one_alone
            if by_name and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                mend = "it is positional-only behind one that is left to its default: move it to the front"
                self._refuse(f"argument {parameter.name!r}: {mend}")
            arguments.append(replace(argument, by_name=by_name))
        return tuple(arguments)

    def _argument(self, parameter: inspect.Parameter) -> Argument | None:
        """What fills this parameter; None leaves it alone."""
        if (marker := _marker_in(parameter.default)) is not None:
            return self._marked(parameter, marker)
        if not _must_be_filled(parameter):
            return self._in_spite_of_default(parameter)
        if parameter.annotation is inspect.Parameter.empty:
            if self._is_sole:
                return Argument(parameter.name, self._sole)
            mend = f"has no annotation: say what it is to be, one of {self._possible}"
            if parameter.name == "self":
                mend = "is missing: declare the method of an object, app.subscribe(...)(shop.settle)"
            self._refuse(f"argument {parameter.name!r} {mend}")
        annotation = self._resolved(parameter.name, parameter.annotation)
        marker = next((one for one in typing.get_args(annotation)[1:] if _marker_in(one)), None)
        if marker is not None:
            return self._marked(parameter, marker)
        return self._annotated(parameter, without_metadata(annotation))

    def _in_spite_of_default(self, parameter: inspect.Parameter) -> Argument | None:
        """Fill a parameter with a default only if it is a Message, Context or Publisher: theirs is for direct calls."""
        annotation = parameter.annotation
        if isinstance(annotation, str) and not any(kind.__name__ in annotation for kind in _OURS):
            return None  # it may name what is there for type checkers alone
        kind = without_none(self._resolved(parameter.name, annotation))
        if kind in _OURS:
            return self._annotated(parameter, kind)
        if typing.get_origin(kind) is list and typing.get_args(kind) == (Message,):
            return self._annotated(parameter, kind)
        return None

    def refuse_nothing_filled(self, arguments: tuple[Argument, ...]) -> None:
        """Refuse a function with only defaults and `*args`: its author surely expects the message."""
        if self.parameters and not arguments:
            names = " and ".join(f"{_STARS.get(one.kind, '')}{one.name}" for one in self.parameters)
            self._refuse(
                f"nothing fills {names}: add an argument for the message, such as `message: Message`, without a default"
            )

    def refuse_doubles(self, arguments: tuple[Argument, ...]) -> None:
        """Refuse two parameters that would get the same object."""
        for kind in (Kind.MESSAGE, Kind.PAYLOAD, Kind.CONTEXT, Kind.PUBLISHER, Kind.PULL):
            same = [argument.name for argument in arguments if argument.kind is kind]
            if len(same) > 1:
                hint = "; keys and properties are in an argument `message: Message`" if kind is Kind.PAYLOAD else ""
                self._refuse(f"arguments {' and '.join(map(repr, same))} each get the {kind.value}: keep one{hint}")

    def _annotated(self, parameter: inspect.Parameter, annotation: Any) -> Argument:
        provide = self._provided(self._providers.of_type, annotation)
        if provide is not None:
            return Argument(parameter.name, Kind.PROVIDER, provide=provide)
        ours = next((kind for one, kind in _OUR_KINDS if annotation is one), None)
        if ours is not None:
            return Argument(parameter.name, ours, type=annotation)
        kind, is_list = annotation, typing.get_origin(annotation) is list
        if is_list:
            inner = typing.get_args(annotation)[0]
            kind = self._resolved(parameter.name, getattr(inner, "__forward_arg__", inner))
        is_payload = kind is not Message and self._is_payload(parameter.name, kind)
        if kind is not Message and not is_payload:
            provide = self._provided(self._providers.of_plugin, annotation)
            if provide is not None:
                return Argument(parameter.name, Kind.PROVIDER, provide=provide)
            self._refuse(
                f"argument {parameter.name!r} has the annotation {described(annotation)}, which nothing fills: "
                f"annotate it as {_POSSIBLE}, or give it a default"
            )
        self._refuse_wrong_count(parameter.name, described(kind), is_list)
        if not is_payload:
            return Argument(parameter.name, Kind.MESSAGE)
        getter = partial(self._providers.payloads.getter, kind)
        return Argument(parameter.name, Kind.PAYLOAD, getter=getter, type_name=described(kind), type=kind)

    def _refuse_wrong_count(self, name: str, kind: str, is_list: bool) -> None:
        if self._batch and not is_list:
            self._refuse(f"argument {name!r} takes one {kind}, but batch= hands over many: annotate it as list[{kind}]")
        if is_list and not self._batch:
            self._refuse(
                f"argument {name!r} takes a list, but messages come singly: add batch=, or annotate it as {kind}"
            )

    def _is_payload(self, name: str, kind: Any) -> bool:
        try:
            return self._providers.payloads.takes(kind)
        except NameError as error:
            raise UnresolvedError(f"argument {name!r}: in {described(kind)}, {error}") from error
        except UnfitTypeError as error:
            self._refuse(f"argument {name!r}: {described(kind)} cannot be a payload: {error}")

    def _marked(self, parameter: inspect.Parameter, marker: Any) -> Argument | None:
        if not self._providers.has_container:
            if hasattr(self._function, "__wrapped__"):
                return None  # dependency_injector's @inject stands before the function and fills it
            self._refuse(
                f"argument {parameter.name!r} asks for a provider: give the app a container, RocketApp(container=...)"
            )
        provide = self._provided(self._providers.marked, marker, f"argument {parameter.name!r}: ")
        return Argument(parameter.name, Kind.PROVIDER, provide=provide)

    def _provided(self, look: Callable[[Any], _Provide | None], kind: Any, where: str = "") -> _Provide | None:
        try:
            return look(kind)
        except LookupError as error:
            self._refuse(f"{where}{error.args[0]}")

    def _resolved(self, name: str, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, self._globals, self._names)  # the user's own annotation, in its own module
        except NameError as error:
            raise UnresolvedError(f"argument {name!r}: {error}, in the annotation {annotation!r}") from error
        except Exception as error:
            self._refuse(f"argument {name!r}: the annotation {annotation!r} cannot be evaluated: {error}")

    def _refuse(self, problem: str) -> NoReturn:
        raise SetupError(self._place, problem)


@dataclass
class _LifecycleReader(_Reader):
    """Reads the parameters of a function that runs at start or stop."""

    what: str
    app_class: type[Any]
    _sole = Kind.APP
    _possible = "the app, a Publisher, or a type that your container or a plugin provides"

    def _resolved(self, name: str, annotation: Any) -> Any:
        if isinstance(annotation, str) and annotation.rpartition(".")[2] == self.app_class.__name__:
            return self.app_class  # it may be there for type checkers alone
        return super()._resolved(name, annotation)

    def _annotated(self, parameter: inspect.Parameter, annotation: Any) -> Argument:
        is_base = isinstance(annotation, type) and issubclass(self.app_class, annotation)
        if annotation is typing.Any or (is_base and annotation not in (object, Publisher)):
            return Argument(parameter.name, Kind.APP)
        if annotation is Publisher:
            return Argument(parameter.name, Kind.PUBLISHER)
        provide = self._provided(self._providers.of_type, annotation)
        provide = provide or self._provided(self._providers.of_plugin, annotation)
        if provide is None or isinstance(provide, CheckedArgument):
            self._refuse(
                f"argument {parameter.name!r} of {self.what} is a {described(annotation)}, which nothing fills here: "
                f"annotate it as {self.app_class.__name__}, Publisher or what the container provides, or set a default"
            )
        return Argument(parameter.name, Kind.PROVIDER, provide=provide)

    def _in_spite_of_default(self, parameter: inspect.Parameter) -> None:
        """Defaults are kept."""


def _must_be_filled(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind not in _STARS


def _marker_in(value: Any) -> Any:
    """The value if it is a marker of dependency_injector (`Provide[...]`), else None."""
    return value if getattr(type(value), "__IS_MARKER__", False) is True else None


class Decoded(list[Any]):
    """The messages of a batch that could be decoded, with their payloads in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[Any] = []


def _sift(messages: list[Any], decode: Get) -> tuple[Decoded, Outcomes]:
    """Decode a batch. `decode` takes a message and returns its payload or raises DeadLetter."""
    good, bad = Decoded(), Outcomes()
    payloads = good.payloads
    for message in messages:
        try:
            payload = decode(message)
        except DeadLetter as dead:
            bad[message] = dead
        else:
            good.append(message)
            payloads.append(payload)
    return good, bad


def inner_layers(
    arguments: tuple[Argument, ...], subscription: Subscription, publishing: Publishing, decisions: Decisions | None
) -> list[Layer]:
    """The innermost layers: fill the arguments, and end a call that exceeds its timeout.

    `publishing`: the running app's.
    decisions: receives what `Context.commit` and `rollback` decide; None for a handler that commits by returning.
    """

    def bind(function: Call) -> Call:
        call = _filled(function, arguments, subscription, publishing, decisions)
        return call if decisions is None else decided(call, decisions, subscription)

    layers = [Layer("arguments", ", ".join(argument.name for argument in arguments), bind)]
    if subscription.batch is not None and any(argument.kind is Kind.PAYLOAD for argument in arguments):
        # Outside of what maps exceptions and commits: an undecodable message hides nothing from it.
        layers.append(Layer("answer", "undecodable bodies", partial(beside_others, subscription=subscription)))
    if subscription.timeout is not None:
        layers.append(Layer("timeout", f"{subscription.timeout:g} s", partial(timed, seconds=subscription.timeout)))
    return layers


def timed(function: Call, seconds: float) -> Call:
    """The function with a timeout in seconds. Only the function itself is cancelled, not the layers around it."""

    async def within_time(*positional: Any, **named: Any) -> Any:
        async with asyncio.timeout(seconds):
            return await function(*positional, **named)

    return within_time


def _filled(
    function: Call,
    arguments: tuple[Argument, ...],
    subscription: Subscription,
    publishing: Publishing,
    decisions: Decisions | None,
) -> Call:
    """A callable that takes a message (a list with `batch=`) and calls the function with its arguments."""
    payload = next((argument for argument in arguments if argument.kind is Kind.PAYLOAD), None)
    if len(arguments) == 1 and not arguments[0].by_name:  # of most handlers
        if arguments[0].kind is Kind.MESSAGE:
            return function
        if payload is not None and subscription.batch is None:
            return _payload(payload, subscription, then=function)
    get = partial(_getter, subscription=subscription, publishing=publishing, decisions=decisions)
    if subscription.batch is None or payload is None:
        return _call_of(function, [one.part(get(one)) for one in arguments], subscription.is_async)
    # The handler's list is its own: what it takes out of it is still part of what failed.
    of_decoded: Mapping[Kind, Get] = {Kind.PAYLOAD: attrgetter("payloads"), Kind.MESSAGE: list}
    parts = [one.part(of_decoded.get(one.kind) or get(one)) for one in arguments]
    call = _call_of(function, parts, subscription.is_async)
    return sifted(call, partial(_sift, decode=_payload(payload, subscription)), subscription)


def undecodable(subscription: Subscription, argument: Argument, error: Exception) -> DeadLetter:
    """The dead letter for a message that cannot be decoded, with everything needed to see why."""
    return DeadLetter(
        f"{subscription.handler_name}: the body cannot be read as {argument.type_name}: {problem_of(error)}"
    )


def _call_of(function: Call, parts: list[Part], is_async: bool) -> Call:
    """One closure for each shape of signature; the common shapes without a loop over arguments."""
    if not parts:
        return lambda _message: function()
    if any(part.is_provided for part in parts):
        return async_call(function, parts) if is_async else sync_call(function, parts)
    gets = [part.get for part in parts if part.name is None]
    if named := [(part.name, part.get) for part in parts if part.name is not None]:
        return lambda message: function(*[get(message) for get in gets], **{name: get(message) for name, get in named})
    first = gets[0]
    if len(gets) == 1:
        return lambda message: function(first(message))
    second = gets[1]
    if len(gets) == 2:
        return lambda message: function(first(message), second(message))
    return lambda message: function(*[get(message) for get in gets])


def _getter(argument: Argument, subscription: Subscription, publishing: Publishing, decisions: Decisions | None) -> Get:
    """A function from a message to the value of one argument."""
    if argument.kind is Kind.MESSAGE:
        return lambda message: message
    if argument.kind is Kind.CONTEXT:
        return context_of(subscription, publishing, decisions)
    if argument.kind is Kind.PUBLISHER:
        return publisher_of(subscription, publishing)
    if argument.kind is Kind.PULL:
        return lambda one: argument.type(one, subscription.group)
    if argument.kind is Kind.PROVIDER:
        assert argument.provide is not None, "a provider's argument has its provider"
        provide, place = checked(argument.name, argument.provide, subscription), subscription.place
        return getter(argument.name, provide, is_async=subscription.is_async, place=place, loop=publishing.loop)
    return _payload(argument, subscription)


def _payload(argument: Argument, subscription: Subscription, then: Callable[[Any], Any] | None = None) -> Get:
    assert argument.getter is not None, "a payload's argument has its getter"
    return argument.getter(wrong=partial(undecodable, subscription, argument), then=then)
