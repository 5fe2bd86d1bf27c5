"""Draws an app as SVG: received topics on the left, handlers in the middle, topics that are sent to on the right.

The layout is computed here, so it needs no script. Each box links to its section of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from rocketapp.asyncapi.document import BINDING

WIDTH: Final = 250.0
"""Of a box."""
HEIGHT: Final = 30.0
GAP: Final = 110.0
"""Between two columns, for the lines."""
STEP: Final = 42.0
"""From one box of a column to the next."""
MOST_LETTERS: Final = 32
"""Of a name that fits into a box; the title has all of it."""
_OWN_CODE: Final = ""
"""Stands for what the app publishes outside of handlers."""


@dataclass(slots=True, eq=False)
class _Box:
    text: str
    target: str
    """Where it leads to."""
    kind: str
    y: float = 0.0
    near: list[_Box] = field(default_factory=list)
    """Those in the middle column that it is joined with."""


def diagram(channels: Mapping[str, Any], operations: Mapping[str, Any]) -> str:
    """The drawing as SVG; empty without operations. `channels` and `operations`: as in the document."""
    middle: dict[str, _Box] = {}
    sides: dict[str, dict[str, _Box]] = {"receive": {}, "send": {}}
    for key, one in operations.items():
        handler = one.get("bindings", {}).get(BINDING, {}).get("handler", _OWN_CODE)
        if handler not in middle:
            is_own = handler == _OWN_CODE
            text, kind = ("the app's own code", "handler own") if is_own else (one["title"], "handler")
            middle[handler] = _Box(text, f"operation-{key}", kind)
        # What answers a request sends as well.
        for action, place in ((one["action"], one), ("send", one.get("reply"))):
            if place is not None:
                channel = place["channel"]["$ref"].removeprefix("#/channels/")
                topic = sides[action].setdefault(channel, _Box(_text(channels[channel]), f"channel-{channel}", action))
                if middle[handler] not in topic.near:
                    topic.near.append(middle[handler])
    columns = [list(sides["receive"].values()), list(middle.values()), list(sides["send"].values())]
    _place(columns)
    return "".join(_drawn(columns)) if operations else ""


def name_of(channel: Mapping[str, Any]) -> str:
    """The topic of a channel; replies have none."""
    return str(channel["address"] or channel["title"])


def cluster_of(channel: Mapping[str, Any]) -> str:
    """`on eu`; empty for the unnamed cluster."""
    name = channel.get("bindings", {}).get(BINDING, {}).get("cluster")
    return f"on {name}" if name else ""


def _text(channel: Mapping[str, Any]) -> str:
    return f"{name_of(channel)} {cluster_of(channel)}".rstrip()


def _place(columns: Sequence[Sequence[_Box]]) -> None:
    """Handlers below each other; a topic beside the middle of its handlers, below the topic before it."""
    for index, handler in enumerate(columns[1]):
        handler.y = index * STEP
    for topics in (columns[0], columns[2]):
        below = 0.0
        for topic in sorted(topics, key=lambda one: sum(near.y for near in one.near) / len(one.near)):
            topic.y = max(below, sum(near.y for near in topic.near) / len(topic.near))
            below = topic.y + STEP


def _drawn(columns: Sequence[Sequence[_Box]]) -> Iterator[str]:
    has_left, has_right = bool(columns[0]), bool(columns[2])
    lefts = [0.0, (WIDTH + GAP) * has_left, (WIDTH + GAP) * (1 + has_left)]
    width = lefts[1] + WIDTH + (WIDTH + GAP) * has_right
    height = max(box.y for boxes in columns for box in boxes) + HEIGHT
    size = f'viewBox="-1 -1 {width + 2:g} {height + 2:g}" width="{width + 2:g}" height="{height + 2:g}"'
    yield f'<svg class="diagram" role="group" aria-label="Topics and handlers" {size}>'
    for topic in columns[0]:
        yield from (_line(lefts[0] + WIDTH, topic.y, lefts[1], near.y, "receive") for near in topic.near)
    for topic in columns[2]:
        yield from (_line(lefts[1] + WIDTH, near.y, lefts[2], topic.y, "send") for near in topic.near)
    for left, boxes in zip(lefts, columns, strict=True):
        yield from (_box(left, box) for box in boxes)
    yield "</svg>"


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    """A curve with an arrow at its end."""
    y, to_y, half = y + HEIGHT / 2, to_y + HEIGHT / 2, (to_x - x) / 2
    curve = f"M{x:g} {y:g}C{x + half:g} {y:g} {to_x - half:g} {to_y:g} {to_x - 6:g} {to_y:g}"
    arrow = f"M{to_x:g} {to_y:g}l-7 -4v8z"
    return f'<path class="line {kind}" d="{curve}"/><path class="arrow {kind}" d="{arrow}"/>'


def _box(left: float, box: _Box) -> str:
    shown = box.text if len(box.text) <= MOST_LETTERS else f"{box.text[: MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    place = (
        f'x="{left:g}" y="{box.y:g}" width="{WIDTH:g}" height="{HEIGHT:g}" rx="{8 if "handler" in box.kind else 15}"'
    )
    text = f'<text x="{left + WIDTH / 2:g}" y="{box.y + HEIGHT / 2:g}">{escape(shown)}</text>'
    link = f'<a class="{box.kind}" href="#{escape(box.target)}">'
    return f"{link}<title>{escape(box.text)}</title><rect {place}/>{text}</a>"
