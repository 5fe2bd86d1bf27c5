"""Arguments of `publish` -> what a producer sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketapp.app.bodies import encode_body
from rocketapp.model.names import delay_level
from rocketapp.model.outgoing import Outgoing


def outgoing(
    topic: str,
    body: Any,
    *,
    tag: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    order_key: str | None = None,
    delay: float | None = None,
) -> Outgoing:
    """Raises TypeError for a body that has no bytes, ValueError for a delay without a level."""
    return Outgoing(
        topic=topic,
        body=encode_body(body),
        tag=tag,
        keys=(keys,) if isinstance(keys, str) else tuple(keys),
        properties=properties or {},
        order_key=order_key,
        delay_level=0 if delay is None else delay_level(delay),
    )
