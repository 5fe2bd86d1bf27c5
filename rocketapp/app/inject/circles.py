"""Providers of a container that need each other: asking one of them would never end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dependency_injector import providers

from rocketapp.app.call.signature import Argument
from rocketapp.errors import SetupError

_LATER = (providers.Delegate, providers.Selector, providers.Configuration, providers.Aggregate)
"""What these hold is asked for later, chosen from, or no provider of objects: a circle through them may end."""


def refuse_circles(arguments: tuple[Argument, ...], place: str) -> None:
    """Raises SetupError, with `place`, for an argument whose provider needs itself."""
    for argument in arguments:
        if isinstance(argument.provide, providers.Provider) and (circle := circle_of(argument.provide)):
            path = " -> ".join(circle)
            raise SetupError(place, f"argument {argument.name!r}: the container cannot provide it: {path}")


def circle_of(provider: Any) -> list[str]:
    """The names of providers that need each other, the first one again at the end; empty without a circle."""
    done: set[int] = set()
    path: list[Any] = [provider]
    waiting = [_needed_by(provider)]
    while waiting:
        needed = next(waiting[-1], None)
        if needed is None:
            waiting.pop()
            done.add(id(path.pop()))
        elif any(needed is one for one in path):
            begin = next(at for at, one in enumerate(path) if one is needed)
            return [_name_of(one) for one in (*path[begin:], needed)]
        elif id(needed) not in done:
            path.append(needed)
            waiting.append(_needed_by(needed))
    return []


def _needed_by(provider: Any) -> Iterator[Any]:
    """The providers that are asked whenever this one is."""
    if provider.last_overriding is not None:
        return iter((provider.last_overriding,))
    if isinstance(provider, _LATER):
        return iter(())
    replaced = provider.overridden
    return (one for one in provider.related if one not in replaced and not providers.is_delegated(one))


def _name_of(provider: Any) -> str:
    name: str = getattr(getattr(provider, "provides", None), "__qualname__", type(provider).__name__)
    return name
