"""How our pages look, light and dark: what the page of a running app and the page of its document have in common.

One style sheet inside the page, nothing from elsewhere. Colours are of one hue in both schemes and pass 4.5:1 on their
ground.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final


def file_of(package: str, name: str) -> str:
    """The text of a style sheet or script that lies among the modules of this package."""
    return files(package).joinpath(name).read_text("utf-8").strip()


BASE: Final = file_of(__package__, "base.css")


def policy_of(style: str) -> str:
    """What a browser is told of a page with this style sheet alone: it loads nothing and runs nothing."""
    return f"default-src 'none'; style-src '{hash_of(style)}'; base-uri 'none'"


def hash_of(text: str) -> str:
    """Names one style sheet or script to a browser: it takes no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
