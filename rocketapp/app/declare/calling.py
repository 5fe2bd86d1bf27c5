"""Calls that do not fit a signature: Python counts the arguments, and we say what to write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rocketapp.app.places import place_of_call
from rocketapp.errors import SetupError

F = TypeVar("F", bound=Callable[..., Any])


def called_as(mend: str) -> Callable[[F], F]:
    """Have a function raise SetupError, with the caller's line and this mend, when its arguments do not fit.

    Errors from within the function pass as they are. For declarations, never for what is called per message.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                # Without a frame below this one the function was not entered: its arguments do not fit.
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                raise SetupError(place_of_call(), mend) from None

        return cast(F, call)

    return decorate
