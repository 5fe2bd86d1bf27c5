"""Replay dead letters: send each of them once more, at a rate, across kills and restarts.

A dead letter goes back to its group alone, by the group's retry topic. It keeps its id and its properties without those
of the failure, and begins with its first attempt. A broker makes a dead letter of what the retry topic of a group that
holds queue locks gets. So of such a group a member is asked to call its handler: `consumer.rollout.forward` has the
other side of that conversation.

Before a window of messages is sent the state file says so: see `replay_state`. No send is repeated by the producer,
because it may be stored although no answer came: then the replay ends, and the next one looks.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rocketapp.admin.cluster import AdminCluster, AdminError, at_once
from rocketapp.admin.dead_letters import MARK, StoredDeadLetter, queues_of, replayed_properties
from rocketapp.admin.groups import ask_member, live_members
from rocketapp.admin.messages import limits, read
from rocketapp.admin.replay_state import ReplayState, StateFile, Window, queue_of
from rocketapp.client.calls import admin, locks, messages
from rocketapp.errors import BrokerError, ConnectionLostError, NoRouteError, RequestTimeoutError, SendRefused
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import dlq_topic, retry_topic
from rocketapp.model.outgoing import SendResult
from rocketapp.producer.producer import Producer
from rocketapp.wire.compression import COMPRESSED, KIND_MASK
from rocketapp.wire.record import Message
from rocketapp.wire.requests.direct import NOT_TAKEN, SUCCESS, TAKEN, DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import LOCKS, ORDERLY

MOST_IN_WINDOW = 64
"""Messages that are perhaps under way when a replay ends."""
MOST_AT_MEMBERS = 8
"""The same, of those that members are asked to take."""
_FIRST_PAUSE, _LONGEST_PAUSE, _ANSWER_TIMEOUT = 0.05, 1.0, 12.0
"""Seconds until a member is asked again that has taken a dead letter, and for one answer."""
MOST_DEBT = 1.0
"""Seconds of a delay that are made up for: after a longer one the rate holds all the same."""
WINDOWS_A_SECOND = 10
"""How often the file is written, when the rate needs no more."""


class Replay:
    """One replay of the dead letters of a group."""

    def __init__(
        self,
        cluster: AdminCluster,
        producer: Producer,
        state: ReplayState,
        file: StateFile,
        *,
        rate: float | None,
        skip: frozenset[str] = frozenset(),
        told: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`producer`: one without retries. `rate`: messages a second. `skip`: places that are passed over. `told` gets
        the number of each step done.
        """
        self._cluster, self._producer, self._state, self._file = cluster, producer, state, file
        self._rate, self._skip, self._told = rate, skip, told
        self._targets: dict[MessageQueue, int] = {}
        """By queue of the retry topic: an offset before which no copy of the next window lies."""
        self._present: list[str] | None = None
        """The members of the group at the last look."""
        self._takers: list[str] | None = None
        """Those that are asked; None: the topic is sent to."""

    async def run(self) -> None:
        """Until the end of the state is reached. Raises SendRefused, SendUnknown, TransportError, BrokerError,
        AdminError; the state then says where to go on."""
        if self._state.window is not None or self._state.left:
            await self._look()
        if self._state.window is not None:
            await self._complete(self._state.window)
        due = asyncio.get_running_loop().time()
        for name, end in sorted(self._state.ends.items()):
            queue, begin = queue_of(name), self._state.following.get(name, 0)
            async for batch in read(self._cluster, queue, begin, end):
                letters = self._wanted(batch)
                while letters:
                    window, letters = letters[: self._most], letters[self._most :]
                    await self._send_window(queue, window)
                    if self._rate is not None:
                        now = asyncio.get_running_loop().time()
                        due = max(due + len(window) / self._rate, now - MOST_DEBT)
                        await asyncio.sleep(due - now)
            self._state.following[name] = max(end, begin)  # deleted ones are passed over
        self._state.singly = [place for place in self._state.singly if not self._is_passed(place)]
        self._state.window = None
        self._file.write(self._state)

    async def one(self, letter: StoredDeadLetter) -> bool:
        """Replay this one now, ahead of the others; False when it was replayed before. Raises as `run` does."""
        await self._look()
        if self._state.window is not None:
            await self._complete(self._state.window)
        is_new = letter.place not in self._state.singly and not self._is_passed(letter.place)
        if is_new:
            try:
                await self._send_window(letter.queue, [letter], is_single=True)
            except AdminError:  # it is not stored: others need not wait for what mends that
                self._state.window = None
                self._file.write(self._state)
                raise
        self._file.write(self._state)
        return is_new

    def _is_passed(self, place: str) -> bool:
        """Whether the replay has come past this dead letter."""
        queue, _, offset = place.rpartition(":")
        return int(offset) < self._state.following.get(f"{dlq_topic(self._state.group)}@{queue}", 0)

    @property
    def _most(self) -> int:
        """Messages of one window: a tenth of a second's, so that the rate is even."""
        most = MOST_IN_WINDOW if self._takers is None else MOST_AT_MEMBERS
        return most if self._rate is None else max(1, min(most, int(self._rate / WINDOWS_A_SECOND)))

    # Windows.

    async def _send_window(
        self, queue: MessageQueue, letters: Sequence[StoredDeadLetter], *, is_single: bool = False
    ) -> None:
        await self._look()
        held: dict[str, int] = {}
        if self._takers is None:
            self._check_origins(letters)
            await self._know_ends()
            held = {str(into): offset for into, offset in self._targets.items()}
        first, end = letters[0].message.offset, letters[-1].message.offset + 1
        self._state.window = window = Window(str(queue), first, end, held, is_single)
        self._file.write(self._state)
        await self._send(letters)
        self._done(window, letters)

    async def _complete(self, window: Window) -> None:
        """The window that was under way when the last replay ended: send those of it that were not stored."""
        stored, queue = await self._stored_of(window), queue_of(window.queue)
        letters = [
            letter
            async for batch in read(self._cluster, queue, window.begin, window.end)
            for letter in self._wanted(batch)
        ]
        missing = [letter for letter in letters if letter.mark not in stored]
        if self._takers is not None:
            places = (letter.place for letter in missing)
            self._state.perhaps_twice = list(dict.fromkeys([*self._state.perhaps_twice, *places]))
            self._file.write(self._state)
        else:
            self._check_origins(missing)
            await self._know_ends()
        # The file still names the whole window, with the offsets of its first beginning: what is stored now, and by a
        # replay that ends here, is found from there as well.
        await self._send(missing)
        self._done(window, letters)

    async def _stored_of(self, window: Window) -> set[str]:
        """The marks of the dead letters whose copies lie in the window's targets."""
        found: set[str] = set()
        queues = await self._queues() if window.targets else []
        for queue, held in (await limits(self._cluster, queues)).items():
            begin = max(window.targets.get(str(queue), 0), held.start)
            async for batch in read(self._cluster, queue, begin, held.stop):
                found |= {mark for message in batch if (mark := message.properties.get(MARK)) is not None}
        return found

    def _done(self, window: Window, letters: Sequence[StoredDeadLetter]) -> None:
        self._state.window = None
        if window.is_single:
            self._state.singly += (letter.place for letter in letters)
            return
        self._state.following[window.queue] = window.end
        self._state.replayed += len(letters)
        self._told(len(letters))

    # Sending.

    async def _look(self) -> None:
        """Before anything is sent: a broker makes dead letters of what the retry topic of a group with locks gets."""
        present = [member.client_id for member in await live_members(self._cluster, self._state.group)]
        if present != self._present:
            self._takers = await takers(self._cluster, self._state.group, present)
            self._present = present

    async def _send(self, letters: Sequence[StoredDeadLetter]) -> None:
        if self._takers is not None:
            await at_once(self._have_taken, letters)
            return
        for result in await at_once(self._send_one, letters):
            self._reached(result)

    async def _have_taken(self, letter: StoredDeadLetter) -> None:
        """Have a member call its handler. A failure makes another dead letter, which has the new reason."""
        at, pause, refusals = "", _FIRST_PAUSE, dict[str, str]()
        while True:
            left = [name for name in self._takers or () if name not in refusals]
            if not left:
                said = "; ".join(sorted(set(refusals.values())))
                raise _refused(letter, f"no member takes it: {said}{_mend(letter)}")
            member = at if at in left else left[letter.message.offset % len(left)]
            answer = await self._ask(letter, member)
            if answer.result == NOT_TAKEN:
                refusals[member] = answer.remark
                if member == at:  # it had taken it, and is gone
                    self._state.perhaps_twice.append(letter.place)
                at = ""
            elif answer.result == TAKEN:
                at = member
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            elif answer.result == SUCCESS:
                return
            else:
                await self._send_one(letter, reason=answer.remark)
                self._state.failed += 1
                return

    async def _ask(self, letter: StoredDeadLetter, member: str) -> DirectResult:
        message, queue = letter.message, letter.queue
        group, name = self._state.group, self._state.name
        of_broker = (message.offset_message_id, queue.topic, queue.broker_name, message.offset)
        request = DirectRequest(group, member, *of_broker, replay=name)
        try:
            connection = await self._cluster.connection(queue.broker_name)
            return await messages.consume_directly(connection, request, _ANSWER_TIMEOUT)
        except (RequestTimeoutError, ConnectionLostError) as error:
            return DirectResult(TAKEN, str(error))  # perhaps: it is asked again
        except BrokerError as error:
            return DirectResult(NOT_TAKEN, error.remark)

    def _wanted(self, batch: Sequence[Message]) -> list[StoredDeadLetter]:
        passed_over = self._skip.union(self._state.singly)
        return [letter for letter in map(StoredDeadLetter, batch) if letter.place not in passed_over]

    async def _send_one(self, letter: StoredDeadLetter, *, reason: str | None = None) -> SendResult:
        """`reason`: why it failed again; a broker makes another dead letter of what has no attempt left."""
        message = letter.message
        properties = dict(replayed_properties(letter))
        if reason is not None:
            properties |= {"rocketapp.reason": reason, "rocketapp.attempts": "1"}
        try:
            return await self._producer.send_raw(
                self._into,
                message.stored_body,
                properties,
                reconsume_times=0 if reason is None else 1,
                max_reconsume_times=None if reason is None else 0,
                broker_name=letter.queue.broker_name,
                sys_flag=message.sys_flag & (COMPRESSED | KIND_MASK),
                flag=message.flag,
            )
        except SendRefused as error:
            raise _refused(letter, f"{error}{_mend(letter)}") from error

    def _check_origins(self, letters: Sequence[StoredDeadLetter]) -> None:
        """A copy in the retry topic says where its message was published."""
        for letter in letters:
            if not letter.topic:
                raise _refused(letter, f"it does not say where it was published{_mend(letter)}")

    @property
    def _into(self) -> str:
        return retry_topic(self._state.group)

    def _reached(self, result: SendResult) -> None:
        """A copy was stored here: those of the next window lie behind it."""
        self._targets[result.queue] = max(self._targets.get(result.queue, 0), result.queue_offset + 1)

    async def _know_ends(self) -> None:
        """Where the queues of the retry topic end, asked once."""
        if self._targets:
            return
        for queue, held in (await limits(self._cluster, await self._queues())).items():
            self._targets[queue] = held.stop
        self._targets.setdefault(MessageQueue(self._into, "", 0), 0)  # a topic that is not there yet is known as well

    async def _queues(self) -> list[MessageQueue]:
        try:
            return await self._cluster.queues(self._into)
        except NoRouteError:
            return []


async def takers(cluster: AdminCluster, group: str, present: Sequence[str]) -> list[str] | None:
    """Of a group that holds queue locks the members that take dead letters; None: it holds none.

    Raises AdminError when none of them does.
    """
    infos = await at_once(partial(ask_member, cluster, group), present)
    told = {name: info.properties for name, info in infos if info is not None}
    if not any("true" in (one.get(LOCKS), one.get(ORDERLY)) for one in told.values()):
        is_certain = len(told) == len(present) > 0 and all(LOCKS in one or ORDERLY in one for one in told.values())
        if is_certain or not await _are_locked(cluster, group):
            return None
    found = sorted(name for name, properties in told.items() if LOCKS in properties)
    if not found:
        raise AdminError(
            f"group {group} holds queue locks, so its broker would make dead letters of what its retry topic gets, and "
            "no member of it runs that takes dead letters: start the app, or stop its members; nothing was sent"
        )
    return found


async def _are_locked(cluster: AdminCluster, group: str) -> bool:
    """Whether a queue of the group is locked: the locks of members that were killed hold for a minute."""

    async def one(name: str) -> bool:
        connection, me, timeout = await cluster.connection(name), cluster.client.client_id, cluster.timeout
        queues = set(await admin.consume_stats(connection, group, timeout))
        if not queues:
            return False
        free = await locks.lock(connection, group, me, queues, timeout)
        if free:
            await locks.unlock(connection, group, me, free, timeout)
        return free != queues

    return any(await at_once(one, cluster.masters))


async def begin(
    cluster: AdminCluster,
    file: StateFile,
    *,
    group: str,
    named: str,
    again: bool = False,
    for_one: bool = False,
) -> ReplayState:
    """The state of a replay that goes on, or of a new one behind the last; `again`: of all dead letters that are there.

    `named`: the cluster in the words of the command line. `for_one`: a dead letter goes out ahead of the others, so no
    new one is begun. Raises AdminError for a state of another replay, and for one of messages that the cluster does not
    have.
    """
    held = await queues_of(cluster, group)
    state = file.read()
    if state is None or again:
        state = ReplayState(group, named)
    if (state.group, state.cluster) != (group, named):
        raise AdminError(f"{file.path} is of group {state.group} on {state.cluster}: give another --state")
    _check_held(state, file, held)
    if for_one:
        state.name = state.name or uuid.uuid4().hex
    elif not state.left and (state.window is None or state.window.is_single):
        state.replayed, state.failed, state.perhaps_twice = 0, 0, []
        state.name = uuid.uuid4().hex
        state.ends = {str(queue): offsets.stop for queue, offsets in held.items()}
        known = state.following
        state.following = {str(queue): max(offsets.start, known.get(str(queue), 0)) for queue, offsets in held.items()}
    return state


def _check_held(state: ReplayState, file: StateFile, held: Mapping[MessageQueue, range]) -> None:
    """Offsets only grow. Where they end earlier, what the state says is of other messages."""
    for queue, offsets in held.items():
        known = max(state.following.get(str(queue), 0), state.ends.get(str(queue), 0))
        if known > offsets.stop:
            problem = (
                f"knows {queue} up to offset {known}, and it ends at {offsets.stop}: its messages were lost, or this "
                "is another cluster at the same address; --again replays all that are there"
            )
            raise file.refused(problem)


def _refused(letter: StoredDeadLetter, problem: str) -> AdminError:
    """A dead letter cannot go out as it was asked for."""
    return AdminError(f"dead letter {letter.place}: {problem}")


def _mend(letter: StoredDeadLetter) -> str:
    return f": mend that, or pass it over with --skip {letter.place}"
