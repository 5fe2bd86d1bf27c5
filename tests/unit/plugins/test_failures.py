"""What the settings pass over is done without a call."""

from __future__ import annotations

from rocketapp import Message, RocketApp
from rocketapp.testing import Done, call_sync, make_message


def test_a_message_that_the_settings_skip_is_done_without_a_call() -> None:
    app, seen = RocketApp("shop", settings={"failures": {"skip_messages": ["7F01", "7F02"]}}), []

    @app.subscribe("orders", orderly=True)
    async def handle(message: Message) -> None:
        seen.append(message.message_id)

    for message_id in ("7F01", "7F03", "7F02"):
        outcome = call_sync(handle, make_message(b"x", topic="orders", message_id=message_id), app=app)
        assert str(outcome) == (str(Done()) if message_id == "7F03" else "filtered")
    assert seen == ["7F03"]
