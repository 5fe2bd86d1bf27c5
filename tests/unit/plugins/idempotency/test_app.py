"""Idempotency in a whole app, by its entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketapp import Message, RocketApp, SetupError
from rocketapp.testing import TestApp


def once(taken: list[str], **options: object) -> RocketApp:
    app = RocketApp("shop")

    @app.subscribe("orders", idempotent=lambda message: message.text())
    def take(message: Message) -> None:
        taken.append(message.text())
        if message.attempt == 1:
            raise ValueError("the first attempt fails")

    return app


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_copies_are_handled_once_in_a_whole_app(store: str, tmp_path: Path) -> None:
    taken = list[str]()
    settings = {"idempotency": {"store": store, "path": str(tmp_path / "marks.db")}}
    with TestApp(once(taken), settings=settings) as t:
        t.publish_many("orders", ["1", "2", "1"])
        t.settle()
        assert (len(t.handled), len(t.dead)) == (3, 0)
        done = [text for text in taken if text == "1"]
    assert 2 <= len(done) <= 3  # a second copy may have its own first attempt before the retry
    with TestApp(once(taken), settings=settings) as t:
        before = len(taken)
        t.publish("orders", "1")
        t.settle()
        assert len(taken) - before == (0 if store == "sqlite" else 2)


def test_without_the_plugin_a_handler_that_needs_it_is_refused() -> None:
    problem = r"test_app\.py:\d+: idempotent= needs the plugin idempotency, which is disabled"
    settings = {"app": {"disabled_plugins": ["idempotency"]}}
    with pytest.raises(SetupError, match=problem), TestApp(once([]), settings=settings):
        pass


class KeptElsewhere:
    """A key function of a plugin that the app does not have."""

    keeps_marks = True

    def __call__(self, message: Message) -> str:
        return message.text()

    def __repr__(self) -> str:
        return "<Database shop>"


def test_a_handler_whose_marks_a_missing_plugin_keeps_is_refused() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders", idempotent=KeptElsewhere())
    async def settle(message: Message) -> None: ...

    problem = r"test_app\.py:\d+: idempotent= needs <Database shop>, which is not among the app's plugins"
    with pytest.raises(SetupError, match=problem), TestApp(app):
        pass


def test_a_test_s_marks_are_in_memory_unless_it_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with TestApp(once([])) as t:
        t.publish("orders", "1")
        t.settle()
    assert list(tmp_path.iterdir()) == []
