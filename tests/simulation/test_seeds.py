"""Seeds: whatever chance does to a cluster, the contract holds.

`python -m tests.simulation --seeds 0 10000` runs more of them. A seed that failed and taught something has a
test of its own in test_lessons.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import history as facts
from tests.simulation.seeded import CONCURRENT, MIXED, WORKLOADS, simulate

SEEDS = 45


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_contract_holds_whatever_happens(seed: int, workload: str) -> None:
    assert simulate(seed, workload).findings == []


def test_the_same_seed_is_the_same_history_in_every_process() -> None:
    """Also with other hashes of strings, which order sets differently."""
    program = "from tests.simulation.seeded import simulate; print(hash_of(simulate(7, 'mixed')))"
    helper = "import hashlib\ndef hash_of(result): return hashlib.sha256(repr(result.history).encode()).hexdigest()\n"
    seen = {
        subprocess.run(
            [sys.executable, "-c", helper + program],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            cwd=Path(__file__).parents[2],
        ).stdout
        for number in (1, 2, 3)
    }
    assert len(seen) == 1


def test_the_same_seed_twice_in_one_process_is_the_same_history() -> None:
    assert simulate(3, CONCURRENT).history == simulate(3, CONCURRENT).history


def test_runs_are_not_empty_and_chance_reaches_every_kind_of_fault() -> None:
    histories = [simulate(seed, MIXED).history for seed in range(12)]
    kinds = {event.kind for history in histories for event in history if isinstance(event, facts.Fault)}
    assert kinds == facts.DISTURBING | facts.REBALANCING | {facts.CLOCK}
    for history in histories:
        assert sum(isinstance(event, facts.Finished) for event in history) > 50
        assert any(isinstance(event, facts.Stored) and facts.is_copy(event.queue) for event in history)
