"""Fold the plugins' publish wrappers and the producers into one callable, once, at start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType

from rocketapp.app.publish.publishing import Sender
from rocketapp.errors import PluginError, RocketAppError
from rocketapp.hooks.blame import code_of, raised_by
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.hooks.publish import PublishCall, Sending
from rocketapp.hooks.surface import Surface
from rocketapp.model.outgoing import Outgoing, SendResult

ENGINE = ""
"""The owner of the code below all wrappers."""


def fold_publish(producer: Callable[[str], Sender], plugins: Plugins, surface: Surface) -> PublishCall | None:
    """What every publish goes through; None when no plugin has a wrapper.

    `producer`: gives that of a cluster. Of several wrappers the last registered is outermost. Raises PluginError.
    """
    answers = plugins.ask("publish_wrapper", app=surface)
    if not answers:
        return None
    call = _through(producer)
    owners = {code: ENGINE for code in [code_of(call)] if code is not None}
    for answer in answers:
        call = _wrapped(call, answer, owners)
    return _outermost(call, owners)


def _through(producer: Callable[[str], Sender]) -> PublishCall:
    async def send(sending: Sending) -> Sequence[SendResult]:
        sender = producer(sending.cluster)
        if sending.kind == "many":
            return await sender.send_many(sending.messages)
        if sending.kind == "send":
            return [await sender.send(message, timeout=sending.timeout) for message in sending.messages]
        for message in sending.messages:
            await sender.send_one_way(message)
        return ()

    return send


def _wrapped(call: PublishCall, answer: HookResult, owners: dict[CodeType, str]) -> PublishCall:
    if not callable(answer.value):
        raise PluginError(
            answer.plugin, f"publish_wrapper returned {answer.value!r}: return a function, or None to decline"
        )
    try:
        built: PublishCall = answer.value(call)
    except Exception as error:
        raise PluginError(
            answer.plugin, f"publish_wrapper: its wrapper raised {type(error).__name__}: {error}"
        ) from error
    if not callable(built):
        raise PluginError(answer.plugin, f"publish_wrapper: its wrapper built {built!r}, which cannot be called")
    code = code_of(built)
    if code is not None:
        owners[code] = answer.plugin
    return built


def _outermost(call: PublishCall, owners: dict[CodeType, str]) -> PublishCall:
    """Names the plugin that failed. Without a result for each message nothing says that it is stored."""
    names = ", ".join(owner for owner in owners.values() if owner)

    async def send(sending: Sending) -> Sequence[SendResult]:
        try:
            results = await call(sending)
        except RocketAppError:
            raise
        except Exception as error:
            plugin = raised_by(error, owners)
            if not plugin:
                raise
            raise PluginError(plugin, f"publish_wrapper raised {type(error).__name__}: {error}") from error
        if sending.kind != "one_way":
            count = len(results) if isinstance(results, Sequence) else None
            if count != len(sending.messages):
                said = repr(results) if count is None else f"{count} results"
                raise PluginError(
                    names, f"publish_wrapper returned {said} for {len(sending.messages)} messages: one each is needed"
                )
        return results

    return send


class WrappedSender:
    """The producer of one cluster behind the plugins' wrappers."""

    __slots__ = ("_call", "_cluster")

    def __init__(self, call: PublishCall, cluster: str) -> None:
        self._call, self._cluster = call, cluster

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        results = await self._call(Sending((message,), "send", self._cluster, timeout))
        return results[0]

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return list(await self._call(Sending(messages, "many", self._cluster, None)))

    async def send_one_way(self, message: Outgoing) -> None:
        await self._call(Sending((message,), "one_way", self._cluster, None))
