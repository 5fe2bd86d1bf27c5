"""The two decorators that make a function a hook, or the declaration of one."""

from __future__ import annotations

from typing import Final

import pluggy

PROJECT: Final = "rocketapp"
"""Name of the pluggy project and of the entry-point group where plugins are found."""

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook that has its name."""
