from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.tag_table import TagTable
from rocketapp.wire.properties import from_tag_on, tag_of


@dataclass(frozen=True)
class Tagged:
    tag: str | None
    number: int = 0
    behind: bool = False
    """The tag stands behind the number, which differs from message to message."""

    @property
    def raw_properties(self) -> bytes:
        number, tag = f"n\x01{self.number}", f"TAGS\x01{self.tag}" if self.tag else "t\x01"
        return "\x02".join([number, tag] if self.behind else [tag, number]).encode()

    def from_tag_on(self) -> bytes:
        return from_tag_on(self.raw_properties)

    def raw_tag(self) -> bytes | None:
        return tag_of(self.raw_properties)

    @staticmethod
    def raw_tags(messages: Sequence[Tagged]) -> list[bytes | None]:
        return [message.raw_tag() for message in messages]


def table(*handlers: tuple[str, str]) -> TagTable[str]:
    return TagTable((name, frozenset(filter(None, tags.split()))) for name, tags in handlers)


def handler_of(routes: TagTable[str], tag: str | None) -> str | None:
    """Who gets a message that comes alone."""
    ((handler, _),) = routes.split([Tagged(tag)])
    return handler


def test_one_handler_for_everything_gets_the_batch_as_it_is() -> None:
    batch = [Tagged("a"), Tagged(None)]
    ((handler, share),) = table(("all", "")).split(batch)
    assert handler == "all"
    assert share is batch


def test_exact_tags_come_first_and_the_rest_gets_what_is_left() -> None:
    both = table(("exact", "a b"), ("rest", ""))
    assert [handler_of(both, tag) for tag in ("a", "b", "c", None)] == ["exact", "exact", "rest", "rest"]


def test_without_a_rest_other_tags_have_no_handler() -> None:
    assert handler_of(table(("exact", "a")), "aa") is None
    assert handler_of(table(("exact", "a")), None) is None


TAGS = st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.booleans())


@given(st.lists(TAGS, max_size=40) | st.just([("b", True)] * 3), st.booleans())
def test_splitting_loses_nothing_and_keeps_the_order_of_each_share(
    tags: list[tuple[str | None, bool]], with_rest: bool
) -> None:
    handlers = [("one", "a"), ("two", "b c"), *([("rest", "")] if with_rest else [])]
    batch = [Tagged(tag, number, behind) for number, (tag, behind) in enumerate(tags)]
    routes = table(*handlers)
    shares = routes.split(batch)
    assert sorted((each for _, share in shares for each in share), key=lambda each: each.number) == batch
    for handler, share in shares:
        assert list(share) == [each for each in batch if handler_of(routes, each.tag) == handler]
