"""The page: complete, from one file, and everything that users wrote is text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from rocketapp import Message, RocketApp
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.document import document_of
from rocketapp.asyncapi.page import page_of, prose, schema_of
from tests.unit.asyncapi.everything import everything

EVIL = "<script>alert('x')</script>"


class Read(HTMLParser):
    """What a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.others: list[str] = []
        self._open: list[str] = []
        self.text = ""
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name in ("src", "srcset", "action", "onclick", "style"):
                self.others.append(value or "")
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(document_of(everything(), Settings()))


def test_every_link_leads_to_a_place_on_the_page(page: str) -> None:
    read = Read(page)
    assert len(read.links) > 50
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))


def test_it_takes_nothing_from_elsewhere_and_runs_nothing(page: str) -> None:
    read = Read(page)
    assert read.others == []
    assert not read.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import", page)


@pytest.mark.parametrize(
    "told",
    [
        "receives settle",
        "Take the money.",
        "It is taken once, with charge.",
        "again after 1 s, 5 s, 30 s: 16 times, then to %DLQ%shop",
        "BusyError: retry after 1 min",
        "5 failures within 60 s, 50% of the calls",
        "The embedded broker of rocketapp run",
        "sends answer",
        "Answers requests withNote",
        "when the transaction of its function is committed",
        "one by one per key (by_customer)",
        "The last four digits.",
        '"maximum": 1000000',
        '"additionalProperties": { "$ref": "Colour" }',
        '"anyOf": [ { "$ref": "Card" }, { "$ref": "Cash" } ]',
        "payload-version",
        "shop.Parcel",
    ],
)
def test_it_tells(told: str, page: str) -> None:
    assert told in " ".join(Read(page).text.split())


def test_what_users_wrote_is_text() -> None:
    app = RocketApp("shop", version=EVIL)

    async def settle(message: Message) -> None: ...

    settle.__doc__ = f"{EVIL} `{EVIL}`"
    settle.__qualname__ = EVIL
    app.subscribe("orders", tags=EVIL)(settle)
    page = page_of(document_of(app, Settings()))
    assert "<script" not in page
    assert EVIL in Read(page).text


def test_it_can_be_made_of_a_file(page: str) -> None:
    document = document_of(everything(), Settings())
    assert page_of(msgspec.json.decode(msgspec.json.encode(document))) == page


def test_an_app_without_handlers_has_a_page() -> None:
    page = page_of(document_of(RocketApp("empty"), Settings()))
    assert "Nothing is subscribed or published." in Read(page).text


def test_a_schema_is_json_with_links_to_those_that_it_names() -> None:
    schema = {"description": "What `a` is.", "items": {"$ref": "#/components/schemas/A-2"}, "pattern": "<"}
    assert schema_of(schema) == (
        '<p>What <code>a</code> is.</p><pre>{\n  "items": {\n    "$ref": "<a href="#schema-A-2">A-2</a>"\n  },\n'
        '  "pattern": "&lt;"\n}</pre>'
    )
    assert schema_of(True) == "<pre>true</pre>"


def test_an_indented_paragraph_keeps_its_lines() -> None:
    assert (
        prose("First `a`\nline.\n\n    one\n      two\n") == "<p>First <code>a</code>\nline.</p><pre>one\n  two</pre>"
    )
