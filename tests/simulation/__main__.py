"""`python -m tests.simulation --seeds FROM TO [--orderly | --workload NAME]`: many seeds; prints those that fail.

`--show` prints the history of every run, for one seed that failed.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.simulation.seeded import ORDERLY, WORKLOADS, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 1000), metavar=("FROM", "TO"))
    parser.add_argument(
        "--workload", action="append", choices=WORKLOADS, help="may be repeated; all of them without it"
    )
    parser.add_argument("--orderly", action="store_const", const=[ORDERLY], dest="workload", help="--workload orderly")
    parser.add_argument("--show", action="store_true", help="print every event")
    options = parser.parse_args()
    begin, end = options.seeds
    failed = 0
    for seed in range(begin, end):
        for workload in options.workload or WORKLOADS:
            failed += not _passes(seed, workload, show=options.show)
        if (seed + 1 - begin) % 100 == 0:
            print(f"{seed + 1 - begin} seeds, {failed} runs failed", flush=True)
    print(f"{end - begin} seeds: {failed} runs failed")
    return 1 if failed else 0


def _passes(seed: int, workload: str, *, show: bool) -> bool:
    try:
        result = simulate(seed, workload)
    except Exception:
        findings = traceback.format_exc().splitlines()
    else:
        findings = result.findings
        if show:
            print(*result.history, sep="\n")
    if findings:
        print(f"seed {seed} {workload}:", *findings, sep="\n  ")
        again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {workload} --show"
        print(f"  again: {again}", flush=True)
    return not findings


if __name__ == "__main__":
    sys.exit(main())
