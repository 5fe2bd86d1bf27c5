"""The style sheet that the page of a running app and the AsyncAPI page share, for light and dark schemes.

It is embedded in the page; nothing is loaded from elsewhere. Text has a contrast of at least 4.5:1.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final


def file_of(package: str, name: str) -> str:
    """The text of a style sheet or script among the modules of this package."""
    return files(package).joinpath(name).read_text("utf-8").strip()


BASE: Final = file_of(__package__, "base.css")


def policy_of(style: str) -> str:
    """A Content-Security-Policy for a page with only this style sheet: it loads nothing and runs nothing."""
    return f"default-src 'none'; style-src '{hash_of(style)}'; base-uri 'none'"


def hash_of(text: str) -> str:
    """The hash by which a Content-Security-Policy allows one style sheet or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
