"""Middlewares and exception handlers of an app and its routers, around handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rocketapp import DeadLetter, Message, Outcomes, Retry, RocketApp, Router, SetupError, Skip
from rocketapp.consumer.modes.outcomes import failures_of
from tests.unit.app.given import bound, call_of, line_of, message
from tests.unit.consumer.fake_cluster import subscription

ASYNC = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


class Move(msgspec.Struct):
    item: str


def subscribed(app: Any, function: Callable[[Message], Any], *, is_async: bool, **options: Any) -> None:
    """The function as an async handler, or as it is."""

    async def handler(message: Message) -> Any:
        return function(message)

    app.subscribe("orders", **options)(handler if is_async else function)


def middleware_of(app: Any, name: str, passed: list[str]) -> None:
    """Middlewares for handlers of both kinds."""

    @app.middleware
    def sync(message: Any, call_next: Callable[[Any], Any]) -> Any:
        passed.append(f"{name} in")
        outcome = call_next(message)
        passed.append(f"{name} out")
        return outcome

    @app.middleware
    async def around(message: Any, call_next: Callable[[Any], Any]) -> Any:
        passed.append(f"{name} in")
        outcome = await call_next(message)
        passed.append(f"{name} out")
        return outcome


class Collected:
    """Has a decorator `middleware`, as an app has."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def middleware(self, function: Any) -> Any:
        self.found.append(function)
        return function


def handled(app: RocketApp, handed: Any = None) -> Any:
    """What the chain returns, or the exception that it raises."""
    is_async = bound(app).subscription.is_async
    try:
        result = call_of(app)(message() if handed is None else handed)
        return asyncio.run(result) if is_async else result
    except Exception as error:
        return error


@ASYNC
def test_the_first_middleware_is_outermost_and_the_app_s_stand_outside_the_router_s(is_async: bool) -> None:
    passed: list[str] = []
    app, outer, inner = RocketApp("shop"), Router(), Router()
    middleware_of(app, "app 1", passed)
    subscribed(inner, lambda message: passed.append("handler"), is_async=is_async)
    outer.include(inner)
    app.include(outer)
    for home, name in [(app, "app 2"), (outer, "outer"), (inner, "inner")]:
        middleware_of(home, name, passed)
    assert handled(app) is None
    order = ["app 1", "app 2", "outer", "inner"]
    assert passed == [f"{name} in" for name in order] + ["handler"] + [f"{name} out" for name in order[::-1]]


@ASYNC
def test_a_middleware_that_forgets_to_return_does_not_make_a_message_done(is_async: bool) -> None:
    app = RocketApp("shop")

    @app.middleware
    def sync(message: Any, call_next: Callable[[Any], Any]) -> None:
        call_next(message)

    @app.middleware
    async def forgets(message: Any, call_next: Callable[[Any], Any]) -> None:
        await call_next(message)

    subscribed(app, lambda message: Retry(5), is_async=is_async)
    assert handled(app).after == 5


@ASYNC
def test_a_middleware_decides_when_it_says_something(is_async: bool) -> None:
    app = RocketApp("shop")

    @app.middleware
    def sync(message: Any, call_next: Callable[[Any], Any]) -> Skip:
        return Skip("not today")

    @app.middleware
    async def closed(message: Any, call_next: Callable[[Any], Any]) -> Skip:
        return Skip("not today")

    subscribed(app, lambda message: pytest.fail("is not called"), is_async=is_async)
    assert handled(app).reason == "not today"


def test_a_middleware_of_a_batch_gets_the_list() -> None:
    app, seen = RocketApp("shop"), list[int]()

    @app.middleware
    async def count(messages: list[Message], call_next: Callable[[Any], Any]) -> Any:
        seen.append(len(messages))
        return await call_next(messages)

    @app.subscribe("orders", batch=10)
    async def settle(messages: list[Message]) -> None: ...

    assert handled(app, [message(), message(offset=18)]) is None
    assert seen == [2]


@ASYNC
def test_a_middleware_without_the_handler_s_kind_is_refused_with_both_places(is_async: bool) -> None:
    app = RocketApp("shop")
    function: Any

    if is_async:

        @app.middleware
        def function(message: Any, call_next: Any) -> Any: ...
    else:

        @app.middleware
        async def function(message: Any, call_next: Any) -> Any: ...

    subscribed(app, lambda message: None, is_async=is_async)
    error = handled(app)
    assert isinstance(error, SetupError)
    assert error.place == line_of(function)
    own, other = ("sync", "async") if is_async else ("async", "sync")
    assert f"is {own}, and" in error.problem
    mend = "async def" if is_async else "def"
    assert f"add a second middleware, a `{mend}`, which serves {other} handlers" in error.problem


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (5, r"a middleware is a function of \(message, call_next\): 5 cannot be called"),
        (
            lambda message: None,
            r"a middleware is a function of \(message, call_next\): .*<lambda> cannot be called with \(message",
        ),
        (lambda message, call_next: (yield), "is a generator: its code would never run"),
    ],
)
def test_what_is_no_middleware_is_refused(function: Any, problem: str) -> None:
    app = RocketApp("shop")
    with pytest.raises(SetupError, match=problem):
        app.middleware(function)
    with pytest.raises(SetupError, match=problem):
        app.subscribe("orders", middlewares=[function])


@ASYNC
def test_a_handler_s_own_middlewares_stand_innermost_and_serve_it_alone(is_async: bool) -> None:
    app, passed = RocketApp("shop"), list[str]()

    def noting(name: str) -> list[Any]:
        home = Collected()
        middleware_of(home, name, passed)
        return home.found

    middleware_of(app, "app", passed)
    subscribed(
        app, lambda message: passed.append("handler"), is_async=is_async, middlewares=[*noting("1"), *noting("2")]
    )
    assert handled(app) is None
    assert passed == ["app in", "1 in", "2 in", "handler", "2 out", "1 out", "app out"]


def test_a_handler_s_own_middleware_of_the_other_kind_is_refused() -> None:
    async def around(message: Any, call_next: Any) -> Any: ...

    app = RocketApp("shop")
    subscribed(app, lambda message: None, is_async=False, middlewares=[around])
    assert "around is async, and" in str(handled(app))


@pytest.mark.parametrize("given", [5, "around", lambda message, call_next: None])
def test_middlewares_are_a_list(given: Any) -> None:
    with pytest.raises(SetupError, match="give a list of functions"):
        RocketApp("shop").subscribe("orders", middlewares=given)


def test_the_middleware_itself_is_returned_unchanged() -> None:
    async def around(message: Any, call_next: Any) -> None: ...

    assert RocketApp("shop").middleware(around) is around


# Exceptions.


def raising(error: Exception) -> Callable[[Message], Any]:
    def handler(message: Message) -> None:
        raise error

    return handler


@ASYNC
@pytest.mark.parametrize("outcome", [Skip("known"), Retry(3), DeadLetter("bad"), None])
def test_an_exception_becomes_an_outcome(is_async: bool, outcome: Any) -> None:
    app = RocketApp("shop")
    app.exception_handler(ValueError)(lambda message, error: outcome)
    subscribed(app, raising(ValueError("x")), is_async=is_async)
    assert handled(app) is outcome


@ASYNC
def test_the_nearest_class_decides_and_others_pass(is_async: bool) -> None:
    for error, said in [(FileNotFoundError(), "missing"), (PermissionError(), "os"), (KeyError(), None)]:
        app = RocketApp("shop")
        app.exception_handler(OSError)(lambda message, error: Skip("os"))
        app.exception_handler(FileNotFoundError)(lambda message, error: Skip("missing"))
        subscribed(app, raising(error), is_async=is_async)
        result = handled(app)
        assert result is error if said is None else result.reason == said


@ASYNC
def test_outcomes_that_are_raised_pass(is_async: bool) -> None:
    app = RocketApp("shop")
    app.exception_handler(Exception)(lambda message, error: None)
    subscribed(app, raising(Retry(7)), is_async=is_async)
    assert handled(app).after == 7


def test_a_router_decides_before_the_app_and_exceptions_of_middlewares_are_mapped() -> None:
    app, router = RocketApp("shop"), Router()
    app.exception_handler(ValueError)(lambda message, error: Skip("app"))
    app.exception_handler(KeyError)(lambda message, error: Skip("app"))
    router.exception_handler(ValueError)(lambda message, error: Skip("router"))

    @app.middleware
    def checks(message: Any, call_next: Callable[[Any], Any]) -> Any:
        call_next(message)  # what it raises passes here, before it is mapped
        raise KeyError("middleware")

    errors = iter([ValueError(), None])

    def fails_once(message: Message) -> None:
        if (error := next(errors)) is not None:
            raise error

    subscribed(router, fails_once, is_async=False)
    app.include(router)
    assert [handled(app).reason, handled(app).reason] == ["router", "app"]


def test_an_outcome_carries_the_exception_as_its_cause() -> None:
    app, error = RocketApp("shop"), ValueError("x")
    app.exception_handler(ValueError)(lambda message, error: DeadLetter())
    subscribed(app, raising(error), is_async=False)
    assert handled(app).__cause__ is error


def test_an_async_exception_handler_serves_async_handlers_alone() -> None:
    app = RocketApp("shop")

    @app.exception_handler(ValueError)
    async def known(message: Message, error: ValueError) -> Skip:
        return Skip(error)

    subscribed(app, raising(ValueError("x")), is_async=True)
    assert handled(app).reason == "ValueError: x"
    app = RocketApp("shop")
    app.exception_handler(ValueError)(known)
    subscribed(app, raising(ValueError("x")), is_async=False)
    error = handled(app)
    assert isinstance(error, SetupError)
    assert error.place == line_of(known)
    assert "runs in a thread: make it a plain `def`, which serves both" in error.problem


@pytest.mark.parametrize("kind", [5, BaseException, Retry, int])
def test_what_is_no_exception_of_a_handler_is_refused(kind: Any) -> None:
    with pytest.raises(SetupError, match="give a class of exceptions that handlers raise"):
        RocketApp("shop").exception_handler(kind)(lambda message, error: None)


def test_an_exception_handler_without_its_class_is_refused_at_once() -> None:
    with pytest.raises(SetupError, match=r"give a class of exceptions .*@app.exception_handler\(ValueError\)"):

        @RocketApp("shop").exception_handler  # type: ignore[arg-type]
        def known(message: Any, error: ValueError) -> None: ...


@ASYNC
@pytest.mark.parametrize("said", [5, False, "retry"])
def test_an_exception_handler_that_returns_no_outcome_does_not_make_a_failed_message_done(
    said: Any, is_async: bool
) -> None:
    app = RocketApp("shop")
    app.exception_handler(ValueError)(lambda message, error: said)
    subscribed(app, raising(ValueError("x")), is_async=is_async)
    error = handled(app)
    assert isinstance(error, TypeError)
    assert f"returned {said!r}: return Retry, Skip, DeadLetter or Pause, or None for done" in str(error)
    assert isinstance(error.__cause__, ValueError)


def test_two_handlers_of_one_exception_are_refused_with_the_other_s_place() -> None:
    app = RocketApp("shop")

    @app.exception_handler(ValueError)
    def first(message: Any, error: ValueError) -> None: ...

    with pytest.raises(SetupError, match=f"first at {line_of(first)} is it already"):
        app.exception_handler(ValueError)(lambda message, error: None)


@ASYNC
def test_an_undecodable_body_in_a_batch_does_not_hide_what_the_handler_raises(is_async: bool) -> None:
    app, seen = RocketApp("shop"), list[Any]()

    def move(moves: list[Move]) -> None:
        raise KeyError(moves[0].item)

    async def move_async(moves: list[Move]) -> None:
        move(moves)

    app.subscribe("orders", batch=10)(move_async if is_async else move)

    @app.exception_handler(KeyError)
    def known(messages: list[Message], error: KeyError) -> Skip:
        seen.append((messages, error.args))
        return Skip("known")

    batch = [message(b'{"item": "a"}', offset=1), message(b"broken", offset=2)]
    outcomes = handled(app, batch)
    assert seen == [(batch, ("a",))]
    assert (str(outcomes[batch[0]]), type(outcomes[batch[1]])) == ("known", DeadLetter)


@ASYNC
@pytest.mark.parametrize("beside", ["undecodable", "a filter that raises"])
def test_a_last_attempt_beside_a_bad_message_of_its_batch_has_a_traceback(is_async: bool, beside: str) -> None:
    app = RocketApp("shop")

    def move(moves: list[Move]) -> None:
        raise KeyError(moves[0].item)

    async def move_async(moves: list[Move]) -> None:
        move(moves)

    def raises_behind(message: Message) -> bool:
        return message.offset == 1 or bool(1 / 0)

    wanted, kind = (raises_behind, ZeroDivisionError) if beside == "a filter that raises" else (None, type(None))
    app.subscribe("orders", batch=10, retries=0, filter=wanted)(move_async if is_async else move)
    batch = [message(b'{"item": "a"}', offset=1), message(b"broken", offset=2)]
    outcomes = handled(app, batch)
    last, spare = (failures_of(outcomes, False, batch, subscription(retries=retries)) for retries in (0, 1))
    assert [type(failure and failure.error) for failure in last] == [KeyError, kind]
    assert [failure and failure.error for failure in spare] == [None, None]


@ASYNC
@pytest.mark.parametrize("again", [False, True], ids=["passed on", "tried again"])
def test_a_middleware_sees_what_a_batch_with_an_undecodable_body_raises(is_async: bool, again: bool) -> None:
    app, raised, calls = RocketApp("shop"), list[str](), 0

    def move(moves: list[Move]) -> Outcomes | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError(moves[0].item)
        return None

    async def move_async(moves: list[Move]) -> Outcomes | None:
        return move(moves)

    app.subscribe("orders", batch=10)(move_async if is_async else move)

    def noted(error: KeyError) -> None:
        raised.append(error.args[0])
        if not again:
            raise error

    @app.middleware
    def sync(messages: Any, call_next: Callable[[Any], Any]) -> Any:
        try:
            return call_next(messages)
        except KeyError as error:
            noted(error)
        return call_next(messages)

    @app.middleware
    async def around(messages: Any, call_next: Callable[[Any], Any]) -> Any:
        try:
            return await call_next(messages)
        except KeyError as error:
            noted(error)
        return await call_next(messages)

    batch = [message(b'{"item": "a"}', offset=1), message(b"broken", offset=2)]
    outcomes = handled(app, batch)
    assert raised == ["a"]
    assert type(outcomes.get(batch[0])) is (type(None) if again else Retry)
    assert type(outcomes[batch[1]]) is DeadLetter
