"""Checks for authors of stores, codecs and allocation strategies: is the contract of `rocketapp.plugin` kept?

Each check raises AssertionError with the sentence of the contract that is broken.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from copy import copy
from functools import partial
from itertools import count
from typing import Any, TypeVar

from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.hooks.hook_types import Codec
from rocketapp.hooks.idempotency import CLAIMED, DONE, Answer, Claim, IdempotencyStore, MarkState
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import Allocation
from rocketapp.tasks import scope

T = TypeVar("T")


@contextmanager
def _by_the_contract() -> Iterator[None]:
    """Within: no member raises anything. The traceback of what does says which it was."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


_LONGEST_TURN = 0.05
"""Seconds for which a method that blocks the event loop is noticed."""
_BETWEEN_LOOKS = 0.005
"""Seconds."""
_CALLS = 10
"""Of one method. The shortest lease lasts for so many calls of a slow store, more than are made before it is looked
at."""


@asynccontextmanager
async def _opened(*stores: OffsetStore | IdempotencyStore) -> AsyncIterator[None]:
    """Within: they are open, each once."""
    async with AsyncExitStack() as opened:
        for store in {id(store): store for store in stores}.values():
            await store.open()
            opened.push_async_callback(store.close)
        yield


async def _check_turns(method: str, ask: Callable[[], Awaitable[object]]) -> None:
    """Of ten calls the best counts: on a busy machine a turn of the loop may be long by chance.

    It sleeps between its looks: whoever runs all the time is what a busy machine suspends.
    """
    loop, longest = asyncio.get_running_loop(), [math.inf]
    while min(longest) >= _LONGEST_TURN and len(longest) <= _CALLS:
        turn, last = 0.0, loop.time()
        async with scope(_asked(ask)) as (asking,):
            while not asking.done():
                await asyncio.sleep(_BETWEEN_LOOKS)
                turn, last = max(turn, loop.time() - last), loop.time()
        await asking
        longest.append(turn)
    assert min(longest) < _LONGEST_TURN, f"{method}: it is called on the event loop, and must not block it"


async def _asked(ask: Callable[[], Awaitable[object]]) -> None:
    await ask()


# Stores of offsets.

_GROUP = "check-group"
_QUEUE = MessageQueue("%RETRY%größe", "idc1@broker-a", 3)
_LARGE = 2**63 - 1
"""What a store that keeps floats, or 32 bits, would not hold."""
_LONG = "g" * 255
"""The longest name of a group."""


async def check_offset_store(make: Callable[[], OffsetStore]) -> None:
    """Raises AssertionError with the sentence of `OffsetStore` that does not hold.

    `make()` makes a store each time on the same data, which is empty at first: two are open at once, as in two
    processes. What a crash of the store's server takes back cannot be seen from here.
    """
    with _by_the_contract():
        await _check_offsets(make)


async def _check_offsets(make: Callable[[], OffsetStore]) -> None:
    first, second = make(), make()
    async with _opened(first, second):
        await _check_start(first, second)
        await _check_epochs(first, second)
        await _check_neighbours(first)
        await _check_together(first, second)
        await _check_late(first, second)
        if hasattr(first, "remember"):
            await _check_landmarks(first, second)
        others = (_QUEUE._replace(queue_id=number) for number in count(1000))
        for method, ask in {
            "take": lambda: first.take(_GROUP, next(others)),
            "read": lambda: first.read(_GROUP, _QUEUE),
            "write": lambda: first.write(_GROUP, next(others), 1, 0),
        }.items():
            await _check_turns(method, ask)
    await _check_reopened(make())


async def _check_start(first: OffsetStore, second: OffsetStore) -> None:
    assert await first.read(_GROUP, _QUEUE) is None, "read: None when nothing ever was stored"
    assert await first.write(_GROUP, _QUEUE, 5, 0), "write: the start position (epoch 0) is stored if nothing was"
    assert not await second.write(_GROUP, _QUEUE, 7, 0), "write: a second start position is not stored, and says False"
    assert await second.read(_GROUP, _QUEUE) == 5, "read: what was stored last, by any process"


async def _check_epochs(first: OffsetStore, second: OffsetStore) -> None:
    old = await first.take(_GROUP, _QUEUE)
    assert old.epoch >= 1, "take: an epoch is 1 or more"
    assert old.offset == 5, "take: the offset that was stored last"
    assert await first.write(_GROUP, _QUEUE, 10, old.epoch), "write: the latest epoch may write"
    assert await first.write(_GROUP, _QUEUE, 10, old.epoch), "write: the same twice is as once"
    new = await second.take(_GROUP, _QUEUE)
    assert new.epoch > old.epoch, "take: a higher epoch than every one before"
    assert new.offset == 10, "take: the offset that any process stored last"
    assert not await first.write(_GROUP, _QUEUE, 11, old.epoch), "write: an older epoch is refused, with False"
    assert not await first.write(_GROUP, _QUEUE, 12, 0), "write: the start position is refused when the queue was taken"
    assert await first.read(_GROUP, _QUEUE) == 10, "write: what is refused is not stored"
    assert await second.write(_GROUP, _QUEUE, 8, new.epoch), "write: the latest epoch may store a lower offset"
    assert await first.read(_GROUP, _QUEUE) == 8, "write: a lower offset of the latest epoch is stored"


async def _check_neighbours(store: OffsetStore) -> None:
    others = [
        ("other-group", _QUEUE),
        (_GROUP.upper(), _QUEUE),
        (_GROUP, _QUEUE._replace(topic="größe")),
        (_GROUP, _QUEUE._replace(topic="%RETRY%Größe")),
        (_GROUP, _QUEUE._replace(broker_name="broker-a")),
        (_GROUP, _QUEUE._replace(broker_name="IDC1@broker-a")),
        (_GROUP, _QUEUE._replace(queue_id=4)),
        (_LONG, _QUEUE),
        (_LONG[:-1], _QUEUE),
        (_LONG[:-1] + "h", _QUEUE),
    ]
    for number, (group, queue) in enumerate(others):
        told_apart = "groups, topics, brokers and queue ids are told apart, by every character and its case"
        assert await store.read(group, queue) is None, f"read: {told_apart}"
        taken = await store.take(group, queue)
        assert taken.offset is None, "take: None when nothing ever was stored"
        assert await store.write(group, queue, _LARGE - number, taken.epoch)
    for number, (group, queue) in enumerate(others):
        assert await store.read(group, queue) == _LARGE - number, "read: an offset is a whole number of 64 bits"
    group, queue = others[0]
    taken = await store.take(group, queue)
    assert await store.write(group, queue, 0, taken.epoch)
    assert await store.read(group, queue) == 0, "read: 0 is an offset, and not None"
    assert (await store.take(group, queue)).offset == 0, "take: 0 is an offset, and not None"


async def _check_together(first: OffsetStore, second: OffsetStore) -> None:
    queue = _QUEUE._replace(queue_id=5)
    taken = await asyncio.gather(*(store.take(_GROUP, queue) for _ in range(10) for store in (first, second)))
    epochs = [one.epoch for one in taken]
    assert len(set(epochs)) == len(epochs), "take: an epoch is given out once, also to processes that take at once"
    assert await first.write(_GROUP, queue, 1, max(epochs)), "write: of epochs given out at once the highest may write"
    assert not await second.write(_GROUP, queue, 2, min(epochs)), (
        "write: of epochs given out at once only the highest may"
    )


async def _check_late(first: OffsetStore, second: OffsetStore) -> None:
    """A write that is under way while another process takes the queue."""
    for number in range(20):
        queue = _QUEUE._replace(queue_id=100 + number)
        old = await first.take(_GROUP, queue)
        assert await first.write(_GROUP, queue, 5, old.epoch)
        # The start position is written late as well, by a process that saw nothing stored.
        stored, new, begun = await asyncio.gather(
            first.write(_GROUP, queue, 6, old.epoch), second.take(_GROUP, queue), first.write(_GROUP, queue, 0, 0)
        )
        assert not begun, "write: the start position is refused when the queue was taken"
        left = await second.read(_GROUP, queue)
        assert left == new.offset, "write: what an older epoch writes beside a take is refused, or is what it returns"
        assert left == (6 if stored else 5), "write: True when the offset is stored, False with nothing stored"


async def _check_landmarks(first: Any, second: Any) -> None:
    queue, text = _QUEUE._replace(queue_id=6), "[" + "0" * 253 + "]"
    old = await first.take(_GROUP, queue)
    assert not old.landmark, "take: no landmark when none was stored"
    assert await first.write(_GROUP, queue, 5, old.epoch)
    assert await first.remember(_GROUP, queue, text, old.epoch), "remember: True when the landmark is stored"
    assert await first.write(_GROUP, queue, 6, old.epoch)
    new = await second.take(_GROUP, queue)
    assert new.landmark == text, "take: the landmark that any process stored last, whole, whatever was written since"
    assert new.offset == 6, "remember: it leaves the offset as it is"
    is_stored = await first.remember(_GROUP, queue, "late", old.epoch)
    assert not is_stored, "remember: an older epoch is refused, with False"
    assert (await second.take(_GROUP, queue)).landmark == text, "remember: what is refused is not stored"
    other = await first.take(_GROUP, queue._replace(topic="größe"))
    assert not other.landmark, "remember: landmarks of queues are told apart"
    latest = await second.take(_GROUP, queue)
    assert await second.remember(_GROUP, queue, "", latest.epoch), "remember: an empty landmark is stored"
    assert not (await first.take(_GROUP, queue)).landmark, "remember: an empty landmark is stored in place of the last"


async def _check_reopened(store: OffsetStore) -> None:
    async with _opened(store):
        assert await store.read(_GROUP, _QUEUE) == 8, "write: what is stored is there when the store is opened again"
        taken = await store.take(_GROUP, _QUEUE)
        assert taken.epoch >= 3, "take: epochs go on when the store is opened again"
        assert not await store.write(_GROUP, _QUEUE, 9, taken.epoch - 1), "write: older epochs are refused then too"


# Stores of marks.

_KEY = "0123456789abcdef0123456789abcdef"
_MINE, _OTHERS = "broker-a:17\x1f5d41402abc4b2a76b9719d911017c5921", "broker-a:17\x1f5d41402abc4b2a76b9719d911017c5922"
_SHORTEST, _LONGER = 1.0, 60.0
"""Seconds; no shorter lease or expiry can be set."""
_PATIENCE = 3.0
"""Seconds until a mark that has expired is gone: stores may count whole ones."""


async def check_idempotency_store(make: Callable[[], IdempotencyStore]) -> None:
    """Raises AssertionError with the sentence of `IdempotencyStore` that does not hold. Takes about four seconds.

    `make()` makes a store each time on the same marks, of which there are none at first: two are open at once, as in
    two processes, and a third. It may give the same store again when only one process can have it.
    """
    with _by_the_contract():
        await _check_marks(make)


async def _check_marks(make: Callable[[], IdempotencyStore]) -> None:
    first, second = make(), make()
    is_shared = second is not first
    async with _opened(first, second):
        # First of all: a store that blocks the loop is slow as well, and would fail at what is timed.
        for method, ask in {
            "claim": lambda: first.claim([Claim(_key(50), _MINE)], lease=_LONGER),
            "release": lambda: first.release([Claim(_key(50), _MINE)]),
            "done": lambda: first.done([_key(50)], expiry=_LONGER),
        }.items():
            await _check_turns(method, ask)
        await _check_claims(first, second)
        await _check_ends(first, second)
        await _check_many(first, second)
        await _check_leases(first, second)
        if is_shared:
            await _check_opened(make(), "when another process opens the store")
    if is_shared:
        await _check_opened(make(), "when the store is opened again")


async def _check_opened(store: IdempotencyStore, when: str) -> None:
    """Asks for the marks that the checks before have left."""
    async with _opened(store):
        assert await _claimed(store, _key(1), _OTHERS) == DONE, f"open: marks that are done stay {when}"
        assert await _claimed(store, _KEY, _MINE) != CLAIMED, f"open: marks that are RUNNING stay {when}"


def _key(number: int) -> str:
    """Keys that differ in their last digits."""
    return f"{_KEY[:-4]}{number:04x}"


async def _claimed(store: IdempotencyStore, key: str, holder: str, lease: float = _LONGER) -> Answer:
    (answer,) = await store.claim([Claim(key, holder)], lease=lease)
    return answer


async def _check_claims(first: IdempotencyStore, second: IdempotencyStore) -> None:
    assert await _claimed(first, _KEY, _MINE) == CLAIMED, "claim: a key without a mark is free"
    assert await _claimed(first, _KEY, _MINE) == CLAIMED, "claim: a key is free for the holder that has it already"
    other = await _claimed(second, _KEY, _OTHERS)
    assert other.state is MarkState.RUNNING, "claim: a key that another holder has is RUNNING, in every process"
    assert other.holder == _MINE, "claim: RUNNING names the holder, in full"
    assert 0 < other.seconds <= _LONGER, "claim: RUNNING says the seconds until the lease ends"
    assert (await _claimed(first, _KEY, _MINE.upper())).state is MarkState.RUNNING, "claim: holders differ by case"
    await second.release([Claim(_KEY, _OTHERS)])
    assert await _claimed(second, _KEY, _OTHERS) != CLAIMED, "release: the mark of another holder stays"
    await first.release([Claim(_KEY, _MINE)])
    await first.release([Claim(_KEY, _MINE)])
    assert await _claimed(second, _KEY, _OTHERS) == CLAIMED, "release: the key is free"


async def _check_ends(first: IdempotencyStore, second: IdempotencyStore) -> None:
    key, unclaimed = _key(1), _key(2)
    await _claimed(first, key, _MINE)
    await second.done([key, unclaimed], expiry=_LONGER)
    await second.done([key], expiry=_LONGER)
    for one in (key, unclaimed):
        assert await _claimed(first, one, _OTHERS) == DONE, "done: whichever holder has the key, also when none has"
    assert await _claimed(first, key, _MINE) == DONE, "claim: a key that is done is DONE for its last holder, too"
    await first.release([Claim(key, _MINE)])
    assert await _claimed(second, key, _MINE) == DONE, "release: a mark that is done stays"


async def _check_many(first: IdempotencyStore, second: IdempotencyStore) -> None:
    assert list(await first.claim([], lease=_LONGER)) == [], "claim: an answer for each claim, and for none none"
    keys = [_key(1000 + number) for number in range(500)]
    await first.done(keys[::2], expiry=_LONGER)
    answers = await second.claim([Claim(key, _MINE) for key in keys], lease=_LONGER)
    are_in_order = list(answers) == [DONE, CLAIMED] * 250
    assert are_in_order, "claim: an answer for each claim, in the same order"
    await second.release([Claim(key, _MINE) for key in keys])
    answers = await first.claim([Claim(keys[1], _MINE), Claim(keys[1], _OTHERS)], lease=_LONGER)
    states = [answer.state for answer in answers]
    assert states == [MarkState.CLAIMED, MarkState.RUNNING], "claim: it does for each key what it would do alone"
    for number in range(20):
        stores = [first, second] * 5
        at_once = await asyncio.gather(
            *(_claimed(store, _key(100 + number), f"{_MINE}{at}") for at, store in enumerate(stores))
        )
        assert at_once.count(CLAIMED) == 1, "claim: of callers that claim a free key at once exactly one is CLAIMED"


async def _check_leases(first: IdempotencyStore, second: IdempotencyStore) -> None:
    timed, left, renewed, handled, expiring, kept = (_key(200 + number) for number in range(6))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await _claimed(first, timed, _MINE)
    await first.done([timed], expiry=_LONGER)
    short = max(_SHORTEST, math.ceil(_CALLS * (loop.time() - began)))
    await _claimed(first, left, _MINE, short)
    await _claimed(first, renewed, _MINE, short)
    await _claimed(first, renewed, _MINE, _LONGER)
    await _claimed(first, handled, _MINE, short)
    await first.done([handled, kept], expiry=_LONGER)
    await first.done([expiring], expiry=short)
    assert await _claimed(second, left, _OTHERS) != CLAIMED, "claim: a free key is RUNNING for `lease` seconds"
    assert await _claimed(second, expiring, _OTHERS) == DONE, "done: remembered for `expiry` seconds"
    await asyncio.sleep(short + 0.1)
    for key, sentence in {
        left: "claim: a key is free when its lease has expired",
        expiring: "done: a key is free when its mark has expired",
    }.items():
        end = loop.time() + _PATIENCE
        while (answer := await _claimed(second, key, _OTHERS)) != CLAIMED:
            assert loop.time() < end, sentence
            await asyncio.sleep(max(0.05, min(answer.seconds, 0.2)))
    assert await _claimed(first, left, _MINE) != CLAIMED, "claim: a lease that another holder has now is not renewed"
    await first.release([Claim(left, _MINE)])
    assert await _claimed(first, left, _MINE) != CLAIMED, "release: what another holder has now stays"
    assert await _claimed(second, renewed, _OTHERS) != CLAIMED, "claim: the same claim renews a lease"
    assert await _claimed(second, handled, _OTHERS) == DONE, "done: it does not end with the lease"
    assert await _claimed(second, kept, _OTHERS) == DONE, "done: remembered for `expiry` seconds"


# Codecs.


class _Stranger:
    """A class that no codec knows."""


def check_codec(make: Callable[[], Codec], *bodies: object) -> None:
    """Raises AssertionError with the sentence of `Codec` that does not hold for these bodies.

    `make()` makes the codec, as in the process that sends and in the one that handles. Give bodies of each class that
    the codec is for, at their edges: empty fields, Unicode, large numbers.
    """
    assert bodies, "give bodies of the classes that the codec is for"
    with _by_the_contract():
        _check_bodies(make(), make(), bodies)


def _check_bodies(codec: Codec, other: Codec, bodies: Sequence[object]) -> None:
    kind = codec.content_type
    is_right = isinstance(kind, str) and kind == kind.strip().lower() and kind.count("/") == 1 and ";" not in kind
    assert is_right, "content_type: a type and a subtype in lower case, application/x"
    assert codec.claims(_Stranger) is False, "claims: False for a class that it is not for"
    assert codec.decoder(_Stranger) is None, "decoder: None for a class that it is not for"
    try:
        made = codec.encode(_Stranger())
    except (TypeError, ValueError):
        pass
    else:
        raise AssertionError(f"encode: TypeError or ValueError for what has no form, and not {made!r}")
    for body in bodies:
        _check_body(codec, other, body)


def _check_body(codec: Codec, other: Codec, body: object) -> None:
    kind = type(body)
    assert isinstance(codec.claims(kind), bool), "claims: True or False"
    before = repr(body)
    encoded = codec.encode(body)
    assert type(encoded) is bytes, "encode: bytes"
    assert encoded, "encode: not empty, for a message has a body"
    assert repr(body) == before, "encode: the body stays as it is"
    again = codec.encode(body)
    decode = other.decoder(kind)
    assert callable(decode), f"decoder: a function for {kind.__qualname__}, which encode takes"
    for sent in (encoded, again):
        decoded = decode(sent)
        assert type(decoded) is kind, "decoder: what it makes is of the class that was asked for"
        assert decoded == body, "decoder: the body that was encoded, in another process as well"
    for wrong in (b"\xff" * 8, encoded[: len(encoded) // 2], b"\x00"):
        try:
            found = decode(wrong)
        except Exception as error:
            assert str(error), "decoder: what it raises says what is wrong, the dead letter has that text"
        except BaseException as error:
            raise AssertionError(f"decoder: an exception for a wrong body, and not {error!r}") from error
        else:
            assert type(found) is kind, "decoder: raises for a wrong body, or makes one of the class"
    schema = getattr(codec, "payload_schema", None)
    if schema is not None:
        assert isinstance(schema(kind), Mapping), "payload_schema: a mapping"
        json.dumps(schema(kind))


# Allocation strategies.

_SAME = "the same arguments have the same answer, in every process"
_ELSEWHERE = """
import pickle, sys
out, sys.stdout = sys.stdout.buffer, sys.stderr
sys.path[:] = pickle.load(sys.stdin.buffer)
make, cases = pickle.load(sys.stdin.buffer)
from rocketapp.testing.contracts import _answers
out.write(pickle.dumps(_answers(make(), cases)))
"""
_BROKERS = ("broker-a", "broker-b", "zone2@broker-c")
_MEMBERS = ("10.0.0.1@17", "10.0.0.1@4", "10.0.0.12@1", "10.0.0.2@1", "größe@1", "zone2@host@1", "zone2@host@2")


def check_allocation(
    make: Callable[[], Allocation], *, brokers: Sequence[str] = _BROKERS, members: Sequence[str] = _MEMBERS
) -> None:
    """Raises AssertionError with the sentence of `Allocation` that does not hold.

    `make()` makes the strategy, as in each process of a group. It is asked for every number of these members, with up
    to nine queues on each number of these brokers: give those that it knows, if it goes by their names. It is asked
    once more in another process, where the hashes of texts differ: so define its class at the top of a module.
    """
    cases = [
        (group, sorted(MessageQueue(topic, name, number) for name in brokers[:some] for number in range(each)), several)
        for group, topic in (("group", "orders"), ("other", "%RETRY%other"))
        for some in range(1, len(brokers) + 1)
        for each in (1, 2, 3, 9)
        for several in (sorted(members[:number]) for number in range(1, len(members) + 1))
    ]
    with _by_the_contract():
        assert isinstance(make().name, str), "name: a str"
        assert make().name.strip(), "name: not empty, the option consumer.allocation chooses by it"
        for case in cases:
            _check_shares(make, *case)
        for case, here, there in zip(cases, _answers(make(), cases), _answers_elsewhere(make, cases), strict=True):
            assert here == there, f"allocate: {_SAME}, whatever hash() of a text or the order of a set is there: {case}"


_Case = tuple[str, list[MessageQueue], list[str]]
"""A group, queues of one topic, and members."""


def _answers(strategy: Allocation, cases: Sequence[_Case]) -> list[list[list[MessageQueue]]]:
    """For each case the share of each member."""
    return [
        [list(strategy.allocate(group, me, list(queues), list(members))) for me in members]
        for group, queues, members in cases
    ]


def _answers_elsewhere(make: Callable[[], Allocation], cases: Sequence[_Case]) -> list[list[list[MessageQueue]]]:
    """In another process, with other hashes of texts."""
    pickled = b""
    for one in (make, partial(copy, make())):  # a lambda cannot be pickled; what it makes can
        with suppress(Exception):
            pickled = pickle.dumps((one, cases))
            break
    ran = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE],
        input=pickle.dumps(sys.path) + pickled,
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        check=False,
    )
    if ran.returncode:
        why = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise AssertionError(f"allocate: {_SAME}: define its class at the top of a module: {why}")
    answers: list[list[list[MessageQueue]]] = pickle.loads(ran.stdout)
    return answers


def _check_shares(
    make: Callable[[], Allocation], group: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> None:
    of_one, shares = make(), Counter[MessageQueue]()
    for me in reversed(members):
        given = (list(queues), list(members))
        share = list(of_one.allocate(group, me, *given))
        assert given == (list(queues), list(members)), "allocate: its arguments stay as they are"
        again = list(make().allocate(group, me, *given))
        assert share == again, f"allocate: {_SAME}"
        assert set(share) <= set(queues), "allocate: a share in these queues, and nothing else"
        shares.update(share)
    missing = [queue for queue in queues if not shares[queue]]
    assert not missing, f"allocate: every queue is some member's, and {_named(missing)} is none's"
    twice = [queue for queue in queues if shares[queue] > 1]
    assert not twice, f"allocate: every queue is one member's, and {_named(twice)} is several's"


def _named(queues: Collection[MessageQueue]) -> str:
    return f"{next(iter(queues))} (of {len(queues)})"
