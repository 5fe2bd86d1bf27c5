"""TestApp: an app on an embedded broker in memory, in virtual time.

    with TestApp(app) as t:                    async with TestApp(app) as t:
        t.publish("orders", {"id": 1})             await t.publish("orders", {"id": 1})
        t.advance(hours=2)                         await t.advance(hours=2)
        assert len(t.dead) == 1                    assert len(t.dead) == 1

The app runs on a loop of its own, in the thread of the test, and only within the calls of `t`: between them time
stands still. So it does not matter whether the test has a loop, nor which plugin made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from rocketapp.app.app import RocketApp
from rocketapp.app.call.provided import overridden
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.places import name_of_function
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.outgoing import PublishOptions, SendOptions, SendResult
from rocketapp.model.topic import Topic
from rocketapp.testing.driver import Driver
from rocketapp.testing.faults import Faults, check_number
from rocketapp.testing.records import BY_TEST, Dead, Dropped, Handled, Published, Retried
from rocketapp.testing.stage import Stage, settings_of
from rocketapp.wire.record import Message

T = TypeVar("T")
_DUE = 1e-6
"""Seconds of virtual time in which arrives what is sent without waiting: the end of a transaction."""
_LIMIT = 86_400.0
"""Seconds of virtual time that anything may take which has no limit of its own."""


class TestApp:
    """Starts an app for a test, and stops it: `with` in plain tests, `async with` in async ones.

    settings: options by table, `{"consumer": {"suspend": 5}}`; they come before all others. The environment and
    ./settings.toml are not read. settings_file: read this file as well.
    overrides: providers of the app's container by name, and what stands for them meanwhile: a value, or a provider.
    seed: what the app draws by chance follows from it.

    Raises what a start raises: SetupError, PluginError, ConfigError, and what startup functions raise.
    """

    __test__ = False  # pytest would take a class of this name for a test

    def __init__(
        self,
        app: RocketApp,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        settings_file: str | None = None,
        overrides: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(app, RocketApp):
            raise TypeError(f"TestApp({app!r}): give the RocketApp to test")
        settings = {} if settings is None else settings
        if not isinstance(settings, Mapping) or not all(isinstance(one, Mapping) for one in settings.values()):
            raise TypeError(f"TestApp(settings={settings!r}): give options by table, {{'consumer': {{'threads': 40}}}}")
        self.app = app
        self._settings, self._settings_file = settings, settings_file
        self._overrides, self._seed = overrides or {}, seed
        self._undo = ExitStack()
        self._driver: Driver
        self._stage: Stage
        self._faults: Faults

    def __repr__(self) -> str:
        return f"<TestApp of {self.app.name}>"

    if not TYPE_CHECKING:  # for a checker an unknown name stays an error

        def __getattr__(self, name: str) -> Any:
            """Says how to come by what only a running app has."""
            if name == "faults" or (not name.startswith("_") and hasattr(TestedApp, name)):
                raise AttributeError(
                    f"TestApp has no {name!r} before it runs: write `with TestApp(app) as t:`, and t.{name}"
                )
            raise AttributeError(f"TestApp has no attribute {name!r}", name=name, obj=self)

    def __enter__(self) -> TestedApp:
        start = self._prepare()
        try:
            self._driver.run(start)
        except BaseException:
            self._end()
            raise
        return TestedApp(self._driver, self._stage, self._faults)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._driver.run(self._stop(failed=kind is not None))
        finally:
            self._end()

    async def __aenter__(self) -> AsyncTestedApp:
        start = self._prepare()
        try:
            await self._driver.run_async(start)
        except BaseException:
            self._end()
            raise
        return AsyncTestedApp(self._driver, self._stage, self._faults)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._driver.run_async(self._stop(failed=kind is not None))
        finally:
            self._end()

    def _prepare(self) -> Coroutine[Any, Any, None]:
        settings = settings_of(self.app, self._settings, self._settings_file)
        declared = declared_of(self.app)
        self._undo.enter_context(overridden(declared.container, self._overrides, declared.place))
        self._driver = Driver()
        self._stage = Stage(self.app, self._driver.loop, settings=settings, seed=self._seed)
        self._faults = Faults(self._stage)
        return _within(_LIMIT, self._stage.start(), "the start")

    async def _stop(self, *, failed: bool) -> None:
        cut = asyncio.Event()
        if failed:
            cut.set()
        await self._faults.close()
        await _within(_LIMIT, self._stage.stop(cut), "the stop")

    def _end(self) -> None:
        try:
            self._driver.close()
        finally:
            self._undo.close()


class _Tested:
    """What both forms have in common."""

    def __init__(self, driver: Driver, stage: Stage, faults: Faults) -> None:
        self._driver, self._stage, self._app = driver, stage, stage.app
        self.faults = faults
        """What is to go wrong around the app."""

    def __repr__(self) -> str:
        return (
            f"<{self._stage.app.name} at {self.now:g} s: {len(self.handled)} handled, {len(self.retried)} retried, "
            f"{len(self.dead)} dead, {len(self.published)} published>"
        )

    @property
    def now(self) -> float:
        """Virtual seconds since the app was started."""
        return self._stage.loop.time()

    @property
    def handled(self) -> list[Handled]:
        """The messages that are done, in the order in which their handlers returned."""
        return self._stage.recorder.handled

    def handled_by(self, handler: Callable[..., Any]) -> list[Handled]:
        """Those of `handled` that this handler has done. Raises LookupError unless it is a handler of the app."""
        name, app = name_of_function(handler), self._app
        declared = declared_of(app).subscribed(app.name, ConsumerConfig())
        if name not in {one.subscription.handler_name for one in declared}:
            raise LookupError(f"{name} is not a handler of {app!r}")
        return [one for one in self.handled if one.handler == name]

    @property
    def retried(self) -> list[Retried]:
        """The attempts that failed and are followed by another."""
        return self._stage.recorder.retried

    @property
    def dead(self) -> list[Dead]:
        """The messages that are dead letters."""
        return self._stage.recorder.dead

    @property
    def dropped(self) -> list[Dropped]:
        """The messages that broadcast groups gave up."""
        return self._stage.recorder.dropped

    @property
    def published(self) -> list[Published]:
        """What the app published: its handlers, startup functions and plugins; not what the test published."""
        return self._stage.recorder.published

    @property
    def unmatched(self) -> int:
        """How many messages no handler wanted; they are done."""
        return self._stage.lifecycle.counters.unmatched

    @property
    def filtered(self) -> int:
        """How many messages filters refused; they are done."""
        return self._stage.lifecycle.counters.filtered

    def _by_test(self, call: Callable[..., Awaitable[T]], /, *given: Any, **options: Any) -> Coroutine[Any, Any, T]:
        """What is published meanwhile is the test's, and not the app's."""
        self._check_running()

        async def run() -> T:
            BY_TEST.set(True)
            return await call(*given, **options)

        return _within(_LIMIT, run(), call.__name__)

    def _running(self, call: Awaitable[T]) -> Coroutine[Any, Any, T]:
        self._check_running()

        async def run() -> T:
            result = await call
            await asyncio.sleep(_DUE)
            return result

        return _within(_LIMIT, run(), "run")

    def _then(self, seconds: float, minutes: float, hours: float) -> float:
        self._check_running()
        for name, value in (("seconds", seconds), ("minutes", minutes), ("hours", hours)):
            check_number(f"advance({name}={value!r})", value)
        duration = seconds + 60 * minutes + 3600 * hours
        if duration < 0:
            raise ValueError(f"advance({duration:g} s): time goes forwards")
        return self.now + duration

    def _settling(self, limit: float) -> Coroutine[Any, Any, None]:
        self._check_running()
        check_number(f"settle(limit={limit!r})", limit, least=0)
        return self._stage.settle(limit)

    def _check_running(self) -> None:
        if self._stage.loop.is_closed():
            raise RuntimeError(f"{self!r} has ended: only its lists can be read behind the `with TestApp(...)` block")


class TestedApp(_Tested):
    """A running app, for tests without a loop."""

    __test__ = False

    def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message to the app's cluster, as `RocketApp.publish`. It is handled in `advance` or `settle`."""
        return self._driver.run(self._by_test(self._app.publish, topic, body, **options))

    def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send one message for each body, as `RocketApp.publish_many`."""
        return self._driver.run(self._by_test(self._app.publish_many, topic, items, **options))

    def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one message and wait for what its handler answers, as `RocketApp.request`."""
        return self._driver.run(self._by_test(self._app.request, topic, body, **options))

    def run(self, call: Awaitable[T]) -> T:
        """Await this where the app runs, as its own functions do: `t.run(place(order))` for a transaction.

        Time passes as it needs it. What it publishes is the app's.
        """
        return self._driver.run(self._running(call))

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0) -> None:
        """Let so much time pass, and everything happen that falls due. Without an argument: what is due now."""
        self._driver.run_until(self._then(seconds, minutes, hours))

    def settle(self, *, limit: float = _LIMIT) -> None:
        """Let time pass until nothing is left to do: every message handled, every retry and delay over.

        Raises AssertionError with the reasons when that takes more than `limit` seconds of virtual time.
        """
        self._driver.run(self._settling(limit))


class StartTestApp(Protocol):
    """The type of pytest's fixture `test_app`: starts an app as `TestApp` does; it is stopped when the test ends."""

    def __call__(
        self,
        app: RocketApp,
        *,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        settings_file: str | None = None,
        overrides: Mapping[str, object] | None = None,
        seed: int = 0,
    ) -> TestedApp: ...


class AsyncTestedApp(_Tested):
    """A running app, for async tests."""

    async def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Awaits what `TestedApp.publish` does."""
        return await self._driver.run_async(self._by_test(self._app.publish, topic, body, **options))

    async def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Awaits what `TestedApp.publish_many` does."""
        return await self._driver.run_async(self._by_test(self._app.publish_many, topic, items, **options))

    async def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Awaits what `TestedApp.request` does."""
        return await self._driver.run_async(self._by_test(self._app.request, topic, body, **options))

    async def run(self, call: Awaitable[T]) -> T:
        """Awaits what `TestedApp.run` does."""
        return await self._driver.run_async(self._running(call))

    async def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0) -> None:
        """Awaits what `TestedApp.advance` does."""
        await self._driver.run_until_async(self._then(seconds, minutes, hours))

    async def settle(self, *, limit: float = _LIMIT) -> None:
        """Awaits what `TestedApp.settle` does."""
        await self._driver.run_async(self._settling(limit))


async def _within(limit: float, work: Coroutine[Any, Any, T], what: str) -> T:
    """In virtual time that passes freely, nothing else would ever end what waits for ever."""
    try:
        async with asyncio.timeout(limit) as timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
        raise AssertionError(f"{what} did not end within {limit:g} s of virtual time: it waits for ever") from None
