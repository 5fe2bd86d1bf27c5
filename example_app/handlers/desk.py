"""The desk: every dead letter is told to a person. `rocketapp dlq` looks at them, and replays those that are mended."""

from __future__ import annotations

import logging

from rocketapp import Message, Router

log = logging.getLogger("shop.desk")
# From the first on, also of those that came before the desk was there.
router = Router(group="shop-desk", start="first")


@router.subscribe("%DLQ%shop")
@router.subscribe("%DLQ%shop-stock")
async def tell(message: Message) -> None:
    """A dead letter carries the reason, the handler and the attempts as properties."""
    said = message.properties
    log.warning(
        "for a person: %s, %s, attempt %s: %s",
        " ".join(message.keys) or message.message_id,
        said.get("rocketapp.handler", "?"),
        said.get("rocketapp.attempts", "?"),
        said.get("rocketapp.reason", ""),
    )
