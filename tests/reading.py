"""Whoever imports this has read the tests that its arguments name, as the process of which those of a run are forks."""

import sys

import pytest

pytest.main([*sys.argv[1:], "-n0", "--collect-only", "-q"])
