from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Literal, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from rocketapp import DeadLetter, Message, Outcomes, RocketApp, SetupError, TypeByProperty, TypeByTag
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publishing import PLAIN, outgoing
from rocketapp.model.outgoing import MessageOptions
from rocketapp.plugin import PluginError, hookimpl
from rocketapp.testing.records import published_of
from tests.cases import cases
from tests.unit.app.given import call_of, message

T = TypeVar("T")


class Order(msgspec.Struct):
    id: str
    amount: int = 0


class Line(msgspec.Struct):
    item: str
    count: int


class Basket(msgspec.Struct):
    lines: list[Line]


class Model(pydantic.BaseModel):
    size: int


class Paid(msgspec.Struct, tag="paid"):
    amount: int


class Refunded(msgspec.Struct, tag="refunded"):
    reason: str


class Moved(msgspec.Struct):
    item: str


def handled(app: RocketApp, one: Message) -> Any:
    """What the app's only handler made of it."""
    return call_of(app)(one)


def returns(app: RocketApp, kind: Any, **options: Any) -> None:
    """Subscribe a handler that returns its payload of this type."""

    def handle(payload: Any) -> Any:
        return payload

    handle.__annotations__["payload"] = kind
    app.subscribe("orders", **options)(handle)


def reason_of(app: RocketApp, one: Message) -> str:
    with pytest.raises(DeadLetter) as caught:
        handled(app, one)
    return caught.value.reason


def sent(app: RocketApp, body: Any, **options: Any) -> Message:
    """What is published, as it is received."""
    made = outgoing("orders", body, MessageOptions(**options), declared_of(app).payloads)  # type: ignore[typeddict-item]
    tag = {} if made.tag is None else {"TAGS": made.tag}
    return message(made.body, properties={**made.properties, **tag})


# By content type.


@cases("name", ["application/msgpack", "Application/X-MsgPack; v=1", "application/vnd.msgpack"])
@cases("kind, body", [(Order, Order("1", 5)), (dict, {"a": [1, None]}), (Model, Model(size=2))])
def test_message_pack_goes_there_and_back(name: str, kind: Any, body: Any) -> None:
    app = RocketApp("shop")
    returns(app, kind)
    one = sent(app, body, content_type=name)
    assert one.properties["content-type"] == name
    assert one.body[:1] != b"{"
    assert handled(app, one) == body


def test_json_carries_no_content_type_and_is_read_with_or_without_one() -> None:
    app = RocketApp("shop")
    returns(app, Order)
    assert not sent(app, Order("1")).properties
    for name in (None, "application/json", "application/cloudevents+json", "text/plain"):
        properties = {} if name is None else {"content-type": name}
        assert handled(app, message(b'{"id": "1", "amount": 5}', properties=properties)) == Order("1", 5)


@pytest.mark.parametrize(("kind", "expected"), [(bytes, b"text"), (str, "text")])
def test_bytes_and_text_are_the_body_whatever_its_content_type(kind: Any, expected: Any) -> None:
    app = RocketApp("shop")
    returns(app, kind)
    assert handled(app, message(b"text", properties={"content-type": "image/png"})) == expected


def test_an_unknown_content_type_is_a_dead_letter_and_refused_in_publish() -> None:
    app = RocketApp("shop")
    returns(app, Order)
    reason = reason_of(app, message(b"<a/>", properties={"content-type": "text/xml"}))
    assert "content-type 'text/xml' has no codec" in reason
    with pytest.raises(ValueError, match=r"has no codec: known are .*application/json, application/msgpack"):
        sent(app, Order("1"), content_type="text/xml")
    assert sent(app, b"<a/>", content_type="text/xml").properties == {"content-type": "text/xml"}


def test_a_property_of_the_users_own_wins() -> None:
    app = RocketApp("shop")
    one = sent(app, Order("1"), content_type="application/json", properties={"content-type": "text/json"})
    assert one.properties == {"content-type": "text/json"}


# What is wrong names the field.


@pytest.mark.parametrize(
    ("kind", "body", "what"),
    [
        (Order, b'{"id": "1", "amount": "x"}', "as Order: field amount: Expected `int`, got `str`"),
        (Basket, b'{"lines": [{"item": "a", "count": 1}, {"item": 2}]}', "field lines[1].item: Expected `str`"),
        (Order, b"{}", "as Order: Object missing required field `id`"),
        (Order, b"{", "as Order: Input data was truncated"),
        (Model, b'{"size": "x"}', "as Model: field size: Input should be a valid integer"),
    ],
)
def test_a_dead_letter_names_the_field(kind: Any, body: bytes, what: str) -> None:
    app = RocketApp("shop")
    returns(app, kind)
    assert what in reason_of(app, message(body))


# Several types.


def test_tagged_unions_and_optional_payloads() -> None:
    app = RocketApp("shop")
    returns(app, Paid | Refunded | None)
    assert handled(app, sent(app, Paid(5))) == Paid(5)
    assert handled(app, sent(app, Refunded("broken"), content_type="application/msgpack")) == Refunded("broken")
    assert handled(app, message(b"null")) is None
    assert "as Paid | Refunded | None: " in reason_of(app, message(b'{"type": "lost"}'))


def test_types_without_a_tag_of_their_own_need_to_be_told_apart() -> None:
    with pytest.raises(SetupError, match="say TypeByTag or TypeByProperty"):
        returns(RocketApp("shop"), Order | Moved)


@pytest.mark.parametrize(
    ("choice", "marks"),
    [
        (TypeByTag({"paid": Order, "moved": Moved}), ({"TAGS": "paid"}, {"TAGS": "moved"}, {"TAGS": "lost"})),
        (TypeByProperty("kind", {"o": Order, "m": Moved}), ({"kind": "o"}, {"kind": "m"}, {})),
    ],
)
def test_a_tag_or_a_property_says_which_type_a_body_has(choice: Any, marks: Any) -> None:
    app = RocketApp("shop")
    returns(app, Annotated[Order | Moved, choice])
    first, second, wrong = marks
    assert handled(app, message(b'{"id": "1"}', properties=first)) == Order("1")
    assert handled(app, message(b'{"item": "tea"}', properties=second)) == Moved("tea")
    assert "stands for none of its types: known are" in reason_of(app, message(b"{}", properties=wrong))


@cases(
    "choose, problem",
    [
        (lambda: TypeByTag({}), "give types by tag"),
        (lambda: TypeByTag([Order]), "give types by tag"),  # type: ignore[arg-type]
        (lambda: TypeByTag({1: Order}), "1 is the tag of no message"),  # type: ignore[dict-item]
        (lambda: TypeByTag({"a || b": Order}), "a message has one tag"),
        (lambda: TypeByTag({"*": Order}), "a message has one tag"),
        (lambda: TypeByProperty("", {"a": Order}), "give the name of a property"),
        (lambda: TypeByProperty("kind", {"": Order}), "'' is the value of no message"),
    ],
)
def test_a_choice_that_no_message_makes_is_refused(choose: Callable[[], object], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        choose()


def test_a_batch_of_several_types_spoils_only_what_has_none() -> None:
    app, seen = RocketApp("shop"), []
    kinds = TypeByTag({"paid": Order, "moved": Moved})

    @app.subscribe("orders", batch=10)
    def handle(events: list[Annotated[Order | Moved, kinds]]) -> None:
        seen.extend(events)

    good, bad = message(b'{"id": "1"}', properties={"TAGS": "paid"}), message(offset=18)
    outcomes = handled(app, [good, bad])  # type: ignore[arg-type]
    assert isinstance(outcomes, Outcomes)
    assert (list(outcomes), seen) == ([bad], [Order("1")])


def test_a_choice_with_a_type_that_no_body_becomes_is_refused() -> None:
    with pytest.raises(SetupError, match="int is not one of the types"):
        returns(RocketApp("shop"), Annotated[Order | int, TypeByTag({"a": Order, "b": int})])


# Versions.


def upcasting(app: RocketApp) -> None:
    @app.upcaster(Order, version=1)
    def from_cents(old: dict[str, Any]) -> dict[str, Any]:
        return {"id": old["number"], "amount": old["cents"]}

    @app.upcaster(Order, version=2)
    def to_euros(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "amount": old["amount"] // 100}


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
def test_old_versions_go_through_every_upcaster_from_theirs_on(encode: Callable[[Any], bytes]) -> None:
    app = RocketApp("shop")
    returns(app, Order)
    upcasting(app)
    mark = {"content-type": "application/msgpack"} if encode is msgspec.msgpack.encode else {}
    first = message(encode({"number": "7", "cents": 500}), properties=mark)
    second = message(encode({"id": "7", "amount": 500}), properties={**mark, "payload-version": "2"})
    third = message(encode({"id": "7", "amount": 5}), properties={**mark, "payload-version": "3"})
    later = message(encode({"id": "7", "amount": 5, "new": 1}), properties={**mark, "payload-version": "4"})
    assert [handled(app, one) for one in (first, second, third, later)] == [Order("7", 5)] * 4


def test_what_is_published_carries_its_version() -> None:
    app = RocketApp("shop")
    upcasting(app)
    assert sent(app, Order("1")).properties == {"payload-version": "3"}
    assert not sent(app, Moved("tea")).properties


def test_a_byte_order_mark_is_left_out_of_versions_and_choices_too() -> None:
    app = RocketApp("shop")
    returns(app, Order)
    upcasting(app)
    old = message(b'\xef\xbb\xbf{"number": "7", "cents": 500}')
    assert handled(app, old) == Order("7", 5)
    by_tag = RocketApp("shop")
    returns(by_tag, Annotated[Order | Moved, TypeByTag({"a": Order, "b": Moved})])
    assert handled(by_tag, message(b'\xef\xbb\xbf{"id": "7"}', properties={"TAGS": "a"})) == Order("7")


def test_a_class_that_derives_from_one_with_upcasters_has_its_versions() -> None:
    class Gift(Order):
        card: str = ""

    app, gifts = RocketApp("shop"), RocketApp("gifts")
    for one, kind in ((app, Order), (gifts, Gift)):
        returns(one, kind)
        upcasting(one)
    gift = sent(app, Gift("7", 5, "for you"))
    assert gift.properties == {"payload-version": "3"}
    assert handled(app, gift) == Order("7", 5)
    assert handled(gifts, gift) == Gift("7", 5, "for you")
    assert handled(gifts, message(b'{"number": "7", "cents": 500}')) == Gift("7", 5)


class Page(msgspec.Struct, Generic[T]):
    id: T
    amount: int = 0


@pytest.mark.parametrize(("kind", "new"), [(Order | None, Order("7", 5)), (Page[str], Page("7", 5))])
def test_what_may_be_null_and_what_has_type_arguments_goes_through_upcasters_too(kind: Any, new: Any) -> None:
    app = RocketApp("shop")
    returns(app, kind)

    @app.upcaster(type(new), version=1)
    def from_cents(old: dict[str, Any]) -> dict[str, Any]:
        return {"id": old["number"], "amount": old["cents"] // 100}

    assert handled(app, message(b'{"number": "7", "cents": 500}')) == new
    assert handled(app, sent(app, new)) == new
    if kind == Order | None:
        assert handled(app, message(b"null")) is None


def test_old_versions_that_would_be_read_as_new_ones_are_refused_at_the_upcaster_s_line() -> None:
    class Row(TypedDict):
        id: str

    app = RocketApp("shop")
    with pytest.raises(SetupError, match="a dict that is published has no version: make it a msgspec Struct"):
        app.upcaster(Row, version=1)(lambda old: old)
    returns(app, Paid | Refunded)
    app.upcaster(Paid, version=1)(lambda old: old)
    with pytest.raises(
        SetupError, match=r"no upcaster is used for a part of Paid \| Refunded: tell the types"
    ) as refused:
        call_of(app)
    assert refused.value.place.startswith(f"{__file__}:")


def test_an_upcaster_that_returns_nothing_is_named() -> None:
    app = RocketApp("shop")
    returns(app, Order)

    @app.upcaster(Order, version=1)
    def forgets(old: dict[str, Any]) -> dict[str, Any]:  # type: ignore[return]
        old["amount"] = 5

    reason = reason_of(app, message(b'{"id": "7"}'))
    assert "the upcaster at " in reason
    assert "returned a NoneType: return the new members" in reason


def test_a_version_that_cannot_be_read_is_a_dead_letter_with_the_reason() -> None:
    app = RocketApp("shop")
    returns(app, Order)
    upcasting(app)
    assert "raised KeyError: 'number'" in reason_of(app, message(b"{}"))
    assert "payload-version 'x' is not a whole number" in reason_of(app, message(properties={"payload-version": "x"}))


def test_upcasters_that_cannot_work_are_refused_with_their_line() -> None:
    app = RocketApp("shop")
    upcasting(app)
    for declare, problem in (
        (lambda: app.upcaster(Order, version=1)(lambda old: old), "version 1 of Order has an upcaster already, at "),
        (lambda: app.upcaster(Order, version=0)(lambda old: old), "a whole number from 1"),
        (lambda: app.upcaster("Order", version=1)(lambda old: old), "give the class"),  # type: ignore[arg-type]
        (lambda: app.upcaster(Order, version=9)(lambda: {"id": 1}), "a plain function of the old members"),  # type: ignore[arg-type, misc]
    ):
        with pytest.raises(SetupError, match=problem) as caught:
            declare()
        assert caught.value.place.startswith(f"{__file__}:")
    app = RocketApp("shop")
    returns(app, Order)
    app.upcaster(Order, version=2)(lambda old: old)
    with pytest.raises(SetupError, match="version 1 of Order has no upcaster: add it"):
        call_of(app)


# Codecs of plugins.


class Point:
    """No type that JSON becomes."""

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


class PointCodec:
    content_type = "application/x-point"
    asked: ClassVar[list[type[Any]]] = []

    def claims(self, kind: type[Any]) -> bool:
        self.asked.append(kind)
        return kind is Point

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return (lambda body: Point(*map(int, body.split(b",")))) if kind is Point else None

    def encode(self, body: Any) -> bytes:
        return f"{body.x},{body.y}".encode()


class Points:
    @hookimpl
    def payload_codec(self) -> PointCodec:
        return PointCodec()


def test_a_codec_of_a_plugin_reads_and_writes_its_types() -> None:
    app = RocketApp("shop", plugins=[Points])
    returns(app, Point)
    one = sent(app, Point(3, 4))
    assert (one.body, one.properties) == (b"3,4", {"content-type": "application/x-point"})
    got = handled(app, one)
    assert (got.x, got.y) == (3, 4)
    assert (handled(app, message(b"1,2")).x, PointCodec.asked.count(Point)) == (1, 1)
    assert "as Point: invalid literal" in reason_of(app, message(b"a,b"))


@pytest.mark.parametrize(
    ("content_type", "body", "kind", "wanted"),
    [
        (None, b'\xef\xbb\xbf{"a":1}', dict, {"a": 1}),
        ("application/json", b'\xef\xbb\xbf{"a":1}', dict, {"a": 1}),
        ("application/json; charset=utf-16", '{"a":"é"}'.encode("utf-16"), dict, {"a": "é"}),
        ('text/plain; charset="ISO-8859-1"', "é".encode("latin-1"), str, "é"),
        ("text/plain; charset=UTF-8", "é".encode(), str, "é"),
        ("text/plain; charset=latin-1", b"\xe9", bytes, b"\xe9"),
    ],
)
def test_the_charset_that_a_body_names_and_a_byte_order_mark_are_read(
    content_type: str | None, body: bytes, kind: Any, wanted: Any
) -> None:
    app = RocketApp("shop")
    returns(app, kind)
    properties = {} if content_type is None else {"content-type": content_type}
    assert handled(app, Message.make(body, topic="orders", properties=properties)) == wanted


def test_a_charset_that_nobody_knows_is_a_dead_letter_with_its_name() -> None:
    app = RocketApp("shop")
    returns(app, dict)
    one = Message.make(b"{}", topic="orders", properties={"content-type": "application/json; charset=klingon"})
    assert "no charset is called 'klingon'" in reason_of(app, one)


def test_a_codec_that_makes_no_bytes_is_named() -> None:
    class Texts(PointCodec):
        asked: ClassVar[list[type[Any]]] = []

        def encode(self, body: Any) -> bytes:
            return "text"  # type: ignore[return-value]

    class Wrong:
        @hookimpl
        def payload_codec(self) -> PointCodec:
            return Texts()

    app = RocketApp("shop", plugins=[Wrong])
    with pytest.raises(
        PluginError, match=r"plugin .*Wrong: its codec of .* made str of a Point: encode\(\) returns bytes"
    ):
        app.outgoing("points", Point(1, 2))


def test_a_type_that_no_codec_knows_is_refused_where_it_stands() -> None:
    for app in (RocketApp("shop"), RocketApp("shop", plugins=[Points])):
        with pytest.raises(SetupError, match="which nothing fills"):
            returns(app, object)


def test_a_plain_payload_is_decoded_without_a_look_at_its_properties() -> None:
    app = RocketApp("shop")
    returns(app, Order)
    one = message(b'{"id": "1"}', properties={"a": "b"})
    assert handled(app, one) == Order("1")
    assert not hasattr(one, "_properties")


def test_a_record_of_a_published_message_is_read_as_its_content_type_says() -> None:
    made = outgoing("orders", Order("1", 5), {"content_type": "application/msgpack"})
    assert published_of(made, "", 0.0, PLAIN).payload(Order) == Order("1", 5)


class Models(pydantic.BaseModel):
    items: list[Model]


def test_a_body_with_very_many_wrong_fields_is_refused_in_few_words_at_little_cost() -> None:
    app = RocketApp("shop")
    returns(app, Models)
    with pytest.raises(DeadLetter) as caught:
        handled(app, message(b'{"items":[' + b"1," * 5_000 + b"1]}"))
    assert caught.value.reason.endswith("5001 fields are wrong")
    assert len("".join(traceback.format_exception(caught.value))) < 20_000


def test_a_reason_is_not_as_long_as_the_body() -> None:
    app = RocketApp("shop")
    returns(app, dict[str, Literal["a"]])
    with pytest.raises(DeadLetter) as caught:
        handled(app, message(b'{"a":"' + b"x" * 1_000_000 + b'"}'))
    assert len(caught.value.reason) < 3_000


@pytest.mark.parametrize(
    ("body", "marks", "usual"),
    [
        (b'{"id":"a"}', {}, None),
        (msgspec.msgpack.encode({"id": "a"}), {"content-type": "application/msgpack"}, None),
        (msgspec.msgpack.encode({"id": "a"}), {}, "application/msgpack"),
        (b'{"id":"a"}', {"content-type": "application/json"}, "application/msgpack"),
    ],
)
def test_a_plugin_reads_payloads_as_handlers_get_them(body: bytes, marks: dict[str, str], usual: str | None) -> None:
    read = PLAIN.reading(Order, usual)
    assert read(Message.make(body, properties=marks)) == Order("a")


def test_a_plugin_is_told_why_a_body_is_no_payload() -> None:
    with pytest.raises(ValueError, match="field amount: Expected `int`, got `str`"):
        PLAIN.reading(Order)(Message.make(b'{"id": "a", "amount": "1"}'))


@pytest.mark.parametrize(
    ("kind", "usual", "error", "problem"),
    [
        (int, None, TypeError, "int is not one of the types that a body can become"),
        (Order, "application/avro", ValueError, "'application/avro' has no codec for it: known are application/json"),
    ],
)
def test_what_a_plugin_cannot_read_is_refused_before_a_message_comes(
    kind: Any, usual: str | None, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        PLAIN.reading(kind, usual)
