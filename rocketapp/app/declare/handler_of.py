"""The types of handlers that `subscribe` takes for a Topic; registration checks the same, wherever the payload is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, overload

from rocketapp.app.call.context import Context
from rocketapp.app.publish.publisher import Publisher
from rocketapp.wire.record import Message

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class HandlerOf(Protocol[T]):
    """Makes a function a handler whose payload, or list of payloads, is a T; returns it unchanged.

    A checker sees the payload when it is the first argument.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[T, P], R], /) -> Callable[Concatenate[T, P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[list[T], P], R], /) -> Callable[Concatenate[list[T], P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Message, P], R], /) -> Callable[Concatenate[Message, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Message], P], R], /
    ) -> Callable[Concatenate[list[Message], P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Callable[Concatenate[Context, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Publisher, P], R], /
    ) -> Callable[Concatenate[Publisher, P], R]: ...
