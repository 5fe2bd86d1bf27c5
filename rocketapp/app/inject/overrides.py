"""Providers of a container that are replaced for a while: in tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from dependency_injector import providers

from rocketapp.errors import SetupError


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
