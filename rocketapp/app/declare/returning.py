"""The types of handlers that `publishes` takes for a Topic; publishing checks the same of each payload."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from rocketapp.model.outcome import Outcome

T = TypeVar("T")
P = ParamSpec("P")


class Returning(Protocol[T]):
    """Takes a function that returns a T, or None or an outcome in its place; returns it unchanged."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T | None]], /
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T | Outcome | None]], /
    ) -> Callable[P, Coroutine[Any, Any, T | Outcome | None]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T | None], /) -> Callable[P, T | None]: ...
    @overload
    def __call__(self, function: Callable[P, T | Outcome | None], /) -> Callable[P, T | Outcome | None]: ...
