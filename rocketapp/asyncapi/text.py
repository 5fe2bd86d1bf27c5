"""A document as text, and how two documents differ."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, Literal

import msgspec

Format = Literal["json", "yaml"]
_AROUND = 2
"""Lines that stay the same, shown around those that differ."""


def encoded(document: Mapping[str, Any], form: Format) -> str:
    """The text of a file. Raises ImportError for YAML without PyYAML."""
    if form == "yaml":
        return msgspec.yaml.encode(document).decode()
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def decoded(text: str, form: Format) -> Any:
    """What is in a file. Raises ValueError with what is wrong in it; ImportError as `encoded`."""
    return msgspec.yaml.decode(text) if form == "yaml" else msgspec.json.decode(text)


def difference(committed: Any, present: Mapping[str, Any], names: tuple[str, str], *, most: int) -> list[str]:
    """The lines of a diff from one document to the other; empty for equal ones. `most` lines, and how many follow."""
    before, after = (encoded(one, "json").splitlines() for one in (committed, present))
    lines = list(unified_diff(before, after, *names, n=_AROUND, lineterm=""))
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"... and {len(lines) - most} more lines"]
