"""Odd inputs end in one line that names the place and the mend, before anything is asked or started."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketapp.cli.main import run_command

CASES = [
    (["run", ""], "APP is empty"),
    (["run", "odd_app", "--settings", ""], "--settings is empty"),
    (["routes", "odd_app", "--settings", ""], "--settings is empty"),
    (["run", "odd_app", "--reload", "--reload-dir", ""], "--reload-dir is empty"),
    (["run", "odd_app", "--name-server", ";"], "--name-server is empty"),
    (["topic", "list", "--name-server", " ; "], "--name-server is empty"),
    (["send", "orders", "x", "--delay", ""], "--delay is empty"),
    (["send", "orders", "x", "--tag", ""], "--tag is empty"),
    (["send", "orders", "x", "--order-key", ""], "--order-key is empty"),
    (["send", "orders", "x", "--key", ""], "send orders: key '': keys are joined by blanks, so none may be empty"),
    (["send", "orders", "x", "--key", "a b"], "send orders: key 'a b': keys are joined by blanks"),
    (["send", "orders", "x", "--property", "DELAY=3"], "send orders: property 'DELAY' belongs to RocketMQ"),
    (["send", "SCHEDULE_TOPIC_XXXX", "x"], "send SCHEDULE_TOPIC_XXXX: sending to this system topic is forbidden"),
    (["send", "orders", "x", "--property", "k="], "--property k=: write KEY=VALUE"),
    (["send", "orders", "x", "--tag", "a||b"], "--tag a||b: a message has one tag"),
    (["tail", "orders", "--tag", ""], "--tag is empty"),
    (["new", "", "--defaults"], "DIR is empty"),
    (["new", "odd_app.py", "--defaults"], "odd_app.py is a file: name a folder"),
    (["new", ".", "--defaults"], "is not empty, it has odd_app.py"),
]


@pytest.mark.parametrize(("words", "says"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_it_is_refused_with_the_mend(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "odd_app.py").write_text("from rocketapp import RocketApp\napp = RocketApp('odd')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run_command(words) == 2
    line = capsys.readouterr().err
    assert says in line
    assert line.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["odd_app.py"]
