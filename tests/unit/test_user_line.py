"""The user's line among frames of the package, of installed packages and of the standard library."""

from __future__ import annotations

import inspect
import json
import sys
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest

from rocketapp import Policy
from rocketapp.user_line import line_of_error, line_of_frame
from rocketapp.wire.body import encode_body

INSTALLED = "/usr/lib/python3/site-packages/shop/handlers.py"


def line_here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def raised_by(function: Any) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def compiled(source: str, filename: str) -> CodeType:
    return compile(source, filename, "exec")


@pytest.mark.parametrize(
    "call",
    [
        lambda: json.loads("{"),
        lambda: encode_body(object()),
        lambda: msgspec.json.decode(b"{"),
        lambda: Policy(delays=5),  # type: ignore[arg-type]
    ],
)
def test_what_a_library_raises_is_told_at_the_line_that_called_it(call: Any) -> None:
    assert str(line_of_error(raised_by(call))) == f"test_user_line.py:{call.__code__.co_firstlineno}"


def test_a_handler_is_the_users_even_where_it_is_installed() -> None:
    code = compiled("1 / 0", INSTALLED)
    error = raised_by(lambda: exec(code))
    assert str(line_of_error(error, home=INSTALLED)) == "handlers.py:1"
    assert str(line_of_error(error)) == f"test_user_line.py:{line_here() - 2}"


def test_wrong_syntax_is_told_where_it_stands() -> None:
    error = raised_by(lambda: compiled("x = 1\ny = =", "/home/me/app.py"))
    assert str(line_of_error(error)) == "app.py:2"


def test_what_is_typed_in_is_the_users_and_what_is_generated_is_not() -> None:
    assert str(line_of_error(raised_by(lambda: exec(compiled("1 / 0", "<string>"))))) == "<string>:1"
    generated = line_of_error(raised_by(lambda: exec(compiled("1 / 0", "<attrs generated init>"))))
    assert str(generated) == f"test_user_line.py:{line_here() - 1}"
    of_named_tuple = {"__name__": "namedtuple_Order"}
    generated = line_of_error(raised_by(lambda: exec(compiled("1 / 0", "<string>"), of_named_tuple)))
    assert str(generated) == f"test_user_line.py:{line_here() - 1}"


def test_a_running_thread_is_in_the_innermost_line_of_the_user() -> None:
    seen: list[FrameType] = []
    namespace = {"look": lambda: seen.append(sys._getframe(1))}
    exec(compiled("look()", INSTALLED), namespace)
    found = line_of_frame(seen[0])
    assert found is not None
    assert found.function == "test_a_running_thread_is_in_the_innermost_line_of_the_user"
    assert line_of_frame(None) is None
