"""Which handler gets which message of a topic. Tags are compared as raw bytes.

A message goes to the handler that names its tag, otherwise to the handler of `*`. Messages are
split in whole batches, so that the usual case, one handler for all, costs nothing per message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar


class Tagged(Protocol):
    """A message as the tag table sees it."""

    @property
    def raw_properties(self) -> bytes:
        """Its encoded properties; the tag is one of them."""
        ...

    def from_tag_on(self) -> bytes:
        """Messages whose `raw_properties` end so have the same tag; empty where no end says it."""
        ...

    def raw_tag(self) -> bytes | None:
        """The tag as UTF-8 bytes."""
        ...

    @staticmethod
    def raw_tags(messages: Any) -> list[bytes | None]:
        """The tag of each of these messages."""
        ...


H = TypeVar("H")
M = TypeVar("M")
T = TypeVar("T", bound=Tagged)


class TagTable(Generic[H]):
    """Finds the handler of each message of one topic by its tag."""

    def __init__(self, handlers: Iterable[tuple[H, frozenset[str]]]) -> None:
        """Pairs of handler and tags; no tags mean `*`. The registry has refused tags that are named twice."""
        self._by_tag: dict[bytes | None, H] = {}
        self._rest: H | None = None
        for handler, tags in handlers:
            if tags:
                self._by_tag.update((tag.encode(), handler) for tag in tags)
            else:
                self._rest = handler

    def takers(self, messages: Sequence[T]) -> list[H | None]:
        """The handler of each message. The handler None means that none matches."""
        if not self._by_tag:
            return [self._rest] * len(messages)
        find, rest = self._by_tag.get, self._rest
        tags = _tags(messages)
        if tags and tags.count(tags[0]) == len(tags):
            return [find(tags[0], rest)] * len(tags)
        return [find(tag, rest) for tag in tags]

    def split(self, messages: Sequence[T]) -> list[tuple[H | None, Sequence[T]]]:
        """The messages by handler, in the order of `messages`."""
        return split(self.takers(messages), messages)


def split(takers: Sequence[H], messages: Sequence[M]) -> list[tuple[H, Sequence[M]]]:
    """Group the messages by their takers; `messages` keeps its order inside each group."""
    if not takers or takers.count(takers[0]) == len(takers):
        return [(takers[0], messages)] if takers else []
    shares: dict[int, tuple[H, list[M]]] = {}
    for taker, message in zip(takers, messages, strict=True):
        entry = shares.get(id(taker))
        if entry is None:
            shares[id(taker)] = (taker, [message])
        else:
            entry[1].append(message)
    return list(shares.values())


def _tags(messages: Sequence[T]) -> list[bytes | None]:
    """The tag of each message."""
    if messages and (ending := messages[0].from_tag_on()):
        # Most batches have one tag, at one place: one look at each message is a quarter of the work.
        for message in messages:
            if not message.raw_properties.endswith(ending):
                break
        else:
            return [messages[0].raw_tag()] * len(messages)
    return messages[0].raw_tags(messages) if messages else []
