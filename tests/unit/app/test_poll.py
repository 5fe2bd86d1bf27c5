"""`@app.poll`: an app with polled handlers, in virtual time on the embedded broker."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Message, Outcomes, Pause, Publisher, Pull, Retry, RocketApp, Router, SetupError, Skip, SyncPull
from rocketapp.plugin import AsyncCall, Subscription, Wrapper, hookimpl
from rocketapp.plugins.counts import Counts
from rocketapp.testing import TestApp
from tests.cases import cases
from tests.unit.app.parts import Looking

Call = tuple[float, list[str], list[int]]


class Calls:
    """What the calls for queues with messages have pulled, when, and as which attempt."""

    def __init__(self) -> None:
        self.seen: list[Call] = []

    def note(self, at: float, messages: list[Message]) -> None:
        if messages:
            self.seen.append((at, [one.text() for one in messages], [one.attempt for one in messages]))

    @property
    def times(self) -> list[float]:
        return [at for at, _, _ in self.seen]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_each_queue_is_called_at_its_interval_and_what_it_pulled_is_committed_when_it_returns() -> None:
    app, calls = RocketApp("files"), Calls()
    queues = set()

    @app.poll("files", every=5.0, start="first")
    async def work(pull: Pull) -> None:
        queues.add((pull.queue.queue_id, pull.group))
        at = now()
        calls.note(at, await pull(2))
        calls.note(at, await pull(10))

    with TestApp(app) as t:
        t.advance(2)
        for text in "abcd":
            t.publish("files", text, order_key="one")
        t.advance(6)
        assert [texts for _, texts, _ in calls.seen] == [["a", "b"], ["c", "d"]]
        t.publish("files", "e", order_key="one")
        t.settle()
    assert [texts for _, texts, _ in calls.seen] == [["a", "b"], ["c", "d"], ["e"]]
    assert calls.times == [5.0, 5.0, 10.0]
    assert len(queues) > 1
    assert {group for _, group in queues} == {"files"}


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_testing_kit_lists_what_polled_calls_have_pulled(kind: str) -> None:
    app = RocketApp("files")

    def judge(messages: list[Message]) -> Skip | None:
        if messages and messages[0].attempt < 2:
            raise ValueError("not yet")
        return Skip("enough") if messages else None

    async def work(pull: Pull) -> Skip | None:
        return judge(await pull())

    def work_in_thread(pull: SyncPull) -> Skip | None:
        return judge(pull())

    function = work if kind == "async" else work_in_thread
    app.poll("files", every=5.0, start="first")(function)  # type: ignore[arg-type]
    with TestApp(app) as t:
        t.advance(2)
        for text in "ab":
            t.publish("files", text, order_key="one")
        t.advance(20)
        assert [(one.message.text(), one.attempt, str(one.error)) for one in t.retried] == [
            ("a", 1, "not yet"),
            ("b", 1, "not yet"),
        ]
        assert [(one.message.text(), one.attempt, one.outcome.reason) for one in t.handled] == [  # type: ignore[union-attr]
            ("a", 2, "enough"),
            ("b", 2, "enough"),
        ]
        assert [one.handler.rpartition(".")[2] for one in t.handled] == [function.__name__] * 2


class Around:
    """A plugin whose wrapper notes what it is called with, before and after the call."""

    def __init__(self, *, polled: bool) -> None:
        self.polled, self.counts = polled, Counts()
        self.seen: list[tuple[list[str], list[str]]] = []

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        timed = self.counts.handler(subscription).for_async
        assert timed is not None

        def noted(call: AsyncCall) -> AsyncCall:
            async def around(pulled: list[Message]) -> Any:
                before = [one.text() for one in pulled]
                result = await call(pulled)
                if pulled:
                    self.seen.append((before, [one.text() for one in pulled]))
                return result

            return around

        return Wrapper(for_async=lambda call: noted(timed(call)), polled=self.polled)

    @hookimpl
    def message_filter(self, subscription: Subscription) -> Callable[[Message], bool]:
        return lambda message: False


@pytest.mark.parametrize("polled", [True, False])
def test_wrappers_that_are_meant_for_polled_handlers_stand_around_them_and_others_do_not(polled: bool) -> None:
    around, calls = Around(polled=polled), Calls()
    app = RocketApp("files", plugins=[around])

    @app.poll("files", every=5.0, start="first")
    async def work(pull: Pull) -> None:
        calls.note(now(), await pull(1))

    with TestApp(app) as t:
        t.advance(2)
        t.publish("files", "a")
        t.advance(7)
    assert [texts for _, texts, _ in calls.seen] == [["a"]]
    assert around.seen == ([([], ["a"])] if polled else [])
    assert (sum(sum(histogram.buckets) for histogram in around.counts.histograms.values()) > 1) == polled


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_call_that_raises_commits_nothing_and_the_next_one_gets_the_same_messages(kind: str) -> None:
    app, calls = RocketApp("files"), Calls()

    def judge(messages: list[Message]) -> None:
        calls.note(0.0, messages)
        if messages and messages[0].attempt < 3:
            raise ValueError("not yet")

    if kind == "async":

        @app.poll("files", every=5.0, start="first")
        async def work(pull: Pull) -> None:
            judge(await pull())

    else:

        @app.poll("files", every=5.0, start="first")
        def work_in_thread(pull: SyncPull) -> None:
            judge(pull())

    with TestApp(app) as t:
        t.publish("files", "a", order_key="one")
        t.advance(20)
        t.publish("files", "b", order_key="one")
        t.settle()
    attempts = [(texts, numbers[0]) for _, texts, numbers in calls.seen]
    assert attempts == [(["a"], 1), (["a"], 2), (["a"], 3), (["b"], 1), (["b"], 2), (["b"], 3)]


def test_a_pull_gives_more_than_a_queue_holds_beforehand() -> None:
    app, counts = RocketApp("files"), list[int]()

    @app.poll("files", every=60.0, start="first")
    async def work(pull: Pull) -> None:
        counts.append(len(await pull(500)))

    with TestApp(app) as t:
        t.advance(5)
        for number in range(300):
            t.publish("files", str(number), order_key="one")
        t.advance(60)
        t.advance(60)
    assert sum(counts) == 300
    assert max(counts) == 300


@pytest.mark.parametrize(
    ("outcome", "gaps"), [(Retry(after=1.0), [1.0]), (Skip("unwanted"), []), (ValueError("bad"), [30.0])]
)
def test_outcomes_of_a_call_say_when_the_next_one_comes(outcome: Exception, gaps: list[float]) -> None:
    app, calls = RocketApp("files"), Calls()

    @app.poll("files", every=30.0, start="first")
    async def work(pull: Pull) -> None:
        messages = await pull()
        calls.note(now(), messages)
        if messages and messages[0].attempt == 1:
            raise outcome

    with TestApp(app) as t:
        t.publish("files", "a")
        t.advance(70)
    assert [later - at for at, later in itertools.pairwise(calls.times)] == gaps


def test_a_stop_pauses_the_topic_and_a_resume_goes_on_with_the_same_messages() -> None:
    app, calls, stops = RocketApp("files"), Calls(), [True]

    @app.poll("files", every=5.0, start="first")
    async def work(pull: Pull) -> None:
        messages = await pull()
        calls.note(now(), messages)
        if messages and stops:
            stops.clear()
            raise Pause("the disk is full")

    with TestApp(app) as t:
        t.publish("files", "a")
        t.advance(30)
        assert len(calls.seen) == 1
        app.resume("files")
        t.settle()
    assert [texts for _, texts, _ in calls.seen] == [["a"], ["a"]]


def test_calls_of_a_queue_never_overlap_and_next_in_counts_from_their_end() -> None:
    app, spans = RocketApp("files"), dict[int, list[tuple[float, float]]]()

    @app.poll("files", every=1.0, start="first")
    async def work(pull: Pull) -> None:
        began = now()
        await asyncio.sleep(3)
        spans.setdefault(pull.queue.queue_id, []).append((began, now()))
        if len(spans[pull.queue.queue_id]) == 2:
            pull.next_in(10)

    with TestApp(app) as t:
        t.advance(20)
    for queue in spans.values():
        gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(queue)]
        assert gaps[:2] == [0.0, 10.0]


@pytest.mark.parametrize(
    "said",
    [lambda found: Outcomes({found[1]: Retry()}), lambda found: {found[0]: Retry}, lambda found: [Pause("f")]],
)
def test_a_call_that_speaks_of_single_messages_commits_nothing(said: Callable[[list[Message]], Any]) -> None:
    app = RocketApp("files")

    @app.poll("files", every=5.0, start="first")
    async def work(pull: Pull) -> Any:
        found = await pull()
        return said(found) if found and found[0].attempt == 1 else None

    with TestApp(app) as t:
        t.advance(2)
        t.publish("files", "a", order_key="one")
        t.publish("files", "b", order_key="one")
        t.advance(12)
        assert [one.message.text() for one in t.retried] == ["a", "b"]
        assert {one.reason.partition(":")[0] for one in t.retried} == {"TypeError"}
        assert [(one.message.text(), one.attempt) for one in t.handled] == [("a", 2), ("b", 2)]


def test_a_pull_is_for_its_call_alone() -> None:
    app, kept, errors = RocketApp("files"), list[Pull](), list[str]()

    @app.poll("files", every=5.0, start="first", concurrency=1)
    async def work(pull: Pull, publisher: Publisher) -> None:
        if kept:
            with pytest.raises(RuntimeError, match="has ended: pull while") as raised:
                await kept[0](1)
            errors.append(str(raised.value))
            with pytest.raises(RuntimeError, match="has ended: use next_in while"):
                kept[0].next_in(1)
        for wrong in (0, 1.5, True):
            with pytest.raises(ValueError, match="whole number"):
                await pull(wrong)  # type: ignore[arg-type]
        for not_a_time in (-1, math.nan, math.inf):
            with pytest.raises(ValueError, match="next_in"):
                pull.next_in(not_a_time)
        kept.append(pull)

    with TestApp(app) as t:
        t.advance(6)
    assert len(errors) > 1


async def wants_a_message(message: Message) -> None: ...
async def wants_both(pull: Pull, message: Message) -> None: ...
async def wants_a_sync_pull(pull: SyncPull) -> None: ...
def wants_an_async_pull(pull: Pull) -> None: ...
async def wants_a_pull(pull: Pull) -> None: ...


@cases(
    "function, options, problem",
    [
        (wants_a_message, {}, "an async polled handler takes `pull: Pull`"),
        (wants_both, {}, "a Publisher and what the container provides: change 'message'"),
        (wants_a_sync_pull, {}, "an async polled handler takes `pull: Pull`"),
        (wants_an_async_pull, {}, "a sync polled handler takes `pull: SyncPull`"),
        (wants_a_pull, {"every": 0}, "every=0: give the seconds between two calls"),
        (wants_a_pull, {"every": True}, "every=True"),
        (wants_a_pull, {"orderly": True}, "poll takes no keyword 'orderly'"),
        (wants_a_pull, {"sql": "a > 1", "tags": "x"}, "exclude each other"),
    ],
)
def test_what_a_polled_handler_cannot_have_is_refused_where_it_stands(
    function: Callable[..., Any], options: dict[str, Any], problem: str
) -> None:
    app = RocketApp("files")
    with pytest.raises(SetupError, match=r"test_poll\.py:\d+") as caught:
        app.poll("files", **{"every": 5.0, **options})(function)
    assert problem in str(caught.value)


@pytest.mark.parametrize("first", ["poll", "subscribe"])
def test_a_topic_is_polled_or_subscribed_in_a_group(first: str) -> None:
    app = RocketApp("files")
    declare = {
        "poll": lambda: app.poll("files", every=5.0)(wants_a_pull),
        "subscribe": lambda: app.subscribe("files", tags="a")(wants_a_message),
    }
    declare.pop(first)()
    with pytest.raises(SetupError, match="a polled topic has no other handler in its group") as caught:
        next(iter(declare.values()))()
    assert str(caught.value).count("test_poll.py:") == 2


def test_a_pull_is_refused_outside_of_poll() -> None:
    with pytest.raises(SetupError, match="argument 'pull' is a Pull: declare it with"):
        RocketApp("files").subscribe("files")(wants_a_pull)


def test_a_router_gives_a_polled_handler_what_it_has_a_use_for() -> None:
    calls = Calls()
    router = Router(prefix="shop-", orderly=True, retries=3, concurrency=2, start="first")

    @router.poll("files", every=5.0)
    async def work(pull: Pull) -> None:
        calls.note(now(), await pull())

    app = RocketApp("files")
    app.include(router)
    with TestApp(app) as t:
        t.publish("shop-files", "a")
        t.settle()
    assert [texts for _, texts, _ in calls.seen] == [["a"]]


def test_a_queue_tells_why_it_stands_when_a_call_hangs_before_its_first_pull() -> None:
    looking = Looking()
    app = RocketApp("files", plugins=[looking])
    hang = asyncio.Event()

    @app.poll("files", every=5.0, start="first")
    async def work(pull: Pull) -> None:
        await hang.wait()

    with TestApp(app) as t:
        t.advance(30)
        (group,) = looking.app.snapshot().groups
        reasons = [each.blocked for each in group.queues if each.queue.topic == "files"]
        assert reasons
        assert all(text.endswith("work has been running for 30 s and has pulled nothing") for text in reasons)
        hang.set()


@pytest.mark.parametrize("is_async", [True, False])
def test_a_polled_handler_gets_its_messages_with_message_trace_too(is_async: bool) -> None:
    app, seen = RocketApp("files", settings={"client": {"message_trace": True}}), list[str]()

    async def on_loop(pull: Pull) -> None:
        seen.extend(one.text() for one in await pull(10))

    def in_thread(pull: SyncPull) -> None:
        seen.extend(one.text() for one in pull(10))

    app.poll("files", every=5.0, start="first")(on_loop if is_async else in_thread)
    with TestApp(app) as t:
        t.publish("files", "a")
        t.advance(10)
    assert seen == ["a"]


def test_limits_that_a_polled_topic_does_not_have_cannot_be_changed() -> None:
    app, refused = RocketApp("files"), list[str]()

    @app.poll("files", every=5.0)
    async def work(pull: Pull) -> None:
        app.adjust("files", queue_max_bytes=2048, concurrency=2)
        with pytest.raises(SetupError) as caught:
            app.adjust("files", queue_max_span=5)
        refused.append(str(caught.value))

    with TestApp(app) as t:
        t.publish("files", "a")
        t.advance(6)
    assert "files has no queue_max_span: change concurrency, pull_batch_size" in refused[0]
