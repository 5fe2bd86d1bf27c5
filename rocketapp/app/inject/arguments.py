"""Where handlers' arguments come from, beside the message: the user's container, then the plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketapp.app.call.signature import Providers
from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins


class ArgumentSources:
    """The container and the plugins of one app, as `signature` sees them."""

    def __init__(
        self,
        container: Providers | None,
        plugins: Callable[[], Plugins],
        options: tuple[type[Any], Callable[[], Any]] | None = None,
    ) -> None:
        """`plugins()` is asked for an annotation that nothing else fills: finding plugins takes its time.

        `options`: the class of the app's own table of settings, and what gives its values while the app runs.
        """
        self._container, self._plugins, self._options = container, plugins, options

    @property
    def has_container(self) -> bool:
        return self._container is not None

    def marked(self, marker: Any) -> Callable[[], Any]:
        if self._container is None:
            raise LookupError("the app has no container: give it one, RocketApp(container=...)")
        return self._container.marked(marker)

    def of_type(self, kind: Any) -> Callable[[], Any] | None:
        if self._options is not None and kind is self._options[0]:
            return self._options[1]
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
