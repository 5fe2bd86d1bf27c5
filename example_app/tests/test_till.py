"""Orders from outside of the app, over a real connection."""

from __future__ import annotations

import pytest

from example_app import shop


async def test_each_order_is_told(
    rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    await shop.main(2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[0] for line in lines] == ["Ada orders 2 tea", "Ben orders 1 coffee"]
