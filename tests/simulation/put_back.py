"""Defects that the engine has had, put back one at a time: a checker that does not see them proves nothing.

Each came from two mechanisms that meet. It is brought back by replacing functions of the engine by name, or a constant;
a name that is no longer there fails, and whoever has moved it moves it here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rocketapp.state.pauses import Pauses
from rocketapp.wire.requests.direct import LATER, NOT_TAKEN, SUCCESS, DirectResult
from tests.simulation.pairs import PAIRS, PAUSE, QUARANTINE, ROLL_OUT
from tests.simulation.seeded import simulate

Function = Callable[..., Any]
Change = Callable[[Any], Any]
"""From what the engine has to what takes its place."""


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One of them."""

    says: str
    changes: Mapping[str, Change]
    """By `module:name`."""
    needs: frozenset[str]
    """A seed of `pairs` without these elements never comes near it."""
    seeds: tuple[int, ...]
    """Seeds of `pairs` that find it, the quickest first. A change of the engine may change the timing of one."""


@contextlib.contextmanager
def put_back(name: str) -> Iterator[None]:
    """The engine has this defect until the block ends."""
    with contextlib.ExitStack() as undo:
        for place, change in DEFECTS[name].changes.items():
            module, _, path = place.partition(":")
            owner: Any = importlib.import_module(f"rocketapp.{module}")
            *classes, last = path.split(".")
            for each in classes:
                owner = getattr(owner, each)
            assert last in vars(owner), f"{place} is not there any more: tests.simulation.put_back has to follow"
            original = vars(owner)[last]
            undo.callback(setattr, owner, last, original)
            setattr(owner, last, change(original))
        yield


def found_with(name: str, seed: int) -> list[str]:
    """What `pairs` finds with this defect."""
    with put_back(name):
        return simulate(seed, PAIRS).findings


def _all_apart(add: Function) -> Function:
    """The quarantined messages of all handlers stand in one line."""

    def patched(self: Any, turn: Any) -> None:
        turn.is_apart = True
        add(self, turn)

    return patched


def _nothing_beside(open_: Function) -> Function:
    """While a quarantined message waits or runs, no other message is delivered."""

    def patched(self: Any, *args: Any, **options: Any) -> Any:
        delivery = open_(self, *args, **options)
        if self.in_order:
            return delivery
        deliver, quarantined = delivery.deliver, self.quarantine(args[0]) or ()

        def wait(messages: Any) -> None:
            journal = self.context.journal
            if journal is not None and "0 have theirs, 0 wait" not in repr(journal.turns):
                asyncio.get_running_loop().call_later(0.2, wait, messages)
            elif not args[0].closed:
                deliver(messages)

        def delivered(messages: Any) -> None:
            deliver([one for one in messages if one in quarantined])
            if others := [one for one in messages if one not in quarantined]:
                wait(others)

        delivery.deliver = delivered
        return delivery

    return patched


def _never(_: Function) -> Function:
    return lambda *args: None


def _no(_: Function) -> Function:
    return lambda *args: False


def _forever(_: float) -> float:
    return 1e9


def _without_lock(_: Function) -> Function:
    async def patched(self: Any, call: Any, owner: str) -> None:
        self._deliver(call)

    return patched


def _as_failed(ask: Function) -> Function:
    """A member that is paused, or stops, has failed on the message."""

    async def patched(self: Any, *args: Any) -> DirectResult:
        answer: DirectResult = await ask(self, *args)
        said = answer.remark or ""
        is_refused = answer.result == NOT_TAKEN and (said.startswith("topic ") or "stop" in said)
        return DirectResult(LATER, said) if is_refused else answer

    return patched


def _knows_no_pause(handler_of: Function) -> Function:
    def patched(self: Any, message: Any) -> Any:
        member, self._member = self._member, SimpleNamespace(pauses=Pauses())
        try:
            return handler_of(self, message)
        finally:
            self._member = member

    return patched


def _straight_to_the_handler(deliver: Function) -> Function:
    def patched(self: Any, call: Any) -> None:
        about = call.handler.subscription
        if not about.is_async or about.batch is not None:
            deliver(self, call)
            return

        async def calling() -> None:
            try:
                await call.handler.call(call.message)
            except Exception as error:
                call.end(DirectResult(LATER, str(error)))
            else:
                call.end(DirectResult(SUCCESS))

        self._member.tasks.start(calling(), "a forwarded message")

    return patched


def _taken_without_quarantine(init: Function) -> Function:
    def patched(self: Any, process_queue: Any, mode: Any, failures: Any) -> None:
        init(self, process_queue, mode, failures)
        if failures.park is not None:  # it is forwarded
            self._quarantine = None

    return patched


DEFECTS = {
    "A.1": Defect(
        says="after a kill the quarantined messages of all handlers run one at a time, and nothing else starts",
        changes={
            "state.quarantine:Turns.add": _all_apart,
            "consumer.modes.by_message:MessageMode.open": _nothing_beside,
        },
        needs=frozenset({QUARANTINE}),
        seeds=(3, 5, 11),
    ),
    "A.2": Defect(
        says="a quarantined message whose handler hangs never gives its turn up",
        changes={"consumer.quarantine:QueueQuarantine._is_late": _never},
        needs=frozenset({QUARANTINE}),
        seeds=(254,),
    ),
    "A.3": Defect(
        says="a member that consumes for another one answers when its handler has ended",
        changes={"consumer.rollout.forward:QUICK": _forever},
        needs=frozenset({ROLL_OUT}),
        seeds=(0, 3, 4),
    ),
    "A.4": Defect(
        says="a lock is given back, or runs out, while another member runs a call for its owner",
        changes={
            "consumer.rollout.forward:Forwarder.may_run": _no,
            "consumer.rollout.forward:ForwardReceiver._under_lock": _without_lock,
        },
        needs=frozenset({ROLL_OUT}),
        seeds=(231, 31, 261),
    ),
    "A.5": Defect(
        says="a message has failed that a paused or stopping member did not take",
        changes={"consumer.rollout.forward:Forwarder._ask": _as_failed},
        needs=frozenset({ROLL_OUT}),
        seeds=(4,),
    ),
    "A.6": Defect(
        says="what is forwarded is called also while its topic is paused",
        changes={
            "consumer.rollout.forward:ForwardReceiver._handler_of": _knows_no_pause,
            "consumer.rollout.forward:ForwardReceiver._deliver": _straight_to_the_handler,
        },
        needs=frozenset({ROLL_OUT, PAUSE}),
        seeds=(63,),
    ),
    "A.7": Defect(
        says="the deaths of a forwarded message are not counted where it is called",
        changes={"consumer.modes.by_message:MessageDelivery.__init__": _taken_without_quarantine},
        needs=frozenset({ROLL_OUT, QUARANTINE}),
        seeds=(66, 40, 90),
    ),
}
