"""Drawings of the pages: the text is the source, and the site has it as boxes, arrows and words."""

from __future__ import annotations

import json
import re
from statistics import median
from xml.etree import ElementTree

import pytest

from rocketapp_site import drawings
from tests.docs.pages import PAGES, ROOT, name_of

SPEED = ROOT / "docs/explanation/speed.json"
SVG = "{http://www.w3.org/2000/svg}"
MARKED = [
    pytest.param(found, id=f"{name_of(page)}:{number}")
    for page in PAGES
    for number, found in enumerate(
        re.findall(r"(?ms)^```text (?:drawing|layers|terminal|bars)\n.*?^```$", page.read_text())
    )
]


def svg_of(block: str) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", drawings.drawn(block))
    assert found is not None
    return ElementTree.fromstring(found[0])


def boxes(svg: ElementTree.Element) -> list[str]:
    """The words that stand in a box."""
    corners = {(int(one.get("x", "")) + 4, int(one.get("y", "")) + 14) for one in svg.iter(f"{SVG}rect")}
    words = {(int(one.get("x", "")), int(one.get("y", ""))): one.text or "" for one in svg.iter(f"{SVG}text")}
    return [word for corner, word in words.items() if corner in corners]


def test_what_an_arrow_leads_to_is_a_box_and_what_stands_in_a_line_is_not() -> None:
    svg = svg_of("```text drawing\n pulled -- a run --> called --+- ends --> done\n" + " " * 30 + "+- raises\n```")
    assert boxes(svg) == ["pulled", "called", "done"]
    assert [one.text for one in svg.iter(f"{SVG}text")] == ["pulled", "a run", "called", "ends", "done", "raises"]
    heads = [one.get("d", "") for one in svg.iter(f"{SVG}path") if one.get("class") == "head"]
    assert heads[0].count("M") == 2


def test_each_name_of_a_layer_is_a_box() -> None:
    svg = svg_of("```text layers\n queues         who owns what\n pull | retry   fetch | send back\n```")
    assert boxes(svg) == ["queues", "pull", "retry"]


def test_bars_are_as_long_as_their_numbers() -> None:
    svg = svg_of("```text bars\n Java's client  20.0\n ours            5.0\n```")
    long, short = (int(one.get("width", "")) for one in svg.iter(f"{SVG}rect"))
    assert long == 4 * short


def test_the_figures_of_the_page_on_speed_are_those_of_the_run() -> None:
    page, run = (ROOT / "docs/explanation/speed.md").read_text(), json.loads(SPEED.read_text())
    table = re.findall(r"^\| (.+) \| `(.+)` \| ([\d.]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(table) > 10
    for label, row, cpu, rate in table:
        rounds = run["consuming"][row]
        median_cpu, median_rate = (median(one[name] for one in rounds) for name in ("cpu_us_per_message", "per_second"))
        assert (cpu, rate) == (f"{median_cpu:.1f}", f"{median_rate:,.0f}")
        assert re.search(rf"(?m)^ {re.escape(label.replace('`', ''))} +{re.escape(cpu)}$", page)
    assert f"of {run['count']:,} messages" in page


def test_other_text_stays_text() -> None:
    page = "```text\nqueues --> pull\n```\n"
    assert drawings.drawn(page) == page == drawings.plain("```text drawing\nqueues --> pull\n```\n")


@pytest.mark.parametrize("block", MARKED)
def test_no_word_of_a_drawing_is_lost(block: str) -> None:
    shown = "".join(one.text or "" for one in svg_of(block).iter(f"{SVG}text"))
    words = re.findall(r"[\w%./:]+", block.split("\n", 1)[1].removesuffix("```"))
    assert [word for word in words if word not in ("v", "^") and word not in shown] == []
