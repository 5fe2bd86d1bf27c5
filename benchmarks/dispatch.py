"""`python -m benchmarks.dispatch`: what it costs to get a message from its delivery to its handler, and acknowledged.

Decoded messages are handed to the delivery of one queue in pulls of 32, as a pull loop does it. Their tags are mixed,
and each handler has one. Printed are microseconds of CPU of the process per message, for 1, 8 and 64 handlers of the
topic; then what the last costs beside the first, and each mode beside the concurrent one. What is in flight is noted
down as `rocketapp run` does it. No broker takes part.
Exit code 1, with `--decodes` alone: 64 handlers cost more than is promised of a message's whole way.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import table
from rocketapp.clock import SystemClock
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.modes.delivery import Mode
from rocketapp.consumer.modes.table import Modes
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.properties import encode
from rocketapp.wire.record import Message, decode_records
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.modes.contexts import mode_context

QUEUE = MessageQueue("topic", "broker-a", 0)
PULL, AT_ONCE = 32, 4
"""Messages of a pull, and pulls that are handed over before their end is awaited."""
HANDLERS = (1, 8, 64)
MODES: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "keyed, one key": {"order_by": "k"},
    "keyed, 64 keys": {"order_by": lambda message: message.offset % 64},
    "keyed, many keys": {"order_by": "UNIQ_KEY"},
    "sync": {"is_async": False},
    "orderly sync": {"orderly": True, "is_async": False},
}


def _pull(first: int, handlers: int, chance: Random) -> bytes:
    """The records of one pull, as they come from a broker."""
    records = []
    for offset in range(first, first + PULL):
        tag = f"tag{chance.randrange(handlers)}"
        properties = {"k": "1", "UNIQ_KEY": f"0A000001000018B4AAC2{offset:012X}", "TAGS": tag, "WAIT": "true"}
        record = Record("topic", b"x" * 100, raw_properties=encode(properties), queue_offset=offset)
        records.append(encode_record(record))
    return b"".join(records)


async def _call(_: Message) -> None:
    """The handler."""


def _sync_call(_: Message) -> None:
    """The handler."""


def _way(options: dict[str, Any], count: int, journal: Journal) -> Mode:
    call: Callable[[Message], Any] = _call if options.get("is_async", True) else _sync_call
    handlers = [Handler(subscription(f"handler{at}", tags=f"tag{at}", **options), call) for at in range(count)]
    return Modes(mode_context(handlers, journal=journal)).of("topic")


async def _measure(options: dict[str, Any], handlers: int, pulls: int, journal: Journal, *, decodes: bool) -> float:
    mode, queue, chance = _way(options, handlers, journal), ProcessQueue[Message](QUEUE, 0), Random(handlers)
    queue.lease = Lease(lasts=1e9, renew_interval=1e9)  # that of a lock, which is never in doubt
    queue.lease.granted(asyncio.get_running_loop().time())
    delivery = mode.open(queue)
    wait = 0.0 if options.get("is_async", True) else 0.0005
    spent, count = 0.0, 0
    for at in range(-pulls // 8, pulls, AT_ONCE):  # the first ones warm up
        records = [_pull(queue.end_offset + one * PULL, handlers, chance) for one in range(AT_ONCE)]
        decoded = [] if decodes else [decode_records(each, QUEUE) for each in records]
        began = time.process_time()
        for number in range(AT_ONCE):
            messages = decode_records(records[number], QUEUE) if decodes else decoded[number]
            delivery.deliver(queue.put(messages))
            await asyncio.sleep(0)
        while len(queue):  # noqa: ASYNC110
            await asyncio.sleep(wait)
        if at >= 0:
            spent += time.process_time() - began
            count += AT_ONCE * PULL
    delivery.end()
    await delivery.drained()
    await mode.callers.stop()
    return 1e6 * spent / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pulls", type=int, default=800, help="pulls of each measurement")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements, of which the least is printed: others may use the machine"
    )
    parser.add_argument("--decodes", action="store_true", help="decoding is measured too")
    parser.add_argument("modes", nargs="*", help=f"of {', '.join(MODES)}; all by default")
    chosen = parser.parse_args()
    modes = {name: MODES[name] for name in chosen.modes or MODES}
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory), SystemClock(), print)
        for _ in range(chosen.rounds):
            for name, options in modes.items():
                for handlers in HANDLERS:
                    us = asyncio.run(_measure(options, handlers, chosen.pulls, journal, decodes=chosen.decodes))
                    found.setdefault((name, handlers), []).append(us)
        journal.close()
    print(
        "us of CPU per message"
        + "".join(f"{count:>7}" for count in HANDLERS)
        + f"   {HANDLERS[-1]}/1  beside concurrent"
    )
    first = min(next(iter(found.values())))
    cost = {}
    for name in modes:
        row = [min(found[name, handlers]) for handlers in HANDLERS]
        print(f"{name:<21}" + "".join(f"{us:7.2f}" for us in row) + f"{row[-1] / row[0]:7.2f}{row[0] / first:19.2f}")
        cost[name] = row[-1] / row[0]
    goals = table.dispatch_goals(cost) if chosen.decodes else []
    print("\n".join(table.goals(goals)))
    return table.code(goals)


if __name__ == "__main__":
    sys.exit(main())
