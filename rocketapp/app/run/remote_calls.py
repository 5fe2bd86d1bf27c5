"""Fold what plugins want to see of remote calls into one function for connections; None when no plugin wants any."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rocketapp.app.run.plugin_failures import PluginFailures
from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins
from rocketapp.hooks.remote import Answered, Calling, RemoteAnswer, RemoteCall
from rocketapp.hooks.surface import Surface
from rocketapp.transport.connection import Connection
from rocketapp.transport.watched import NewConnection, Told, Watch, WatchedConnection
from rocketapp.wire.command import Command


def connections(plugins: Plugins, surface: Surface) -> NewConnection:
    """What makes the connections of an app. Raises PluginError for an answer that cannot be called."""
    watch = fold_remote_calls(plugins, surface)
    return Connection if watch is None else partial(WatchedConnection, watch)


def fold_remote_calls(plugins: Plugins, surface: Surface) -> Watch | None:
    """In the order of registration before a request, in the reverse after it."""
    answers = plugins.ask("remote_call", app=surface)
    for answer in answers:
        if not callable(answer.value):
            raise PluginError(
                answer.plugin, f"remote_call returned {answer.value!r}: return a function, or None to decline"
            )
    return _watch([(answer.plugin, answer.value) for answer in answers]) if answers else None


def _watch(calling: list[tuple[str, Calling]]) -> Watch:
    failures = PluginFailures()

    def asked(address: str, command: Command) -> Told | None:
        assert command.fields is not None
        call = RemoteCall(address, command.code, command.fields, command.body)
        told: list[tuple[str, Answered]] = []
        for plugin, one in calling:
            answered = _guarded(failures, plugin, lambda one=one: one(call))  # type: ignore[misc]
            if answered is not None:
                told.append((plugin, answered))
        return partial(_tell, failures, told) if told else None

    return asked


def _tell(failures: PluginFailures, told: list[tuple[str, Answered]], result: Command | BaseException | None) -> None:
    if isinstance(result, Command):
        answer = RemoteAnswer(result.code, result.remark or "", None)
    else:
        answer = RemoteAnswer(None, "", result)
    for plugin, answered in reversed(told):
        _guarded(failures, plugin, partial(answered, answer))


def _guarded(failures: PluginFailures, plugin: str, call: Callable[[], Answered | None]) -> Answered | None:
    """A plugin that fails is named, and the request goes on."""
    try:
        return call()
    except Exception as error:
        failures.tell(f"plugin {plugin}", "a remote call", error)
        return None
