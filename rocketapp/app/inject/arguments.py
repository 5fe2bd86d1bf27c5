"""Where handlers' arguments come from, beside the message: the user's container, then the plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketapp.app.call.signature import Providers
from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins


class ArgumentSources:
    """The container and the plugins of one app, as `signature` sees them."""

    def __init__(self, container: Providers | None, plugins: Callable[[], Plugins]) -> None:
        """`plugins()` is asked for an annotation that nothing else fills: finding plugins takes its time."""
        self._container, self._plugins = container, plugins

    @property
    def has_container(self) -> bool:
        return self._container is not None

    def marked(self, marker: Any) -> Callable[[], Any]:
        if self._container is None:
            raise LookupError("there is no container: give the app one, RocketApp(container=...)")
        return self._container.marked(marker)

    def of_type(self, kind: Any) -> Callable[[], Any] | None:
        return None if self._container is None else self._container.of_type(kind)

    def of_plugin(self, kind: Any) -> Callable[[], Any] | None:
        """Raises PluginError for an answer that cannot be called, LookupError when several plugins answer."""
        answers = self._plugins().ask("argument_provider", kind=kind)
        if len(answers) > 1:
            raise LookupError(f"plugins {' and '.join(answer.plugin for answer in answers)} all provide {kind!r}")
        if not answers:
            return None
        provide: Callable[[], Any] = answers[0].value
        if not callable(provide):
            raise PluginError(answers[0].plugin, f"argument_provider returned {provide!r}: return a function, or None")
        return provide
