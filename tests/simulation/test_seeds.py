"""Seeds: whatever chance does to a cluster, the contract holds.

`make simulation` runs more of them. A seed that failed and taught something has a
test of its own, or a line in `LESSONS`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from random import Random

import pytest

from rocketapp.broker.broker import USUAL_PACE
from tests.simulation import history as facts
from tests.simulation.seeded import (
    BROADCAST,
    BY_HAND,
    CONCURRENT,
    GUARDED,
    KEYED,
    KEYED_WORKLOADS,
    MIXED,
    POLL,
    POP,
    Result,
    brokers_of,
    simulate,
    topics_of,
    workload_of,
)

SEEDS, KEYED_SEEDS, GUARDED_SEEDS, BROADCAST_SEEDS, POLL_SEEDS, BY_HAND_SEEDS, POP_SEEDS = 16, 2, 3, 2, 2, 2, 3
"""Some thirty in all, the same each time; `make simulation` runs 200 of each workload, those among them."""
LESSONS = [
    (MIXED, 562),
    (MIXED, 662),
    (CONCURRENT, 910),
    (CONCURRENT, 3780),
    (KEYED, 99),
    (GUARDED, 215),
    (GUARDED, 435),
    (GUARDED, 576),
    (POP, 301),
]
"""Workloads and seeds past these that found something."""


class Runs:
    """Runs of seeds, on all cores: each is started once, as soon as it is certain that a test asks for it."""

    def __init__(self, pool: ProcessPoolExecutor, seeds: Iterable[int]) -> None:
        self._pool = pool
        self._results = {seed: pool.submit(simulate, seed) for seed in seeds}

    def result(self, seed: int) -> Result:
        if seed not in self._results:
            self._results[seed] = self._pool.submit(simulate, seed)
        return self._results[seed].result()


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    seeds = [
        item.callspec.params["seed"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_the_contract_holds_whatever_happens.__name__
    ]
    # Spawned: a process with threads must not be forked.
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0))), multiprocessing.get_context("spawn")) as pool:
        yield Runs(pool, seeds)
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def one_by_one() -> Iterator[ProcessPoolExecutor]:
    """Runs that wait for no others. In a process of their own: what is left of killed members ends when it likes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_contract_holds_whatever_happens(seed: int, runs: Runs) -> None:
    workload = workload_of(seed)
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {workload} --show"
    assert runs.result(seed).findings == [], again


@pytest.mark.parametrize(("workload", "seed"), LESSONS)
def test_a_seed_that_found_something_finds_it_no_more(
    workload: str, seed: int, one_by_one: ProcessPoolExecutor
) -> None:
    # Their stories are told without the questions that members ask each other when they join.
    assert (
        one_by_one.submit(simulate, seed, workload, pace=USUAL_PACE, subscription_check="off").result().findings == []
    )


@pytest.mark.parametrize(("workload", "seed"), list(product(KEYED_WORKLOADS, range(KEYED_SEEDS))))
def test_order_per_key_holds_whatever_happens(workload: str, seed: int, one_by_one: ProcessPoolExecutor) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload '{workload}' --show"
    assert one_by_one.submit(simulate, seed, workload).result().findings == [], again


@pytest.mark.parametrize("seed", range(GUARDED_SEEDS))
def test_rates_and_breakers_hold_whatever_happens(seed: int, one_by_one: ProcessPoolExecutor) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {GUARDED} --show"
    assert one_by_one.submit(simulate, seed, GUARDED).result().findings == [], again


@pytest.mark.parametrize("seed", range(POLL_SEEDS))
def test_polled_queues_lose_and_skip_nothing_whatever_happens(seed: int, one_by_one: ProcessPoolExecutor) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {POLL} --show"
    assert one_by_one.submit(simulate, seed, POLL).result().findings == [], again


@pytest.mark.parametrize("seed", range(BROADCAST_SEEDS))
def test_each_member_of_a_broadcast_group_handles_all_whatever_happens(
    seed: int, one_by_one: ProcessPoolExecutor
) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {BROADCAST} --show"
    result = one_by_one.submit(simulate, seed, BROADCAST).result()
    assert result.findings == [], again
    assert any(isinstance(event, facts.Dropped) for event in result.history)


@pytest.mark.parametrize("seed", range(BY_HAND_SEEDS))
def test_what_is_committed_by_hand_was_said_to_be_whatever_happens(seed: int, one_by_one: ProcessPoolExecutor) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload '{BY_HAND}' --show"
    result = one_by_one.submit(simulate, seed, BY_HAND).result()
    assert result.findings == [], again
    assert {event.commits for event in result.history if isinstance(event, facts.Decided)} == {True, False}


def test_popped_messages_are_handled_or_dead_whatever_happens(one_by_one: ProcessPoolExecutor) -> None:
    seeds = range(5, 5 + POP_SEEDS)  # in more than one of these members give messages back
    results = [one_by_one.submit(simulate, seed, POP) for seed in seeds]
    found = {seed: result.result().findings for seed, result in zip(seeds, results, strict=True)}
    found = {seed: findings for seed, findings in found.items() if findings}
    assert found == {}, "again: python -m tests.simulation --workload pop --seeds SEED SEED+1 --show"
    events = [event for result in results for event in result.result().history]
    reasons = {event.why for event in events if isinstance(event, facts.Hidden)}
    assert reasons == {facts.POPPED, facts.RENEWED, facts.RETRY, facts.GIVEN_BACK}


@pytest.mark.parametrize(("seed", "workload"), [(7, MIXED), (12, MIXED), (11, POP)])
def test_the_same_seed_is_the_same_history_in_every_process(
    seed: int, workload: str, one_by_one: ProcessPoolExecutor
) -> None:
    """Each has other hashes of strings, which order sets differently, and has run other seeds before."""
    assert simulate(seed, workload).history == one_by_one.submit(simulate, seed, workload).result().history


def test_seeds_draw_several_brokers_and_sync_handlers() -> None:
    shapes = set()
    for seed in range(60):
        topics = topics_of(MIXED, Random(f"{seed}/sync"))
        shapes.add((brokers_of(MIXED, Random(f"{seed}/count")), *(topic.sync for topic in topics)))
    assert shapes == set(product((1, 2, 3), (False, True), (False, True)))


def test_runs_are_not_empty_and_chance_reaches_every_kind_of_fault(runs: Runs) -> None:
    histories = [runs.result(seed).history for seed in range(SEEDS)]
    kinds = {event.kind for history in histories for event in history if isinstance(event, facts.Fault)}
    kinds -= {facts.UNANSWERED}  # no fault, but what the engine made of one
    assert kinds == facts.DISTURBING | facts.REBALANCING | {facts.CLOCK}
    for history in histories:
        assert sum(isinstance(event, facts.Finished) for event in history) > 25
    copies = [event for history in histories for event in history if isinstance(event, facts.Stored)]
    assert any(facts.is_copy(event.queue) for event in copies)
