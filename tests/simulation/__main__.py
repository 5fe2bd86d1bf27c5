"""`python -m tests.simulation [--seeds FROM TO] [--jobs 2] [--workload NAME]`: many seeds; prints those that fail.

Every seed runs with every workload; `--workload` names one. `--show` prints the history of every run, for one seed that
failed. `--put-back A.1 --workload pairs` brings a defect back that was mended (tests.simulation.put_back), and stops at
the first seed that finds it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.pairs import elements_of
from tests.simulation.put_back import DEFECTS, found_with
from tests.simulation.seeded import (
    BROADCAST,
    BY_HAND,
    GUARDED,
    KEYED_WORKLOADS,
    PAIRS,
    POLL,
    POP,
    WORKLOADS,
    simulate,
)

_NAMED = (*WORKLOADS, *KEYED_WORKLOADS, GUARDED, BROADCAST, POLL, BY_HAND, POP, PAIRS)
_CHUNK = 10
"""Runs that a process takes at once."""
Failure = tuple[int, str, list[str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 200), metavar=("FROM", "TO"))
    parser.add_argument("--workload", choices=_NAMED)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--show", action="store_true", help="print every event")
    parser.add_argument("--put-back", choices=DEFECTS, metavar="A.1", help="with a defect that was mended")
    options = parser.parse_args()
    if options.put_back:
        return _first_that_finds(options.put_back, range(*options.seeds))
    runs = [
        (seed, name) for seed in range(*options.seeds) for name in ([options.workload] if options.workload else _NAMED)
    ]
    began, failed, kinds = time.monotonic(), 0, Counter[str]()
    for number, (seed, workload, findings) in enumerate(_results(runs, options.jobs, show=options.show), 1):
        if findings:
            failed += 1
            kinds.update({_kind(finding) for finding in findings})
            print(f"seed {seed} {workload}:", *findings, sep="\n  ")
            again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload '{workload}' --show"
            print(f"  again: {again}", flush=True)
        if number % 500 == 0:
            print(f"{number} runs, {failed} failed", flush=True)
    print(f"{len(runs)} runs in {time.monotonic() - began:.0f} s: {failed} failed", *kinds.most_common(), sep="\n  ")
    return 1 if failed else 0


def _first_that_finds(name: str, seeds: Iterable[int]) -> int:
    began, defect, count = time.monotonic(), DEFECTS[name], 0
    for seed in seeds:
        if defect.needs <= elements_of(seed):
            count += 1
            if found := found_with(name, seed):
                about = f"{name}: seed {seed}, after {count} that have {sorted(defect.needs)}: {defect.says}"
                print(about, *found[:5], f"{time.monotonic() - began:.0f} s", sep="\n  ")
                return 0
    print(f"{name}: none of {count} seeds finds that {defect.says}")
    return 1


def _results(runs: list[tuple[int, str]], jobs: int, *, show: bool) -> Iterator[Failure]:
    work = partial(_run, show=show)
    if jobs < 2:
        yield from map(work, runs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, runs, chunksize=_CHUNK)


def _run(run: tuple[int, str], *, show: bool) -> Failure:
    seed, workload = run
    try:
        result = simulate(seed, workload)
    except Exception:
        *where, what = traceback.format_exc().splitlines()
        return seed, workload, [what, *where] if show else [what]
    if show:
        print(*result.history, sep="\n")
    return seed, workload, result.findings


def _kind(finding: str) -> str:
    """A finding without its numbers, to count alike ones together."""
    words = (word.strip(":,()") for word in finding.split())
    return " ".join(word for word in words if word and not any(letter.isdigit() for letter in word))


if __name__ == "__main__":
    sys.exit(main())
