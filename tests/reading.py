"""Whoever imports this has read the tests that its arguments name, as the process of which those of a run are forks."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest


class _Whole:
    """Forgets a file that cannot be read to its end: it stays imported as far as it came, and forks would take that."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if not report.passed:
            for name, module in tuple(sys.modules.items()):
                if getattr(module, "__file__", None) == str(collector.path):
                    del sys.modules[name]
        return report


pytest.main([*sys.argv[1:], "-n0", "--collect-only", "-q"], plugins=[_Whole()])
