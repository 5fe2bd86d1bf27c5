"""The user's container: where arguments of handlers come from, and what tests replace in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from dependency_injector import containers, providers

from rocketapp.app.call.provided import is_scoped
from rocketapp.app.call.signature import Argument
from rocketapp.errors import SetupError


class ContainerProviders:
    """The user's container as `signature` sees it: where handlers' arguments come from."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def marked(self, marker: Any) -> Callable[[], Any]:
        """`Provide["db"]`, `Provide[Shop.db]`: what to call for the value; for `Provider[...]` the provider itself."""
        # A marker comes from this module, so it is imported already; it is slow, so apps without markers do without.
        from dependency_injector.wiring import Closing, Provider, ProvidersMap

        if isinstance(marker, cast(type, Closing)):
            raise LookupError(
                "Closing[...] has no meaning for a handler: use Provide[...]; Resources close with the app"
            )
        provider = ProvidersMap(self._container).resolve_provider(marker.provider, marker.modifier)
        if provider is None:
            raise LookupError(f"the container has no provider {marker.provider!r}: it has {self._names()}")
        _refuse_nested(provider, marker.provider)
        found = cast(Callable[[], Any], provider)
        return (lambda: found) if isinstance(marker, cast(type, Provider)) else found

    def of_type(self, kind: Any) -> Callable[[], Any] | None:
        """The provider whose class is exactly this one."""
        named = {
            name: provider
            for name, provider in self._container.providers.items()
            if isinstance(kind, type) and getattr(provider, "provides", None) is kind
        }
        if len(named) > 1:
            which = " and ".join(sorted(named))
            raise LookupError(
                f"{which} of the container all provide {kind.__qualname__}: choose one with = Provide[{min(named)!r}]"
            )
        if not named:
            return None
        ((name, provider),) = named.items()
        _refuse_nested(provider, name)
        return cast(Callable[[], Any], provider)

    def provider(self, what: type[Any] | str) -> Callable[[], Any]:
        """The provider of this name, or of exactly this class. Raises LookupError with what there is."""
        found = self._container.providers.get(what) if isinstance(what, str) else self.of_type(what)
        if found is None:
            raise LookupError(f"the container has no provider {what!r}: it has {self._names()}")
        return cast(Callable[[], Any], found)

    def _names(self) -> str:
        return ", ".join(sorted(name for name in self._container.providers if not name.startswith("__"))) or "none"


def _refuse_nested(provider: Any, name: object) -> None:
    """A generator is opened where a handler asks for it; as an argument of another provider it would stay closed."""
    nested = next((one for one in provider.traverse() if is_scoped(one)), None)
    if nested is not None:
        raise LookupError(
            f"{name!r} of the container depends on the generator {nested.provides.__qualname__}, which only a handler "
            "can ask for: make both one generator function"
        )


def instance_of(container: object, place: str) -> Any:
    """A container class stands for one instance of it. Raises SetupError for anything else."""
    if isinstance(container, type) and issubclass(container, containers.DeclarativeContainer):
        container = container()
    if not containers.is_container(container):
        raise SetupError(place, f"container={container!r} is not a dependency_injector container")
    return container


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


@contextmanager
def overridden(container: Any, overrides: Mapping[str, object], place: str) -> Iterator[None]:
    """Within: each named provider of the app's container gives this value, or what this provider gives.

    container: None when the app has none. place: that of the app.
    Raises SetupError for a name that the container does not have.
    """
    with ExitStack() as undo:
        for name, value in overrides.items():
            provider = _provider(container, name, place)
            provider.override(value if isinstance(value, providers.Provider) else providers.Object(value))
            undo.callback(provider.reset_last_overriding)
        yield


def _provider(container: Any, name: str, place: str) -> Any:
    if container is None:
        raise SetupError(place, f"overrides={name!r}: the app has no container: RocketApp(container=...)")
    known = {one: provider for one, provider in container.providers.items() if not one.startswith("__")}
    if name not in known:
        raise SetupError(
            place, f"overrides={name!r}: the container has no such provider: it has {', '.join(sorted(known))}"
        )
    return known[name]
