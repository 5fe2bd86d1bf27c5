"""A handler that says what it returns answers requests, and those alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from rocketapp import Message, Retry, RocketApp, SendUnknown, Skip
from rocketapp.app.call.returned import answers
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publishing import Publishing
from rocketapp.plugin import hookimpl
from tests.unit.app.given import NotRunning, call_of, message

ASKED = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "someone", "CLUSTER": "DefaultCluster"}


class Price(msgspec.Struct):
    cents: int


class Replies(NotRunning):
    """A running app that writes replies down."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.loop, self.problem = asyncio.get_running_loop(), problem
        self.sent: list[tuple[Message, bytes, str]] = []

    def producer(self, cluster: str) -> Any:
        replies = self

        class Replying:
            async def reply(self, request: Message, body: bytes, properties: Mapping[str, str]) -> None:
                if replies.problem is not None:
                    raise replies.problem
                replies.sent.append((request, body, cluster))

        return Replying()


def handler(replies: Replies, function: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    app = RocketApp("shop", clusters={"eu": "h:1"})
    app.subscribe("orders", **options)(function)
    return call_of(app, Publishing(lambda: replies))


async def priced(message: Message) -> Price:
    return Price(5)


async def texted(message: Message) -> str:
    return "five"


def in_thread(message: Message) -> dict[str, int]:
    return {"cents": 5}


@pytest.mark.parametrize(
    ("function", "body"), [(priced, b'{"cents":5}'), (texted, b"five"), (in_thread, b'{"cents":5}')]
)
async def test_a_request_is_answered_with_what_is_returned(function: Callable[..., Any], body: bytes) -> None:
    replies, asked = Replies(), message(properties=ASKED)
    call = handler(replies, function, cluster="eu")
    said = await asyncio.to_thread(call, asked) if function is in_thread else await call(asked)
    assert said is None
    assert replies.sent == [(asked, body, "eu")]


async def test_a_message_that_is_no_request_is_not_answered() -> None:
    replies = Replies()
    assert await handler(replies, priced)(message()) == Price(5)
    assert replies.sent == []


async def skips(message: Message) -> Price | Skip:
    return Skip("no price")


async def again(message: Message) -> Price | Retry | None:
    return Retry(after=5)


async def nothing(message: Message) -> Price | None:
    return None


SILENT = [skips, again, nothing]


@pytest.mark.parametrize("function", SILENT)
async def test_outcomes_and_none_are_no_answers(function: Callable[..., Any]) -> None:
    replies = Replies()
    said = await handler(replies, function)(message(properties=ASKED))
    assert said is None or isinstance(said, Skip | Retry)
    assert replies.sent == []


async def test_a_reply_that_does_not_arrive_is_logged_and_its_message_is_done(caplog: pytest.LogCaptureFixture) -> None:
    replies = Replies(SendUnknown("R", "no channel"))
    asked = message(properties={**ASKED, "UNIQ_KEY": "ID1", "KEYS": "17"})
    assert await handler(replies, priced)(asked) is None
    (line,) = caplog.messages
    assert line == (
        "no reply to the request ID1 (key 17) in orders, which is done all the same: perhaps stored in R: no channel"
    )


async def formless(message: Message) -> object:
    return object()


async def test_a_reply_that_has_no_form_is_logged_and_its_message_is_done(caplog: pytest.LogCaptureFixture) -> None:
    assert await handler(Replies(), formless)(message(properties=ASKED)) is None
    (line,) = caplog.messages
    assert "no reply to the request" in line
    assert "object" in line


async def test_a_reply_whose_codec_fails_in_any_way_is_logged_and_its_message_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        content_type = "application/x-price"

        def claims(self, kind: type[Any]) -> bool:
            return kind is Price

        def decoder(self, kind: Any) -> None:
            return None

        def encode(self, body: Any) -> bytes:
            raise KeyError("currency")

    class Codecs:
        @hookimpl
        def payload_codec(self) -> Broken:
            return Broken()

    app, replies = RocketApp("shop", plugins=[Codecs()]), Replies()
    app.subscribe("orders")(priced)
    publishing = Publishing(lambda: replies, payloads=declared_of(app).payloads)
    assert await call_of(app, publishing)(message(properties=ASKED)) is None
    (line,) = caplog.messages
    assert line.endswith("which is done all the same: KeyError: 'currency'")


def unsaid(message: Message):  # type: ignore[no-untyped-def]
    return 1


def said_none(message: Message) -> None: ...


def test_a_handler_without_a_return_annotation_answers_nothing() -> None:
    assert [answers(function) for function in (priced, in_thread, unsaid, said_none)] == [True, True, False, False]
