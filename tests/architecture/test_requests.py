"""Each request code has one method that answers it."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

from rocketapp import namesrv
from rocketapp.broker import processors
from rocketapp.wire.codes import RequestCode


def test_a_request_code_has_one_method_that_answers_it() -> None:
    counts: Counter[int] = Counter()
    for room in (processors, namesrv):
        for found in pkgutil.iter_modules(room.__path__):
            module = importlib.import_module(f"{room.__name__}.{found.name}")
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == module.__name__:
                    for method in vars(kind).values():
                        counts.update(method.answers.codes if hasattr(method, "answers") else ())
    assert len(counts) > 60
    # The answer waits for slaves where there may be some.
    assert {code for code, count in counts.items() if count > 1} == {RequestCode.GET_ALL_CONSUMER_OFFSET}
