"""Complete apps, a folder each, that pages of docs/how-to show. What they need is not installed here."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
RECIPES = {
    _HERE.parents[2] / f"docs/how-to/{file.parent.name}.md": file.parent
    for file in sorted(_HERE.glob("*/requirements.txt"))
}
"""Page -> folder."""
