"""Small curves of the last minutes, as SVG inside a page: now is on the right, and 0 at the bottom.

A curve has no axis. Its title says the figures, for those who hover over it and those who hear the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 100.0
HEIGHT: Final = 24.0
Points = Sequence[tuple[float, float | None]]
"""How far back in the span, from 0 for now to 1, and the value; None where there is none."""


def curves(title: str, *series: Points, kind: str = "") -> str:
    """One curve for each series, the first with what is below it filled. All have one scale."""
    most = max((value for points in series for _, value in points if value is not None), default=0.0)
    if not most:
        return _svg(title, "", kind)
    lines = (
        f'<path class="{"over" if index else "under"}" d="{_line(points, most)}"/>'
        for index, points in enumerate(series)
    )
    return _svg(title, f'<path class="area" d="{_area(series[0], most)}"/>{"".join(lines)}', kind)


def bars(title: str, points: Points) -> str:
    """A bar wherever something happened: what is rare is not lost between two points."""
    most = max((value for _, value in points if value is not None), default=0.0)
    found = "".join(f"M{_x(ago)} {HEIGHT:g}V{_y(value, most)}" for ago, value in points if value)
    return _svg(title, f'<path class="bars" d="{found}"/>' if found else "", "")


def _svg(title: str, paths: str, kind: str) -> str:
    ground = f'<path class="ground" d="M0 {HEIGHT:g}H{WIDTH:g}"/>'
    box = f'viewBox="0 -1 {WIDTH:g} {HEIGHT + 2:g}" preserveAspectRatio="none"'
    name = f"spark {kind}".strip()
    return f'<svg class="{name}" role="img" {box}><title>{escape(title)}</title>{ground}{paths}</svg>'


def _line(points: Points, most: float) -> str:
    """Broken where a value is missing; a value that stands alone is a dot."""
    found, is_drawing = [], False
    for ago, value in points:
        if value is not None:
            found.append(f"{'L' if is_drawing else 'M'}{_x(ago)} {_y(value, most)}{'' if is_drawing else 'h.1'}")
        is_drawing = value is not None
    return "".join(found)


def _area(points: Points, most: float) -> str:
    runs: list[list[tuple[float, float]]] = [[]]
    for ago, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((ago, value))
    return "".join(
        f"M{_x(run[0][0])} {HEIGHT:g}{''.join(f'L{_x(ago)} {_y(value, most)}' for ago, value in run)}"
        f"L{_x(run[-1][0])} {HEIGHT:g}Z"
        for run in runs
        if len(run) > 1
    )


def _x(ago: float) -> str:
    return f"{max(0.0, WIDTH * (1 - ago)):.1f}"


def _y(value: float, most: float) -> str:
    return f"{HEIGHT * (1 - value / most):.1f}"
