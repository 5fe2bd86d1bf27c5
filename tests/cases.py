"""A table of cases that is one test: all are tried, and one message names each that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def cases(names: str, values: Iterable[Any], ids: Iterable[str] | None = None) -> Callable[[Test], Test]:
    """`@cases("text, number", [("1", 1), ("2", 2)])`: as `pytest.mark.parametrize`, for tests that only compute.

    Each case of that is collected, set up and reported by itself, which is worth it for a story, not for a value.
    """
    keys = [name.strip() for name in names.split(",")]
    table = [dict(zip(keys, value if len(keys) > 1 else (value,), strict=True)) for value in values]
    called = list(ids) if ids is not None else [", ".join(map(repr, case.values())) for case in table]

    def one_test(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def every(**given: Any) -> None:
            failures = []
            for name, case in zip(called, table, strict=True):
                try:
                    test(**given, **case)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{name}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(table)}\n" + "\n".join(failures)

        left = [one for name, one in signature.parameters.items() if name not in keys]
        every.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return every

    assert table, "a table has cases"
    return one_test
