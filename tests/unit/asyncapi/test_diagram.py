"""The drawing of topics and handlers: each once, joined as the document says."""

from __future__ import annotations

import re
from itertools import pairwise

from rocketapp import Message, RocketApp
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.diagram import HEIGHT, diagram
from rocketapp.asyncapi.document import document_of
from rocketapp.asyncapi.page import page_of
from tests.unit.asyncapi.everything import everything


def drawn(app: RocketApp) -> str:
    document = document_of(app, Settings())
    return diagram(document["channels"], document["operations"])


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def shop() -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders")
    @app.subscribe("returns")
    @app.publishes("bills")
    async def settle(message: Message) -> bytes:
        return message.body

    @app.subscribe("orders", tags="express")
    async def hurry(message: Message) -> None: ...

    return app


def test_each_topic_and_handler_is_drawn_once_and_joined_with_a_line() -> None:
    svg = drawn(shop())
    assert sorted(texts(svg)) == ["bills", "hurry", "orders", "returns", "settle"]
    assert svg.count('class="line receive"') == 3
    assert svg.count('class="line send"') == 1


def test_boxes_of_a_column_do_not_lie_on_each_other() -> None:
    places: dict[str, list[float]] = {}
    for x, y in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', drawn(everything())):
        places.setdefault(x, []).append(float(y))
    assert len(places) == 3
    for column in places.values():
        ordered = sorted(column)
        assert all(below - above > HEIGHT for above, below in pairwise(ordered))


def test_what_answers_a_request_has_a_line_to_the_replies() -> None:
    app = RocketApp("shop")

    @app.subscribe("prices")
    async def price(message: Message) -> dict[str, int]:
        return {"cents": 5}

    assert sorted(texts(drawn(app))) == ["Replies to prices", "price", "prices"]


def test_an_app_that_only_publishes_has_its_own_code_in_the_middle() -> None:
    app = RocketApp("shop")
    app.publisher("orders", dict[str, int])
    svg = drawn(app)
    assert texts(svg) == ["the app&#x27;s own code", "orders"]
    assert 'class="line send"' in svg


def test_what_users_wrote_is_text_and_what_is_long_is_whole_in_the_title() -> None:
    app = RocketApp("shop")

    async def settle(message: Message) -> None: ...

    settle.__name__ = settle.__qualname__ = f"<script>{'x' * 80}"
    app.subscribe("orders")(settle)
    svg = drawn(app)
    assert "<script" not in svg
    assert f"script&gt;{'x' * 80}</title>" in svg
    assert max(map(len, texts(svg))) < 50


def test_an_app_without_operations_has_no_drawing() -> None:
    assert drawn(RocketApp("empty")) == ""
    assert "<svg" not in page_of(document_of(RocketApp("empty"), Settings()))
