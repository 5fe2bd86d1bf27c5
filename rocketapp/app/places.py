"""Where user code was written, as `file:line`, for messages about it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from rocketapp.user_line import calling_frame


def place_at(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def place_of_call() -> str:
    """`file:line` of the user's call that led here."""
    return place_at(calling_frame(sys._getframe(1)))


def plain_function(function: Callable[..., Any]) -> Any:
    """The function behind partials, methods, callable objects and decorators with `__wrapped__`."""
    for _ in range(100):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, staticmethod) or inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not inspect.isclass(function) and callable(function):
            function = type(function).__call__
        else:
            break
    return function


def place_of_function(function: Callable[..., Any], otherwise: str) -> str:
    """`file:line` where the function is written, or `otherwise` for one without code."""
    code = getattr(plain_function(function), "__code__", None)
    return otherwise if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def name_of_function(function: Callable[..., Any]) -> str:
    """`module:qualified.name`; for a partial or a callable object, of what it calls."""
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def takes(function: Callable[..., Any], *names: str) -> bool:
    """Whether it can be called with these arguments, by position. What does not tell its arguments is believed."""
    try:
        inspect.signature(function).bind(*names)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await, seen through partials, objects and decorators."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(plain_function(function))


def function_problem(function: Any, *arguments: str, wanted: Literal["async def", "def", ""] = "") -> str | None:
    """Why this is no function that can be called with these arguments, by position; or None.

    arguments: their names, for people; none: any. wanted: what kind of function; empty: either.
    """
    if not callable(function):
        return f"{function!r} cannot be called"
    if inspect.isclass(function):
        return f"{function.__qualname__} is a class: give an instance of it, or a function"
    name, plain = name_of_function(function), plain_function(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        return f"{name} is a generator: its code would never run; remove the yield"
    if wanted and is_async(function) != (wanted == "async def"):
        return f"make {name} {'an' if wanted == 'async def' else 'a plain'} `{wanted}`"
    if arguments and not takes(function, *arguments):
        return f"{name} cannot be called with ({', '.join(arguments)})"
    return None
