"""How much memory something keeps."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable


def kept_by(action: Callable[[], None]) -> int:
    """Bytes that are in use after it and were not before."""
    tracemalloc.start()
    try:
        action()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
