"""What `rocketapp dlq try` says of each kind of handler, in the words of what production would do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Outcomes, Pause, Policy, Publisher, Retry, RocketApp, Skip
from rocketapp.cli.commands.dlq import chosen_group
from rocketapp.cli.failure import CommandError
from rocketapp.cli.processes.operator_requests import told
from rocketapp.clock import SystemClock
from rocketapp.testing import Published
from rocketapp.testing.calling import prepared, tried
from rocketapp.testing.stage import settings_of


async def fine(message: Message) -> str:
    return "anything"


def in_a_thread(message: Message) -> None:
    raise ValueError("no")


async def skips(message: Message) -> Skip:
    return Skip("seen before")


async def raises_skip(message: Message) -> None:
    raise Skip("seen before")


async def gives_up(message: Message) -> None:
    raise DeadLetter("hopeless")


async def takes_an_order(order: dict[str, int]) -> None: ...


async def batch(messages: list[Message]) -> Outcomes:
    return Outcomes({messages[0]: Retry(after=60)})


def publishes_from_a_thread_of_its_own(message: Message, publisher: Publisher) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(publisher.publish_sync, "bills", b"1").result()


async def hangs(message: Message) -> None:
    await asyncio.Event().wait()


TRIED = [
    (fine, {}, "done", ""),
    (in_a_thread, {}, "retry", "ValueError: no"),
    (in_a_thread, {"retry": Policy(on={ValueError: Skip})}, "skip", "no"),
    (in_a_thread, {"retry": Policy(on={ValueError: Pause("later")})}, "pause", "ValueError: no"),
    (skips, {}, "skip", "seen before"),
    (raises_skip, {}, "skip", "seen before"),
    (gives_up, {}, "dead letter", "hopeless"),
    (takes_an_order, {}, "dead letter", "JSON"),
    (publishes_from_a_thread_of_its_own, {}, "done", ""),
    (batch, {"batch": 10}, "retry", ""),
    (hangs, {"timeout": 0.01}, "retry", "TimeoutError"),
]


@pytest.mark.parametrize(
    ("handler", "options", "word", "text"),
    TRIED,
    ids=lambda value: value.__name__ if callable(value) else None,
)
async def test_the_word_is_that_of_production(
    handler: Callable[..., Any], options: dict[str, Any], word: str, text: str
) -> None:
    app = RocketApp("shop")
    app.subscribe("orders", **options)(handler)
    message = Message.make(b"{not json", topic="orders")
    published: list[Published] = []
    async with prepared(app, settings_of(app, {}, None), SystemClock(), published) as handlers:
        (outcome,) = await tried(app, handlers[0], [message], published)
    assert [one.topic for one in published] == ["bills"] * (handler is publishes_from_a_thread_of_its_own)
    said = told(outcome)
    assert said[0] == word
    assert text in said[1]


@pytest.mark.parametrize(
    ("groups", "wanted", "says"),
    [
        ([], None, "app:app: nothing is subscribed, so no handler could take it: see rocketapp routes app:app"),
        ([], "shop", "app:app: nothing is subscribed, so no handler could take it: see rocketapp routes app:app"),
        (["a", "b"], None, "app:app has 2 groups: choose one with --group: a, b"),
        (["a"], "b", "--group b: app:app has no such group: it has a"),
    ],
)
def test_a_group_that_cannot_be_chosen_is_refused_with_the_mend(
    groups: list[str], wanted: str | None, says: str
) -> None:
    with pytest.raises(CommandError) as refused:
        chosen_group("app:app", groups, wanted)
    assert str(refused.value) == says
