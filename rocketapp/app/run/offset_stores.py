"""The plugin that keeps the offsets of an app's groups; most apps have none, and brokers keep them."""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.consumer.group.offset_store import OffsetStore
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.manager import Plugins
from rocketapp.hooks.surface import Surface

_METHODS = ("open", "close", "take", "read", "write")


def offset_store_of(plugins: Plugins, surface: Surface) -> OffsetStore | None:
    """Raises PluginError for an answer that lacks a method, and for a second store."""
    answers = plugins.ask("offset_store", app=surface)
    for answer in answers:
        missing = [name for name in _METHODS if not callable(getattr(answer.value, name, None))]
        if missing:
            problem = (
                f"offset_store returned {answer.value!r}, which has no {', '.join(missing)}: return an OffsetStore"
            )
            raise PluginError(answer.plugin, problem)
    if len(answers) > 1:
        raise PluginError(answers[1].plugin, f"offset_store: plugin {answers[0].plugin} keeps the offsets already")
    store: OffsetStore | None = answers[0].value if answers else None
    return store


def check_clusters(store: OffsetStore | None, clusters: Iterable[str]) -> None:
    """A store knows a queue by topic, broker and id, and clusters often name their brokers alike.

    `clusters`: those that are subscribed on. Raises SetupError for a second one.
    """
    names = [cluster or "the unnamed one" for cluster in dict.fromkeys(clusters)]
    if store is not None and len(names) > 1:
        problem = f"an offset store keeps the offsets of one cluster, and handlers subscribe on {', '.join(names)}"
        raise SetupError("", f"{problem}: give each cluster an app of its own")
