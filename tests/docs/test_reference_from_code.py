"""What is read from the code becomes Markdown that a reader can use."""

from __future__ import annotations

import pytest

from rocketapp import RocketApp
from rocketapp.model.outgoing import PublishOptions
from rocketapp_site.definitions import attribute_docs
from rocketapp_site.llms import summary_of
from rocketapp_site.navigation import below
from rocketapp_site.prose import cell, first_sentence, markdown
from rocketapp_site.signatures import signature_of, signatures_of


@pytest.mark.parametrize(
    ("doc", "shown"),
    [
        ("One line\nand another: plain.", "One line and another: plain."),
        ("after: seconds,\n    0 or more.\nThe rest.", "- `after`: seconds, 0 or more.\n\nThe rest."),
        ("after: seconds that are\nrounded up.", "- `after`: seconds that are rounded up."),
        ("tag: selects; keys: find it later.", "- `tag`: selects\n- `keys`: find it later."),
        ("First.\n\nSecond: `a | b`, a | b, <c>.", "First.\n\nSecond: `a | b`, a \\| b, \\<c\\>."),
        ("So:\n\n    run *this*", "So:\n\n```text\nrun *this*\n```"),
    ],
)
def test_a_docstring_keeps_its_paragraphs_items_and_code(doc: str, shown: str) -> None:
    assert markdown(doc, ("after", "tag", "keys")) == shown


def test_a_cell_holds_no_bar_of_its_own() -> None:
    assert cell("'paid || refunded' or `a | b`") == "'paid \\|\\| refunded' or `a \\| b`"


def test_the_first_sentence_of_a_docstring() -> None:
    assert first_sentence("Returns 1.5 of\nthem. More.") == "Returns 1.5 of them."


def test_a_signature_names_each_keyword_of_its_options() -> None:
    shown = signature_of("publish", RocketApp.publish, bound=True)
    assert shown.startswith(
        "async def publish(\n    topic: str | Topic[T],\n    body: T,\n    *,\n    tag: str | None = ...,"
    )
    assert shown.endswith("    timeout: float | None = ...,\n) -> SendResult")


def test_overloads_are_shown_and_the_last_one_in_full() -> None:
    first, last = signatures_of("subscribe", RocketApp.subscribe, bound=True)
    assert first == "def subscribe(topic: Topic[T], **options) -> HandlerOf[T]"
    assert "    order_by: str | Callable[[Message], Hashable] | None = ...," in last


def test_the_texts_below_attributes_are_found_also_those_of_a_typed_dict_above() -> None:
    docs = attribute_docs(PublishOptions)
    assert docs["tag"] == "The tag that subscriptions select by."
    assert set(docs) == set(PublishOptions.__annotations__)


def test_a_page_that_no_line_names_comes_behind_the_others() -> None:
    found = ["docs/how-to/publishing", "docs/how-to/brand-new", "docs/how-to/deep/inside", "docs/other"]
    assert below("docs/how-to/index", found) == [
        ("Publish", ["docs/how-to/publishing"]),
        ("More", ["docs/how-to/brand-new"]),
    ]


@pytest.mark.parametrize(
    ("page", "summary"),
    [
        ("# A\n\nSee [this](b.md): it helps. More.", "See this: it helps."),
        ("# A\n\n```console\n$ run\n```\n\n| a | b |\n\nWords come later.", "Words come later."),
        ("# Only a title\n", "Only a title"),
    ],
)
def test_a_page_is_summed_up_by_its_first_sentence(page: str, summary: str) -> None:
    assert summary_of(page) == summary
