from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Policy, Retry, RocketApp, SetupError, Skip
from rocketapp.hooks.manager import Plugins
from rocketapp.model.subscription import Subscription
from rocketapp.plugin import PluginError, Wrapper, hookimpl
from rocketapp.testing import TestApp
from tests.unit.app.given import bound, call_of, message


class Around:
    """A plugin whose wrapper of sync handlers notes when it is passed."""

    def __init__(self, name: str, passed: list[str]) -> None:
        self.name, self.passed = name, passed

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        def for_sync(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def around(handed: Any) -> Any:
                self.passed.append(f"{self.name} in")
                outcome = call(handed)
                self.passed.append(f"{self.name} out")
                return outcome

            return around

        return Wrapper(for_sync=for_sync)


class Declines:
    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> None: ...

    @hookimpl
    def message_filter(self, subscription: Subscription) -> None: ...


class Only:
    """A filter by offset."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Callable[[Message], bool]:
        return lambda message: message.offset in self.offsets


def plugins_of(*objects: object) -> Plugins:
    plugins = Plugins()
    for number, plugin in enumerate(objects):
        plugins.register(plugin, f"plugin-{number}")
    return plugins


def folded(app: RocketApp, plugins: Plugins) -> Callable[[Any], Any]:
    return call_of(app, plugins=plugins)


def sync_app(passed: list[str]) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def handle(message: Message) -> str:
        passed.append("handler")
        return "done"

    return app


def test_the_last_registered_wrapper_is_outermost() -> None:
    passed: list[str] = []
    call = folded(sync_app(passed), plugins_of(Around("first", passed), Around("last", passed)))
    assert call(message()) == "done"
    assert passed == ["last in", "first in", "handler", "first out", "last out"]


def test_a_plugin_that_declines_costs_nothing() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def handle(message: Message) -> None: ...

    assert folded(app, plugins_of(Declines(), Declines())) is bound(app).function


def test_a_wrapper_of_the_wrong_kind_names_plugin_and_handler() -> None:
    class OnlyAsync:
        @hookimpl
        def handler_wrapper(self, subscription: Subscription) -> Wrapper:
            return Wrapper(for_async=lambda call: call)

    with pytest.raises(
        PluginError,
        match=r"plugin plugin-0: handler_wrapper: its wrapper supports async handlers, and .*handle .*is a sync one",
    ):
        folded(sync_app([]), plugins_of(OnlyAsync()))


def test_a_wrapper_without_a_half_is_refused() -> None:
    class Empty:
        @hookimpl
        def handler_wrapper(self, subscription: Subscription) -> Wrapper:
            return Wrapper()

    with pytest.raises(Exception, match="needs for_sync=, for_async= or both"):
        folded(sync_app([]), plugins_of(Empty()))


@pytest.mark.parametrize("answer", ["text", Wrapper(for_sync=lambda call: None)])  # type: ignore[arg-type, return-value]
def test_an_answer_that_is_no_wrapper_names_the_plugin(answer: object) -> None:
    class Wrong:
        @hookimpl
        def handler_wrapper(self, subscription: Subscription) -> object:
            return answer

    with pytest.raises(PluginError, match="plugin plugin-0"):
        folded(sync_app([]), plugins_of(Wrong()))


def test_a_filtered_message_is_done_and_reaches_no_wrapper() -> None:
    passed: list[str] = []
    call = folded(sync_app(passed), plugins_of(Only(1, 2), Around("wrapper", passed), Only(2, 3)))
    outcomes = [call(message(offset=offset)) for offset in (1, 2, 3)]
    assert passed == ["wrapper in", "handler", "wrapper out"]
    assert [type(outcome) for outcome in outcomes] == [Skip, str, Skip]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("batch", [None, 10])
def test_what_filter_refuses_is_done_and_counted_and_no_handler_sees_it(is_async: bool, batch: int | None) -> None:
    app, seen = RocketApp("shop"), list[str]()

    def note(given: Any) -> None:
        seen.extend(one.text() for one in (given if batch else [given]))

    async def single(message: Message) -> None:
        note(message)

    async def several(messages: list[Message]) -> None:
        note(messages)

    def several_in_a_thread(messages: list[Message]) -> None:
        note(messages)

    def in_a_thread(message: Message) -> None:
        note(message)

    handlers = {(True, None): single, (True, 10): several, (False, None): in_a_thread, (False, 10): several_in_a_thread}
    app.subscribe("orders", start="first", batch=batch, filter=lambda message: message.text() != "no")(
        handlers[is_async, batch]
    )
    with TestApp(app) as t:
        for body in ("yes", "no", "also yes"):
            t.publish("orders", body)
        t.settle()
        assert sorted(seen) == ["also yes", "yes"]
        assert sorted(one.message.text() for one in t.handled) == ["also yes", "yes"]
        assert t.filtered == 1


def test_a_filter_that_raises_fails_the_attempt() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", filter=lambda message: 1 / 0, retries=0, start="first")
    async def settle(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert t.dead[0].reason.startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("given", "problem"),
    [(5, "give a function of the message"), (lambda: True, r"cannot be called with \(message\)")],
)
def test_what_is_no_filter_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        RocketApp("shop").subscribe("orders", filter=given)(sync_handler)


def sync_handler(message: Message) -> None: ...


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_batch_keeps_what_the_filter_wants(is_async: bool) -> None:
    app, seen = RocketApp("shop"), []

    def handle(messages: list[Message]) -> None:
        seen.append([message.offset for message in messages])

    async def handle_async(messages: list[Message]) -> None:
        handle(messages)

    app.subscribe("orders", batch=10)(handle_async if is_async else handle)
    call = folded(app, plugins_of(Only(1, 3)))
    for batch in ([1, 2, 3], [4, 5]):
        outcome = call([message(offset=offset) for offset in batch])
        if is_async:
            await outcome
    assert seen == [[1, 3]]


class Strict:
    """A filter that cannot read every message."""

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Callable[[Message], bool]:
        return lambda message: int(message.text()) % 2 == 1


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("said", [None, 7, Skip("enough"), Retry(after=0)], ids=str)
def test_of_a_batch_only_the_message_fails_whose_filter_raised(is_async: bool, said: Any) -> None:
    app, seen = RocketApp("shop", plugins=[Strict()]), list[str]()

    def handle(messages: list[Message]) -> Any:
        seen.extend(message.text() for message in messages)
        return said

    async def handle_async(messages: list[Message]) -> Any:
        return handle(messages)

    app.subscribe("orders", start="first", batch=10, retries=0)(handle_async if is_async else handle)
    with TestApp(app) as t:
        t.publish_many("orders", ["1", "2", "three", "5"])
        t.settle()
        assert sorted(seen) == ["1", "5"]
        reasons = {letter.message.text(): letter.reason for letter in t.dead}
        assert "ValueError: invalid literal" in reasons.pop("three")
        assert sorted(reasons) == (["1", "5"] if isinstance(said, Retry) else [])
        assert t.filtered == 1


@pytest.mark.parametrize("batch", [None, 5])
def test_a_policy_says_what_the_exception_of_a_filter_means_in_a_batch_too(batch: int | None) -> None:
    app = RocketApp("shop", plugins=[Strict()])

    async def handle(given: Message) -> None: ...

    async def handle_all(given: list[Message]) -> None: ...

    policy = Policy(on={ValueError: DeadLetter})
    app.subscribe("orders", start="first", batch=batch, retry=policy)(handle_all if batch else handle)
    with TestApp(app) as t:
        t.publish("orders", "three")
        t.settle()
        assert not t.retried
        assert ["invalid literal" in dead.reason for dead in t.dead] == [True]


def test_a_handler_that_empties_its_list_fails_all_of_it_beside_filtered_messages() -> None:
    app = RocketApp("shop")

    def handle(messages: list[Message]) -> None:
        messages.clear()
        raise ValueError("no room")

    app.subscribe("orders", batch=10)(handle)
    batch = [message(offset=offset) for offset in (1, 2, 3)]
    outcomes = folded(app, plugins_of(Only(1, 3)))(batch)
    assert [type(outcomes[one]) for one in batch] == [Retry, Skip, Retry]


class Awaits:
    """A filter that nothing awaits."""

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Any:
        async def wanted(message: Message) -> bool:
            return False

        return wanted


def test_an_async_filter_is_refused_instead_of_wanting_everything() -> None:
    app = RocketApp("shop", plugins=[Awaits()])

    @app.subscribe("orders")
    async def handle(message: Message) -> None: ...

    with pytest.raises(PluginError, match="returned an async function, of which every answer is true"):
        TestApp(app).__enter__()
