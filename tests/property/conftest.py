"""Property tests run on machines that others use as well: no deadline unless a test is about time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rocketapp", deadline=None)
settings.load_profile("rocketapp")
