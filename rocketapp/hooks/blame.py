"""Whose code raised: found out when something has failed, so that it costs nothing before."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from traceback import walk_tb
from types import CodeType
from typing import Any


def code_of(call: Any) -> CodeType | None:
    """The code that runs when this is called; None when it is not Python's."""
    while isinstance(call, functools.partial):
        call = call.func
    call = getattr(call, "__func__", call)
    if not hasattr(call, "__code__"):
        call = vars(type(call)).get("__call__")
    code = getattr(call, "__code__", None)
    return code if isinstance(code, CodeType) else None


def raised_by(error: BaseException, owners: Mapping[CodeType, str]) -> str:
    """The owner of the innermost code that has one and was running when the error was raised; or an empty string."""
    found = ""
    for frame, _ in walk_tb(error.__traceback__):
        found = owners.get(frame.f_code, found)
    return found
