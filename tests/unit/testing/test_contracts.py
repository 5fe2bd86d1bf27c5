"""The checks for authors of stores, codecs and strategies: right ones pass, and broken ones are told their sentence."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketapp.app.codecs import BUILT_IN
from rocketapp.hooks.idempotency import CLAIMED, DONE, Answer, Claim, MarkState
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Taken
from rocketapp.plugins.idempotency.decisions import MemoryStore
from rocketapp.plugins.idempotency.sqlite import SQLiteStore
from rocketapp.state.allocation import Average, ByCircle, ConsistentHash
from rocketapp.testing import check_allocation, check_codec, check_idempotency_store, check_offset_store
from tests.cases import cases
from tests.virtual import run_virtual

# Stores of offsets.


class Offsets:
    """A store in memory; several share their rows. Subclasses break one sentence each."""

    def __init__(self, rows: dict[Any, tuple[int, int | None]]) -> None:
        self.rows = rows

    def key(self, group: str, queue: MessageQueue) -> Any:
        return group, *queue

    def row(self, group: str, queue: MessageQueue) -> tuple[int, int | None]:
        return self.rows.get(self.key(group, queue), (-1, None))

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        epoch, offset = self.row(group, queue)
        self.rows[self.key(group, queue)] = max(epoch, 0) + 1, offset
        return Taken(max(epoch, 0) + 1, offset)

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        return self.row(group, queue)[1]

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        latest = self.row(group, queue)[0]
        if epoch < latest or (epoch == 0 and latest >= 0):
            return False
        await self.between()
        self.rows[self.key(group, queue)] = max(epoch, self.row(group, queue)[0]), offset
        return True

    async def between(self) -> None: ...


class LateOwner(Offsets):
    async def between(self) -> None:
        await asyncio.sleep(0)


class TakesTwice(Offsets):
    async def take(self, group: str, queue: MessageQueue) -> Taken:
        epoch, offset = self.row(group, queue)
        await asyncio.sleep(0)
        self.rows[self.key(group, queue)] = max(epoch, 0) + 1, offset
        return Taken(max(epoch, 0) + 1, offset)


class CaseBlind(Offsets):
    def key(self, group: str, queue: MessageQueue) -> Any:
        return group.lower(), queue.topic.lower(), queue.broker_name.lower(), queue.queue_id


class KeysCut(Offsets):
    def key(self, group: str, queue: MessageQueue) -> Any:
        return f"{group[:64]}|{queue}"


class WithoutBroker(Offsets):
    def key(self, group: str, queue: MessageQueue) -> Any:
        return group, queue.topic, queue.queue_id


class ZeroIsNone(Offsets):
    async def read(self, group: str, queue: MessageQueue) -> int | None:
        return await super().read(group, queue) or None


class TakesZeroAsNone(Offsets):
    async def take(self, group: str, queue: MessageQueue) -> Taken:
        taken = await super().take(group, queue)
        return Taken(taken.epoch, taken.offset or None)


class Floats(Offsets):
    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        return await super().write(group, queue, int(float(offset)), epoch)


class OnlyUp(Offsets):
    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        return await super().write(group, queue, max(offset, self.row(group, queue)[1] or 0), epoch)


class Unfenced(Offsets):
    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        return await super().write(group, queue, offset, 1 << 60)


class BlocksWrites(Offsets):
    async def between(self) -> None:
        threading.Event().wait(0.06)


class Forgets(Offsets):
    async def close(self) -> None:
        self.rows.clear()


class Unordinary(Offsets):
    async def take(self, group: str, queue: MessageQueue) -> Any:
        return (await super().take(group, queue)).epoch


class RaisesInReads(Offsets):
    async def read(self, group: str, queue: MessageQueue) -> int | None:
        return self.rows[self.key(group, queue)][1]


class WithoutTake(Offsets):
    take = property()  # type: ignore[assignment]


OFFSETS: dict[type[Offsets], str] = {
    LateOwner: "write: what an older epoch writes beside a take",
    TakesTwice: "take: an epoch is given out once",
    CaseBlind: "told apart, by every character and its case",
    KeysCut: "told apart, by every character and its case",
    WithoutBroker: "told apart, by every character and its case",
    ZeroIsNone: "read: 0 is an offset, and not None",
    TakesZeroAsNone: "take: 0 is an offset, and not None",
    Floats: "read: an offset is a whole number of 64 bits",
    OnlyUp: "write: a lower offset of the latest epoch is stored",
    Unfenced: "write: a second start position is not stored",
    BlocksWrites: "write: it is called on the event loop, and must not block it",
    Forgets: "write: what is stored is there when the store is opened again",
    Unordinary: "AttributeError: 'int' object has no attribute 'epoch'",
    RaisesInReads: "KeyError",
    WithoutTake: "AttributeError: .*take",
}


async def test_a_right_offset_store_passes() -> None:
    rows: dict[Any, tuple[int, int | None]] = {}
    await check_offset_store(lambda: Offsets(rows))
    assert rows


@pytest.mark.parametrize("broken", OFFSETS)
async def test_the_check_finds_a_broken_offset_store(broken: type[Offsets]) -> None:
    rows: dict[Any, tuple[int, int | None]] = {}
    with pytest.raises(AssertionError, match=OFFSETS[broken]):
        await check_offset_store(lambda: broken(rows))


# Stores of marks.

Table = dict[str, tuple[str, float]]
"""By key: who has it, or nobody when it is done; and until when."""


class Marks:
    """A store in memory; several share their marks. Subclasses break one sentence each."""

    def __init__(self, marks: Table) -> None:
        self.marks = marks

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        return [await self.one(*claim, lease) for claim in claims]

    async def one(self, key: str, holder: str, lease: float) -> Answer:
        has, until = self.marks.get(key, ("", 0.0))
        await self.between()
        if until > self.now() and has != holder:
            return Answer(MarkState.RUNNING, has, until - self.now()) if has else DONE
        self.marks[key] = holder, self.now() + lease
        return CLAIMED

    async def between(self) -> None: ...

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        for key in keys:
            self.marks[key] = "", self.now() + expiry

    async def release(self, claims: Sequence[Claim]) -> None:
        for key, holder in claims:
            if self.marks.get(key, ("", 0.0))[0] == holder:
                del self.marks[key]


class OfOneProcess(Marks):
    def __init__(self, marks: Table) -> None:
        super().__init__({})


class LastWins(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        self.marks[key] = holder, self.now() + lease
        return CLAIMED


class Races(Marks):
    async def between(self) -> None:
        await asyncio.sleep(0)


class RefusesItsHolder(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        has, until = self.marks.get(key, ("", 0.0))
        if has and until > self.now():
            return Answer(MarkState.RUNNING, has, until - self.now())
        return await super().one(key, holder, lease)


class NeverEnds(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        return await super().one(key, holder, max(lease, 30.0))


class EndsAtOnce(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        return await super().one(key, holder, int(lease / 2))


class NeverRenews(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        has, until = self.marks.get(key, ("", 0.0))
        return CLAIMED if has == holder and until > self.now() else await super().one(key, holder, lease)


class DoneOfItsHolder(Marks):
    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await super().done([key for key in keys if key in self.marks], expiry=expiry)


class DoneEndsWithTheLease(Marks):
    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        for key in keys:
            self.marks[key] = "", self.marks.get(key, ("", self.now() + expiry))[1]


class DoneForEver(Marks):
    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await super().done(keys, expiry=1000.0)


class ReleasesAll(Marks):
    async def release(self, claims: Sequence[Claim]) -> None:
        for key, _ in claims:
            self.marks.pop(key, None)


class ReleasesDone(Marks):
    async def release(self, claims: Sequence[Claim]) -> None:
        for key, holder in claims:
            if self.marks.get(key, ("", 0.0))[0] in ("", holder):
                self.marks.pop(key, None)


class Unordered(Marks):
    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        return sorted(await super().claim(claims, lease=lease), key=lambda answer: answer.state.value)


class NamesNoHolder(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        answer = await super().one(key, holder, lease)
        return dataclasses.replace(answer, holder="somebody") if answer.holder else answer


class KeysOfMarksCut(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        return await super().one(key[:30], holder, lease)


class HoldersCut(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        return await super().one(key, holder[:32], lease)


class BlocksReleases(Marks):
    async def release(self, claims: Sequence[Claim]) -> None:
        threading.Event().wait(0.06)
        await super().release(claims)


class BlocksClaims(Marks):
    async def one(self, key: str, holder: str, lease: float) -> Answer:
        threading.Event().wait(0.2)
        return await super().one(key, holder, lease)


class BeginsAnew(Marks):
    async def open(self) -> None:
        self.marks.clear()


class EndsWithEverybody(Marks):
    async def close(self) -> None:
        self.marks.clear()


class RunningEndsWithItsProcess(Marks):
    async def close(self) -> None:
        for key in [key for key, (holder, _) in self.marks.items() if holder]:
            del self.marks[key]


class AnswersOnce(Marks):
    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        return [*await super().claim(claims, lease=lease), CLAIMED]


MARKS: dict[type[Marks], str] = {
    OfOneProcess: "claim: a key that another holder has is RUNNING, in every process",
    LastWins: "claim: a key that another holder has is RUNNING, in every process",
    Races: "claim: of callers that claim a free key at once exactly one is CLAIMED",
    RefusesItsHolder: "claim: a key is free for the holder that has it already",
    NeverEnds: "claim: a key is free when its lease has expired",
    EndsAtOnce: "claim: a free key is RUNNING for `lease` seconds",
    NeverRenews: "claim: the same claim renews a lease",
    DoneOfItsHolder: "done: whichever holder has the key, also when none has",
    DoneEndsWithTheLease: "done: it does not end with the lease",
    DoneForEver: "done: a key is free when its mark has expired",
    ReleasesAll: "release: the mark of another holder stays",
    ReleasesDone: "release: a mark that is done stays",
    Unordered: "claim: an answer for each claim, in the same order",
    NamesNoHolder: "claim: RUNNING names the holder, in full",
    KeysOfMarksCut: "release|done|claim",
    HoldersCut: "claim: a key that another holder has is RUNNING, in every process",
    BlocksReleases: "release: it is called on the event loop, and must not block it",
    BlocksClaims: "claim: it is called on the event loop, and must not block it",
    BeginsAnew: "open: marks that are done stay when another process opens the store",
    EndsWithEverybody: "open: marks that are done stay when the store is opened again",
    RunningEndsWithItsProcess: "open: marks that are RUNNING stay when the store is opened again",
    AnswersOnce: "ValueError",
}


async def test_right_stores_of_marks_pass(tmp_path: Path) -> None:
    marks, memory = Table(), MemoryStore(10_000)
    makes: list[Callable[[], Any]] = [lambda: Marks(marks), lambda: memory, lambda: SQLiteStore(tmp_path / "marks.db")]
    for make in makes:
        await check_idempotency_store(make)
    assert marks


class FarAway(Marks):
    """As right as `Marks`, and slow."""

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        await asyncio.sleep(0.06)
        return await super().claim(claims, lease=lease)

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await asyncio.sleep(0.06)
        await super().done(keys, expiry=expiry)

    async def release(self, claims: Sequence[Claim]) -> None:
        await asyncio.sleep(0.06)
        await super().release(claims)


async def test_a_slow_store_of_marks_passes() -> None:
    marks = Table()
    await check_idempotency_store(lambda: FarAway(marks))
    assert marks


@pytest.mark.parametrize("broken", MARKS)
def test_the_check_finds_a_broken_store_of_marks(broken: type[Marks]) -> None:
    marks = Table()

    async def check() -> None:
        await check_idempotency_store(lambda: broken(marks))

    with pytest.raises(AssertionError, match=MARKS[broken]):
        if broken in (BlocksClaims, BlocksReleases):
            asyncio.run(check())
        else:
            run_virtual(check)


def test_running_names_its_holder() -> None:
    with pytest.raises(TypeError, match="holder"):
        Answer(MarkState.RUNNING)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="RUNNING needs the holder"):
        Answer(MarkState.RUNNING, "", 5.0)


# Codecs.


@dataclasses.dataclass
class Order:
    id: str
    amount: int


class Orders:
    """A codec of orders. Subclasses break one sentence each."""

    content_type = "application/orders"

    def claims(self, kind: type[Any]) -> bool:
        return kind is Order

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return self.decode if kind is Order else None

    def decode(self, body: bytes) -> Any:
        return Order(**json.loads(body))

    def encode(self, body: Any) -> bytes:
        if not isinstance(body, Order):
            raise TypeError(f"{type(body).__name__} is not an order")
        return json.dumps(dataclasses.asdict(body)).encode()


class LoudType(Orders):
    content_type = "Application/Orders; charset=utf-8"


class ClaimsAll(Orders):
    def claims(self, kind: type[Any]) -> bool:
        return True


class DecodesAll(Orders):
    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return self.decode


class EncodesAll(Orders):
    def encode(self, body: Any) -> bytes:
        return super().encode(body) if isinstance(body, Order) else repr(body).encode()


class NoBytes(Orders):
    def encode(self, body: Any) -> Any:
        return bytearray(super().encode(body))


class Empty(Orders):
    def encode(self, body: Any) -> bytes:
        return super().encode(body) if not isinstance(body, Order) or body.amount else b""


class Changes(Orders):
    def encode(self, body: Any) -> bytes:
        encoded = super().encode(body)
        body.id += "!"
        return encoded


class GivesDicts(Orders):
    def decode(self, body: bytes) -> Any:
        return json.loads(body)


class Loses(Orders):
    def decode(self, body: bytes) -> Any:
        order = super().decode(body)
        return Order(order.id.encode("ascii", "replace").decode(), order.amount)


class Remembers(Orders):
    """Reads what it has written itself."""

    def __init__(self) -> None:
        self.written: list[Any] = [Order("", 0)]

    def encode(self, body: Any) -> bytes:
        super().encode(body)
        self.written.append(body)
        return b"%d" % (len(self.written) - 1)

    def decode(self, body: bytes) -> Any:
        return self.written[int(body) % len(self.written)]


class Shrugs(Orders):
    def decode(self, body: bytes) -> Any:
        try:
            return super().decode(body)
        except ValueError:
            return None


class Silent(Orders):
    def decode(self, body: bytes) -> Any:
        try:
            return super().decode(body)
        except ValueError:
            raise ValueError from None


class Exits(Orders):
    def decode(self, body: bytes) -> Any:
        try:
            return super().decode(body)
        except ValueError:
            raise SystemExit(1) from None


class Tuples(Orders):
    """What it encodes cannot be decoded."""

    def encode(self, body: Any) -> bytes:
        return super().encode(body)[1:]


class WithoutDecoder(Orders):
    decoder = property()  # type: ignore[assignment]


class NoType(Orders):
    def claims(self, kind: type[Any]) -> bool:
        raise LookupError(kind)


class StrangeSchema(Orders):
    def payload_schema(self, kind: Any) -> Any:
        return {"type": kind}


CODECS: dict[type[Orders], str] = {
    LoudType: "content_type: a type and a subtype in lower case",
    ClaimsAll: "claims: False for a class that it is not for",
    DecodesAll: "decoder: None for a class that it is not for",
    EncodesAll: "encode: TypeError or ValueError for what has no form",
    NoBytes: "encode: bytes",
    Empty: "encode: not empty",
    Changes: "encode: the body stays as it is",
    GivesDicts: "decoder: what it makes is of the class",
    Loses: "decoder: the body that was encoded",
    Remembers: "decoder: the body that was encoded, in another process as well",
    Shrugs: "decoder: raises for a wrong body",
    Silent: "decoder: what it raises says what is wrong",
    Exits: "decoder: an exception for a wrong body",
    Tuples: "JSONDecodeError",
    WithoutDecoder: "AttributeError: .*decoder",
    NoType: "LookupError",
    StrangeSchema: "TypeError",
}


def test_right_codecs_pass() -> None:
    check_codec(Orders, Order("größe", 2**40), Order("", 0))
    check_codec(lambda: BUILT_IN[1], {"größe": 2**40}, {})
    with pytest.raises(AssertionError, match="give bodies"):
        check_codec(Orders)


@cases("broken", CODECS)
def test_the_check_finds_a_broken_codec(broken: type[Orders]) -> None:
    with pytest.raises(AssertionError, match=CODECS[broken]):
        check_codec(broken, Order("größe", 2**40), Order("", 0))


# Allocation strategies.


class Own:
    """A strategy in turn. Subclasses break one sentence each."""

    name = "OWN"

    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        at = members.index(me)
        return [queue for number, queue in enumerate(queues) if number % len(members) == at]


class Nameless(Own):
    name = " "


class LeavesTheRest(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        each = len(queues) // len(members)
        return list(queues[members.index(me) * each :][:each])


class OneBroker(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        found = super().allocate(group, me, queues, members)
        return [queue for queue in found if queue.broker_name == queues[0].broker_name]


class Overlaps(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        each = -(-len(queues) // len(members))
        return list(queues[min(members.index(me) * each, len(queues) - 1) :][:each])


class Everything(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        return list(queues)


class ByHost(Own):
    """Members of one host are one to it."""

    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        hosts = [member.partition("@")[0] for member in members]
        return super().allocate(group, me.partition("@")[0], queues, sorted(set(hosts)))


class Sorts(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        members.sort(key=len)
        return super().allocate(group, me, queues, members)


class Turns(Own):
    def __init__(self) -> None:
        self.calls = 0

    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        self.calls += 1
        return super().allocate(group, members[(members.index(me) + self.calls) % len(members)], queues, members)


class Invents(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        return [*super().allocate(group, me, queues, members), queues[0]._replace(queue_id=len(queues))]


class Hashes(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        at = members.index(me)
        return [queue for queue in queues if hash(str(queue)) % len(members) == at]


class Stubborn(Own):
    def allocate(self, group: str, me: str, queues: Any, members: Any) -> Sequence[MessageQueue]:
        if len(members) > 3:
            raise ValueError("too many members")
        return super().allocate(group, me, queues, members)


STRATEGIES: dict[type[Own], str] = {
    Nameless: "name: not empty",
    LeavesTheRest: "allocate: every queue is some member's",
    OneBroker: "allocate: every queue is some member's",
    Overlaps: "allocate: every queue is one member's",
    Everything: "allocate: every queue is one member's",
    ByHost: "allocate: every queue is one member's",
    Sorts: "allocate: its arguments stay as they are",
    Turns: "allocate: the same arguments have the same answer",
    Invents: "allocate: a share in these queues, and nothing else",
    Hashes: r"allocate: the same arguments have the same answer, in every process, whatever hash\(\)",
    Stubborn: "ValueError: too many members",
}


@pytest.mark.parametrize("right", [Own, Average, ByCircle, lambda: ConsistentHash(10)])
def test_right_strategies_pass(right: Any) -> None:
    check_allocation(right)
    check_allocation(right, brokers=["only"], members=["a@1", "b@1"])
    assert right().name


@pytest.mark.parametrize("broken", STRATEGIES)
def test_the_check_finds_a_broken_strategy(broken: type[Own]) -> None:
    with pytest.raises(AssertionError, match=STRATEGIES[broken]):
        check_allocation(broken)
