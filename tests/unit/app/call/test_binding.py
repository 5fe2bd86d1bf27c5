from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from rocketapp import Context, DeadLetter, Message, Outcomes, Policy, Retry, RocketApp, SetupError, Skip
from tests.cases import cases
from tests.unit.app.given import QUEUE, bound, call_of, line_of, message

if TYPE_CHECKING:
    from decimal import Decimal  # only there for checkers: its name does not exist at run time


class Order(msgspec.Struct):
    id: str
    amount: int


@dataclasses.dataclass
class Move:
    item: str


class Row(TypedDict):
    name: str


class Model(pydantic.BaseModel):
    size: int


class Database:
    """Nothing that a body could become."""


def refused(app: RocketApp, function: Any, **options: Any) -> str:
    """The text of the refusal, which names the function's line."""
    with pytest.raises(SetupError) as caught:
        app.subscribe("orders", **options)(function)
    assert caught.value.place == line_of(function)
    return caught.value.problem


@dataclasses.dataclass
class Service:
    database: Database


# What a handler may ask for.


def test_the_call_of_a_plain_message_handler_is_the_function_itself() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(message: Message) -> None: ...

    assert call_of(app) is settle


def test_a_sole_parameter_without_annotation_is_the_message() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(anything): ...  # type: ignore[no-untyped-def]

    assert call_of(app) is settle


def test_subscribe_returns_the_function_unchanged() -> None:
    def settle(message: Message) -> str:
        return message.text()

    decorated = RocketApp("shop").subscribe("orders")(settle)
    assert decorated is settle
    assert decorated(message(b"abc")) == "abc"


@cases(
    "kind, body, expected",
    [
        (bytes, b"\xff", b"\xff"),
        (str, "ü".encode(), "ü"),
        (dict, b'{"a": 1}', {"a": 1}),
        (dict[str, int], b'{"a": 1}', {"a": 1}),
        (Order, b'{"id": "1", "amount": 5}', Order("1", 5)),
        (Move, b'{"item": "x"}', Move("x")),
        (Row, b'{"name": "n"}', {"name": "n"}),
        (Model, b'{"size": 3}', Model(size=3)),
    ],
)
def test_a_body_becomes_what_the_annotation_says(kind: Any, body: bytes, expected: object) -> None:
    app, seen = RocketApp("shop"), []

    def handle(payload: Any) -> None:
        seen.append(payload)

    handle.__annotations__["payload"] = kind
    app.subscribe("orders")(handle)
    call_of(app)(message(body))
    assert seen == [expected]
    assert type(seen[0]) is type(expected)


@pytest.mark.parametrize(
    "order", [("order", "message", "context"), ("context", "message", "order"), ("message", "order")]
)
def test_arguments_come_in_any_order_and_number(order: tuple[str, ...]) -> None:
    app, seen = RocketApp("shop"), list[object]()
    kinds = {"order": Order, "message": Message, "context": Context}

    def handle(*given: object) -> None:
        seen.extend(given)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=kinds[name]) for name in order]
    handle.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.subscribe("orders")(handle)
    call_of(app)(message(b'{"id": "1", "amount": 5}'))
    assert [type(one) for one in seen] == [kinds[name] for name in order]


def test_keyword_only_arguments_are_given_by_name() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(message: Message, *, order: Order, context: Context) -> None:
        seen.append((message.offset, order.amount, context.attempt))

    call_of(app)(message(b'{"id": "1", "amount": 5}', reconsume_times=2))
    assert seen == [(17, 5, 3)]


def test_parameters_with_defaults_are_left_alone() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(order: Order, again: int = 7, *more: int, then: Order | None = None, **rest: int) -> None:
        seen.append((order.amount, again, more, then, rest))

    call_of(app)(message(b'{"id": "1", "amount": 5}'))
    assert seen == [(5, 7, (), None, {})]


class Broken:
    """Whatever is asked of it as a default."""


def none_for_the_message(message: Message | None = None) -> object:
    return message


def any_default_for_ours(message: Message = Broken()) -> object:  # type: ignore[assignment]  # noqa: B008
    return message


def as_text(message: Message = None) -> object:  # type: ignore[assignment]
    return message


@pytest.mark.parametrize("handle", [none_for_the_message, any_default_for_ours, as_text])
def test_a_message_with_a_default_is_filled(handle: Any) -> None:
    app, one = RocketApp("shop"), message()
    app.subscribe("orders")(handle)
    assert call_of(app)(one) is one


def test_a_list_of_messages_and_a_context_with_defaults_are_filled() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def handle(messages: list[Message] | None = None, unused: int = 3, context: Context | None = None) -> object:
        return messages, context

    messages, context = call_of(app)([message()])
    assert len(messages) == 1
    assert context.attempt == 1


def test_a_handler_may_take_nothing() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def ring() -> None:
        seen.append("rang")

    call_of(app)(message())
    assert seen == ["rang"]


def test_annotated_types_keep_their_type() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(order: Annotated[Order, "as sent by the shop"]) -> None:
        seen.append(order.amount)

    call_of(app)(message(b'{"id": "1", "amount": 5}'))
    assert seen == [5]


def test_classes_that_are_local_to_a_function_are_found() -> None:
    class Local(msgspec.Struct):
        x: int

    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(local: Local) -> None:
        seen.append(local.x)

    call_of(app)(message(b'{"x": 1}'))
    assert seen == [1]


def test_a_name_that_is_defined_later_is_found_at_start() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(later: Later) -> None:  # type: ignore[name-defined]  # noqa: F821
        seen.append(later.x)

    globals()["Later"] = msgspec.defstruct("Later", [("x", int)])
    try:
        call_of(app)(message(b'{"x": 2}'))
    finally:
        del globals()["Later"]
    assert seen == [2]


def test_a_local_class_is_known_still_when_another_name_is_found_at_start() -> None:
    class Local(msgspec.Struct):
        x: int

    app, seen = RocketApp("shop"), []

    @app.subscribe("orders")
    def handle(local: Local, later: Later) -> None:  # type: ignore[name-defined]  # noqa: F821
        seen.append((local.x, type(later)))

    globals()["Later"] = Context
    try:
        call_of(app)(message(b'{"x": 3}'))
    finally:
        del globals()["Later"]
    assert seen == [(3, Context)]


def test_a_name_that_is_never_defined_is_refused_at_start_with_its_line() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def handle(price: Decimal) -> None: ...

    with pytest.raises(SetupError, match=r"name 'Decimal' is not defined.*TYPE_CHECKING") as caught:
        call_of(app)
    assert caught.value.place == line_of(handle)


# Context.


async def test_a_context_tells_the_circumstances_of_one_attempt(caplog: pytest.LogCaptureFixture) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", timeout=30)
    async def handle(context: Context) -> Context:
        context.logger.warning("low on stock")
        return context

    now = asyncio.get_running_loop().time()
    pulled = message(reconsume_times=1)
    context = await call_of(app)(pulled)
    assert (context.attempt, context.queue, context.group) == (2, QUEUE, "shop")
    assert now + 30 <= context.deadline < now + 31
    (line,) = caplog.records
    assert line.fields["message_id"] == pulled.message_id  # type: ignore[attr-defined]
    assert line.fields["attempt"] == 2  # type: ignore[attr-defined]


def test_without_timeout_there_is_no_deadline_and_a_batch_has_its_highest_attempt() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders", batch=10)
    def handle(messages: list[Message], context: Context) -> None:
        seen.append((len(messages), context.attempt, context.deadline))

    call_of(app)([message(), message(reconsume_times=4), message(reconsume_times=1)])
    assert seen == [(3, 5, None)]


# Undecodable payloads.


@pytest.mark.parametrize("body", [b"", b"{", b'{"id": "1"}', b'{"id": "1", "amount": "many"}', b"\xff", b"[" * 100_000])
def test_an_undecodable_payload_is_a_dead_letter_that_says_why(body: bytes) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(order: Order) -> None: ...

    with pytest.raises(DeadLetter) as caught:
        call_of(app)(message(body))
    assert bound(app).subscription.handler_name in caught.value.reason
    assert "Order" in caught.value.reason
    assert str(caught.value.__cause__).partition(" - at")[0] in caught.value.reason


def test_a_body_that_is_no_utf8_is_a_dead_letter_for_a_handler_of_text() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(text: str, message: Message) -> None: ...

    with pytest.raises(DeadLetter, match=r"cannot be read as str: .*utf-8"):
        call_of(app)(message(b"\xff"))


def test_a_model_refuses_what_pydantic_refuses() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    def settle(model: Model) -> None: ...

    with pytest.raises(DeadLetter, match="cannot be read as Model: field size: Input should be"):
        call_of(app)(message(b'{"size": "large"}'))


# Batches.


def test_a_batch_of_messages_is_the_list_itself() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def count(messages: list[Message]) -> None: ...

    assert call_of(app) is count


def test_a_batch_of_payloads_is_decoded_one_by_one() -> None:
    app, seen = RocketApp("shop"), []

    @app.subscribe("orders", batch=10)
    def count(moves: list[Move], messages: list[Message]) -> None:
        seen.append(([move.item for move in moves], [message.offset for message in messages]))

    call_of(app)([message(b'{"item": "a"}', offset=1), message(b'{"item": "b"}', offset=2)])
    assert seen == [(["a", "b"], [1, 2])]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(None, None), (Skip("x"), Skip), (Retry(5), Retry), (Outcomes(), None), (ValueError("no"), Retry)],
)
async def test_an_undecodable_message_spoils_only_itself(is_async: bool, answer: Any, expected: Any) -> None:
    app, seen = RocketApp("shop"), []

    def count(moves: list[Move]) -> Any:
        seen.append([move.item for move in moves])
        if isinstance(answer, Exception) and not isinstance(answer, Skip | Retry):
            raise answer
        return answer

    async def count_async(moves: list[Move]) -> Any:
        return count(moves)

    app.subscribe("orders", batch=10)(count_async if is_async else count)
    good, bad = message(b'{"item": "a"}'), message(b"broken")
    outcome = call_of(app)([good, bad])
    if is_async:
        outcome = await outcome
    assert seen == [["a"]]
    assert isinstance(outcome, Outcomes)
    assert isinstance(outcome[bad], DeadLetter)
    assert type(outcome.get(good)) is (expected or type(None))


def test_what_stands_around_a_batch_sees_which_of_its_messages_could_not_be_decoded() -> None:
    app, seen = RocketApp("shop"), list[Any]()

    @app.middleware
    def look(messages: Any, call_next: Any) -> None:
        seen.append(call_next(messages))

    @app.subscribe("orders", batch=10)
    def handle(orders: list[Order]) -> None: ...

    good, bad = message(b'{"id": "1", "amount": 5}'), message(b"{")
    call_of(app)([good, bad])
    assert [*seen[0]] == [bad]
    assert isinstance(seen[0][bad], DeadLetter)


def test_a_policy_says_what_an_exception_means_for_the_rest_of_a_batch() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10, retry=Policy(on={KeyError: DeadLetter, ValueError: Skip}))
    def count(moves: list[Move]) -> None:
        raise {"lost": KeyError, "old": ValueError}[moves[0].item]("no room")

    for item, kind in (("lost", DeadLetter), ("old", Skip)):
        good, bad = message(b'{"item": "%s"}' % item.encode()), message(b"broken")
        outcome = call_of(app)([good, bad])
        assert (type(outcome[good]), type(outcome[bad])) == (kind, DeadLetter)
        assert outcome[good].reason.startswith(("KeyError: 'no room'", "ValueError: no room"))


async def test_work_that_may_not_be_done_fails_the_whole_batch_beside_an_undecodable_message() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    async def count(moves: list[Move]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    assert isinstance(await call_of(app)([message(b'{"item": "a"}'), message(b"broken")]), asyncio.Future)


def test_a_failure_of_the_rest_of_a_batch_keeps_its_cause() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def count(moves: list[Move]) -> None:
        raise ValueError("no room")

    good, bad = message(b'{"item": "a"}'), message(b"broken")
    outcome = call_of(app)([good, bad])
    assert str(outcome[good].__cause__) == "no room"


def test_what_a_handler_takes_out_of_its_list_is_still_part_of_what_failed() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def count(moves: list[Move], messages: list[Message]) -> None:
        messages.clear()
        raise ValueError("no room")

    good, bad = message(b'{"item": "a"}'), message(b"broken")
    assert isinstance(call_of(app)([good, bad])[good], Retry)


def test_a_handler_is_not_called_for_a_batch_without_a_decodable_message() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", batch=10)
    def count(moves: list[Move]) -> None:
        pytest.fail("called")

    bad = [message(b"broken"), message(b"")]
    outcome = call_of(app)(bad)
    assert [type(outcome[one]) for one in bad] == [DeadLetter, DeadLetter]


# What is refused, with the line of the function and the mend.


def test_what_nothing_fills_is_refused() -> None:
    def handle(database: Database) -> None: ...

    assert "annotation Database, which nothing fills: annotate it as Message" in refused(RocketApp("shop"), handle)


@cases("kind", [int, object, Any, Order | int, list, set[str], tuple[Order, ...], "no such name("])
def test_other_annotations_are_refused(kind: Any) -> None:
    def handle(payload: Any) -> None: ...

    handle.__annotations__["payload"] = kind
    assert "'payload'" in refused(RocketApp("shop"), handle)


def test_a_second_parameter_without_annotation_is_refused() -> None:
    def handle(message: Message, database) -> None: ...  # type: ignore[no-untyped-def]

    assert "argument 'database' has no annotation" in refused(RocketApp("shop"), handle)


def test_a_method_of_no_object_is_refused() -> None:
    class Shop:
        def settle(self, message: Message) -> None: ...

    app = RocketApp("shop")
    assert "'self' is missing: declare the method of an object, app.subscribe(...)(shop.settle)" in refused(
        app, Shop.settle
    )
    app.subscribe("orders")(Shop().settle)


def test_two_payloads_are_refused() -> None:
    def handle(order: Order, move: Move) -> None: ...

    assert refused(RocketApp("shop"), handle).endswith(
        "'order' and 'move' each get the payload: keep one; keys and properties are in an argument `message: Message`"
    )


def test_a_list_without_batch_is_refused_and_batch_without_a_list() -> None:
    def many(orders: list[Order]) -> None: ...

    def messages(messages: list[Message]) -> None: ...

    def one(order: Order) -> None: ...

    def single(message: Message) -> None: ...

    app = RocketApp("shop")
    assert "add batch=, or annotate it as Order" in refused(app, many)
    assert "add batch=, or annotate it as Message" in refused(app, messages)
    assert "annotate it as list[Order]" in refused(app, one, batch=10)
    assert "annotate it as list[Message]" in refused(app, single, batch=10)


def test_a_payload_with_a_part_that_no_json_becomes_is_refused() -> None:
    def handle(service: Service) -> None: ...

    assert "no JSON becomes a Database" in refused(RocketApp("shop"), handle)


def test_a_payload_may_have_a_pydantic_part() -> None:
    class Holder(msgspec.Struct):
        model: Model

    app = RocketApp("shop")

    @app.subscribe("orders")
    def handle(holder: Holder) -> int:
        return holder.model.size

    assert call_of(app)(message(b'{"model": {"size": 4}}')) == 4


def test_generators_classes_and_what_cannot_be_called_are_refused() -> None:
    async def yields(message: Message) -> Any:
        yield message

    app = RocketApp("shop")
    assert "is a generator" in refused(app, yields)
    with pytest.raises(SetupError, match="Database is a class"):
        app.subscribe("orders")(Database)
    with pytest.raises(SetupError, match="cannot be called"):
        app.subscribe("orders")(7)  # type: ignore[type-var]


# What can be a handler.


class Shop:
    def method(self, message: Message) -> str:
        return f"method {message.offset}"

    @staticmethod
    async def still(message: Message) -> str:
        return f"still {message.offset}"

    async def __call__(self, message: Message) -> str:
        return f"object {message.offset}"


def quick(function: Any) -> Any:
    """A decorator as people write them: a plain function around an async one."""

    @functools.wraps(function)
    def around(*arguments: Any) -> Any:
        return function(*arguments)

    return around


async def sell(kind: str, message: Message) -> str:
    return f"{kind} {message.offset}"


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (Shop().method, "method 17"),
        (Shop.still, "still 17"),
        (staticmethod(Shop.still), "still 17"),
        (Shop(), "object 17"),
        (functools.partial(sell, "partial"), "partial 17"),
        (functools.partial(functools.partial(sell), "twice"), "twice 17"),
        (quick(Shop.still), "still 17"),
    ],
)
async def test_everything_callable_can_be_a_handler_and_shows_whether_it_is_async(handler: Any, answer: str) -> None:
    app = RocketApp("shop")
    app.subscribe("orders")(handler)
    outcome = call_of(app)(message())
    assert bound(app).subscription.is_async is inspect.isawaitable(outcome)
    assert (await outcome if inspect.isawaitable(outcome) else outcome) == answer


def test_a_handler_of_stars_or_defaults_alone_is_refused_because_nothing_fills_them() -> None:
    def positional(*args: Any) -> None: ...

    def both(*args: Any, **kw: Any) -> None: ...

    def defaults(order: Order | None = None, more: int = 3) -> None: ...

    def beside(message: Message, *args: Any) -> None: ...

    assert "nothing fills order and more: " in refused(RocketApp("shop"), defaults)
    assert "nothing fills *args" in refused(RocketApp("shop"), positional)
    assert "add an argument for the message" in refused(RocketApp("shop"), both)
    RocketApp("shop").subscribe("orders")(beside)


def test_an_argument_that_could_be_given_neither_by_place_nor_by_name_is_refused() -> None:
    def handle(amount: int = 3, message: Message | None = None, /) -> None: ...

    def beside(message: Message, amount: int = 3, /, *, context: Context) -> None: ...

    assert "'message': it is positional-only behind one that is left to its default" in refused(RocketApp("a"), handle)
    RocketApp("shop").subscribe("orders")(beside)
