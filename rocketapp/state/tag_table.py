"""Which handler gets which message of a topic: by tag, looked up in the raw bytes.

A message goes to the handler that names its tag; the handler of `*` takes what no exact
tag took. Whole batches go in and come out, so that the usual case, one handler for all,
costs nothing per message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Generic, Protocol, TypeVar


class Tagged(Protocol):
    """What dispatching sees of a message."""

    def raw_tag(self) -> bytes | None:
        """The tag as UTF-8 bytes."""
        ...


H = TypeVar("H")
T = TypeVar("T", bound=Tagged)


class TagTable(Generic[H]):
    """The handlers of one topic."""

    def __init__(self, handlers: Iterable[tuple[H, frozenset[str]]]) -> None:
        """Pairs of handler and tags; no tags mean `*`. The registry refuses what is said twice."""
        self._by_tag: dict[bytes | None, H] = {}
        self._rest: H | None = None
        for handler, tags in handlers:
            if tags:
                self._by_tag.update((tag.encode(), handler) for tag in tags)
            else:
                self._rest = handler

    def split(self, messages: Sequence[T]) -> list[tuple[H | None, Sequence[T]]]:
        """The messages per handler, each share in the order of `messages`; None stands for nobody."""
        if not self._by_tag:
            return [(self._rest, messages)]
        find, rest = self._by_tag.get, self._rest
        # Compared by identity, so that a handler needs no hash of its own.
        shares: dict[int, tuple[H | None, list[T]]] = {}
        for message in messages:
            handler = find(message.raw_tag(), rest)
            entry = shares.get(id(handler))
            if entry is None:
                shares[id(handler)] = (handler, [message])
            else:
                entry[1].append(message)
        return list(shares.values())

    def runs(self, messages: Sequence[T]) -> list[tuple[H | None, Sequence[T]]]:
        """The messages in their order, cut where the handler changes: for orderly topics."""
        if not self._by_tag:
            return [(self._rest, messages)]
        find, rest = self._by_tag.get, self._rest
        pairs = ((find(message.raw_tag(), rest), message) for message in messages)
        return [(handler, [message for _, message in run]) for handler, run in groupby(pairs, key=lambda pair: pair[0])]
