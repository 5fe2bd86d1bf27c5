"""`rocketapp.SyncClient`: `Client` for code without an event loop. It has one of its own, in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, Unpack

from rocketapp.app.places import place_of_call
from rocketapp.app.publishing import Call, PublishesSync, Publishing
from rocketapp.errors import SetupError
from rocketapp.model.outgoing import PublishOptions, SendOptions, SendResult
from rocketapp.model.topic import Topic
from rocketapp.scripts.client import Client
from rocketapp.scripts.reading import ReadOptions
from rocketapp.wire.record import Message

T = TypeVar("T")
R = TypeVar("R")
_LEFT = (
    "this client was left while the call waited, which may have been carried out: leave `with SyncClient(...)` when "
    "all threads are done with it"
)


class SyncClient(PublishesSync):
    """Talks to one cluster, inside `with`; its methods block. May be used by several threads at once.

    Arguments and errors are those of Client. `publish` and the like have a second name, that of the calls of an app
    that block: `publish_sync`.
    """

    def __init__(self, name_server: str, *, settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._client = Client(name_server, settings=settings)
        self._loop: LoopThread | None = None

    def __repr__(self) -> str:
        return f"<SyncClient over {self._client!r}>"

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise SetupError(place_of_call(), f"{self!r} is entered already: make another one")
        loop = LoopThread("rocketapp client")
        try:
            loop.run(self._client.__aenter__())
        except BaseException:
            loop.stop()
            raise
        self._loop = loop
        return self

    def __exit__(self, *_: object) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and loop.is_ours:
            try:
                loop.run(self._client.__aexit__())
            finally:
                loop.stop()

    def _through(self) -> Publishing:
        self._entered()
        return _InItsThread(self._client, self._run)

    def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message and say where it is stored. Keywords and errors are those of RocketApp.publish."""
        return self.publish_sync(topic, body, **options)

    def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send one message for each body, in batches where RocketMQ allows it; results in the same order."""
        return self.publish_many_sync(topic, items, **options)

    def publish_one_way(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer: fast, and a message that was not stored is lost unseen."""
        self.publish_one_way_sync(topic, body, **options)

    def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one message and wait for what its handler answers: see RocketApp.request."""
        return self.request_sync(topic, body, **options)

    def recall(self, topic: str | Topic[Any], handle: str, *, timeout: float | None = None) -> None:
        """Take a delayed message back before its time: see RocketApp.recall."""
        self.recall_sync(topic, handle, timeout=timeout)

    def messages(self, topic: str, **options: Unpack[ReadOptions]) -> Iterator[Message]:
        """Every message of a topic as it comes: `for message in client.messages("orders")`. See Client.messages."""
        reading = self._run(self._client._read(topic, options, place_of_call()))
        try:
            # The thread is woken once per pulled list, not once per message.
            while batch := self._run(reading.next()):
                yield from batch
        finally:
            if self._loop is not None:
                self._run(self._client._end(reading))

    def _entered(self) -> LoopThread:
        """Raises SetupError outside of `with`, and in a forked process."""
        loop = self._loop
        if loop is None:
            raise SetupError(place_of_call(), f"{self!r}: write `with SyncClient(...) as client:`")
        if not loop.is_ours:
            problem = "its thread is in the process that this one was forked from: make a client here"
            raise SetupError(place_of_call(), f"{self!r}: {problem}")
        return loop

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._entered()
        except SetupError:
            call.close()
            raise
        return loop.run(call)


class _InItsThread(Publishing):
    """Publishes through a client whose loop runs in a thread."""

    __slots__ = ("_run",)

    def __init__(self, client: Client, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__(client._entered)  # the caller may be in another event loop, as in a notebook
        self._run = run

    def blocking(self, name: str, call: Call[R]) -> R:
        found: R = self._run(call.start())
        return found


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_open = True
        """Guarded: what comes to a loop that has stopped would wait for ever."""
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to leave the client ends all the same.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """False in a forked child, which has no such thread."""
        return self._pid == os.getpid()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of the call. Interrupted, for example by Ctrl-C, the call is cancelled.

        Raises SetupError when `stop` comes first.
        """
        with self._lock:
            if not self._is_open:
                call.close()
                raise SetupError(place_of_call(), _LEFT)
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise SetupError(place_of_call(), _LEFT) from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End what other threads wait for, and the loop."""
        with self._lock:
            self._is_open = False
            asyncio.run_coroutine_threadsafe(self._end_calls(), self._loop).add_done_callback(
                lambda _: self._loop.call_soon_threadsafe(self._loop.stop)
            )
        self._thread.join()
        self._loop.close()

    async def _end_calls(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
