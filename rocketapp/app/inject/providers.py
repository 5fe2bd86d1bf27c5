"""The user's container as handlers see it: where their arguments come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from dependency_injector import containers

from rocketapp.app.call.provided import is_scoped
from rocketapp.errors import SetupError


class ContainerProviders:
    """The user's container as `signature` sees it: where handlers' arguments come from."""

    def __init__(self, container: Any) -> None:
        self._container = container

    @property
    def has_container(self) -> bool:
        return True

    def of_plugin(self, kind: Any) -> Callable[[], Any] | None:
        return None

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
