"""The page on the design names files and rooms that are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/explanation/design.md").read_text()


def test_every_file_that_the_design_names_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert len(named) > 10
    assert [name for name in named if not any((ROOT / "rocketapp").rglob(name))] == []


def test_every_room_is_on_the_map() -> None:
    drawn = PAGE.partition("```text layers\n")[2].partition("```")[0]
    on_map = {word for line in drawn.splitlines() for word in re.split(r"\s{2,}", line.strip())[0].split(" | ")}
    package = ROOT / "rocketapp"
    rooms = {path.stem for path in package.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"}
    assert sorted(rooms - on_map - {"__init__", "__main__"}) == []
