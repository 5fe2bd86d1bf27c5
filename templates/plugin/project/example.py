"""An app to try the plugin with: `make run`. It does not name the plugin, which is found because it is installed."""

from __future__ import annotations

from rocketapp import Message, RocketApp

app = RocketApp("example")


@app.subscribe("example-orders")
async def settle(message: Message) -> None:
    """Does nothing, successfully."""
