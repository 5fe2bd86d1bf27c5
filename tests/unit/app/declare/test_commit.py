"""`commit="manual"`: where it may be declared, and what the Context of such a handler does."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from rocketapp import Context, Message, RocketApp, SetupError
from rocketapp.testing import TestApp, call_sync

REFUSED = [
    ({"commit": "manual"}, "needs orderly=True"),
    ({"commit": "manual", "order_by": "customer"}, "needs orderly=True"),
    ({"commit": "manual", "orderly": True, "idempotent": True}, "idempotent= skips it then"),
    ({"commit": "by hand", "orderly": True}, 'give "auto" or "manual"'),
]


@pytest.mark.parametrize(
    ("options", "what"),
    REFUSED,
)
def test_it_is_for_orderly_handlers(options: dict[str, Any], what: str) -> None:
    def handle(message: Message, context: Context) -> None: ...

    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    with pytest.raises(SetupError, match=re.escape(what)) as caught:
        RocketApp("shop").subscribe("orders", **options)(handle)
    assert caught.value.place == f"{__file__}:{line + 2}"


def test_it_needs_a_context_and_all_handlers_of_the_topic_agree() -> None:
    app = RocketApp("shop")

    def silent(message: Message) -> None: ...

    def handle(message: Message, context: Context) -> None: ...

    with pytest.raises(SetupError, match="add an argument `context: Context`"):
        app.subscribe("orders", tags="a", orderly=True, commit="manual")(silent)
    app.subscribe("orders", tags="a", orderly=True, commit="manual")(handle)
    with pytest.raises(SetupError, match="commit='auto' contradicts commit='manual'"):
        app.subscribe("orders", tags="b", orderly=True)(silent)


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_a_handler_that_commits_by_returning_is_told_so(decide: str) -> None:
    app, errors = RocketApp("shop"), list[str]()

    @app.subscribe("orders")
    def handle(message: Message, context: Context) -> None:
        try:
            getattr(context, decide)()
        except RuntimeError as error:
            errors.append(str(error))

    call_sync(handle, Message.make(), app=app)
    assert len(errors) == 1
    assert errors[0].startswith(f"{decide}: ")
    assert errors[0].endswith('commits by returning; subscribe it with commit="manual"')


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_running_app_commits_and_rolls_back_as_its_handler_says(is_async: bool) -> None:
    app, seen = RocketApp("shop"), list[tuple[bytes, int]]()

    def handle(message: Message, context: Context) -> None:
        seen.append((message.body, context.attempt))
        if message.body == b"3" and context.attempt == 1:
            context.commit()  # the last word counts
            context.rollback(after=0.25)
        elif message.body == b"3":
            context.commit()

    async def on_loop(message: Message, context: Context) -> None:
        handle(message, context)

    app.subscribe("orders", orderly=True, commit="manual", start="first")(on_loop if is_async else handle)
    with TestApp(app) as t:
        for body in (b"1", b"2", b"3"):
            t.publish("orders", body, order_key="one")
        t.settle()
        assert seen == [(b"1", 1), (b"2", 1), (b"3", 1), (b"1", 1), (b"2", 1), (b"3", 2)]
        assert [one.delay for one in t.retried] == [0.25]
        assert not t.dead


def test_a_context_that_a_test_makes_takes_decisions() -> None:
    context = Context.make(Message.make())
    context.commit()
    with pytest.raises(ValueError, match="seconds, 0 or more"):
        context.rollback(after=-1)
