"""Replay dead letters: send each of them once more, at a rate, across kills and restarts.

A dead letter goes back to its group alone, by the group's retry topic, or to the topic in which it was published, where
every group gets it. It keeps its id and its properties without those of the failure, and begins with its first attempt.

Before a window of messages is sent the state file says so: see `replay_state`. No send is repeated by the producer,
because it may be stored although no answer came: then the replay ends, and the next one looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rocketapp.admin.cluster import AdminCluster, AdminError, at_once
from rocketapp.admin.dead_letters import MARK, StoredDeadLetter, queues_of, replayed_properties
from rocketapp.admin.messages import limits, read
from rocketapp.admin.replay_state import ReplayState, ReplayStateError, StateFile, Window, queue_of
from rocketapp.client.calls import messages
from rocketapp.errors import NoRouteError, SendRefused
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, retry_topic
from rocketapp.model.outgoing import SendResult
from rocketapp.producer.producer import Producer
from rocketapp.wire.compression import COMPRESSED, KIND_MASK
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import Message, decode_record

MOST_IN_WINDOW = 64
"""Messages that are perhaps under way when a replay ends."""
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
        """By queue that copies go to: an offset before which no copy of the next window lies."""
        self._is_proved = not state.to_group

    async def run(self) -> None:
        """Until the end of the state is reached. Raises SendRefused, SendUnknown, TransportError, BrokerError,
        AdminError; the state then says where to go on."""
        if self._state.window is not None:
            await self._settle(self._state.window)
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
        self._state.window = None
        self._file.write(self._state)

    @property
    def _most(self) -> int:
        """Messages of one window: a tenth of a second's, so that the rate is even."""
        if self._rate is None:
            return MOST_IN_WINDOW
        return max(1, min(MOST_IN_WINDOW, int(self._rate / WINDOWS_A_SECOND)))

    # Windows.

    async def _send_window(self, queue: MessageQueue, letters: Sequence[StoredDeadLetter]) -> None:
        for letter in letters:
            await self._know_ends(self._target_of(letter))
        first, end = letters[0].message.offset, letters[-1].message.offset + 1
        targets = {self._target_of(letter) for letter in letters}
        held = {str(into): offset for into, offset in self._targets.items() if into.topic in targets}
        self._state.window = Window(str(queue), first, end, held)
        self._file.write(self._state)
        await self._send(letters)
        self._done(queue, end, len(letters))

    async def _settle(self, window: Window) -> None:
        """The window that was under way when the last replay ended: send those of it that were not stored."""
        stored, queue = await self._stored_of(window), queue_of(window.queue)
        letters = [
            letter
            async for batch in read(self._cluster, queue, window.begin, window.end)
            for letter in self._wanted(batch)
        ]
        missing = [letter for letter in letters if letter.mark not in stored]
        self._is_proved = self._is_proved or bool(stored)
        for letter in missing:
            await self._know_ends(self._target_of(letter))
        # The file still names the whole window, with the offsets of its first beginning: what is stored now, and by a
        # replay that ends here, is found from there as well.
        await self._send(missing)
        self._done(queue, window.end, len(letters))

    async def _stored_of(self, window: Window) -> set[str]:
        """The marks of the dead letters whose copies lie in the window's targets."""
        found: set[str] = set()
        topics = {queue_of(name).topic for name in window.targets}
        queues = [queue for topic in sorted(topics) for queue in await self._queues(topic)]
        for queue, held in (await limits(self._cluster, queues)).items():
            begin = max(window.targets.get(str(queue), 0), held.start)
            async for batch in read(self._cluster, queue, begin, held.stop):
                found |= {mark for message in batch if (mark := message.properties.get(MARK)) is not None}
        return found

    def _done(self, queue: MessageQueue, end: int, count: int) -> None:
        self._state.following[str(queue)] = end
        self._state.replayed += count
        self._state.window = None
        self._told(count)

    # Sending.

    async def _send(self, letters: Sequence[StoredDeadLetter]) -> None:
        rest = letters
        if letters and not self._is_proved:
            await self._prove(letters[0])
            rest = letters[1:]
        for result in await at_once(self._send_one, rest):
            self._reached(result)

    def _wanted(self, batch: Sequence[Message]) -> list[StoredDeadLetter]:
        return [letter for letter in map(StoredDeadLetter, batch) if letter.place not in self._skip]

    async def _send_one(self, letter: StoredDeadLetter) -> SendResult:
        message, queue = letter.message, letter.message.queue
        try:
            return await self._producer.send_raw(
                self._target_of(letter),
                message.stored_body,
                replayed_properties(letter, to_group=self._state.to_group),
                broker_name=None if queue is None else queue.broker_name,
                sys_flag=message.sys_flag & (COMPRESSED | KIND_MASK),
                flag=message.flag,
            )
        except SendRefused as error:
            raise _refused(letter, f"{error}{_mend(letter)}") from error

    async def _prove(self, letter: StoredDeadLetter) -> None:
        """Send the first one, and look where it lies: a broker makes a dead letter of what an orderly group is sent.

        That copy then stands for the dead letter, and this replay ends behind it.
        """
        state, result = self._state, await self._send_one(letter)
        self._reached(result)
        _, _, physical_offset = parse_offset_id(result.offset_message_id)
        connection = await self._cluster.connection(result.queue.broker_name)
        body = await messages.view(connection, physical_offset, self._cluster.timeout)
        if body is not None and (record := decode_record(body)).topic.startswith(DLQ_PREFIX):
            copied = str(MessageQueue(record.topic, result.queue.broker_name, record.queue_id))
            state.ends[copied] = max(state.ends.get(copied, 0), record.queue_offset + 1)
            if letter.message.queue is not None:
                self._done(letter.message.queue, letter.message.offset + 1, 0)
            self._file.write(state)
            raise _refused(
                letter,
                f"group {state.group} is orderly, so its broker made a dead letter of the copy again: "
                "replay with --to topic",
            )
        self._is_proved = True

    def _target_of(self, letter: StoredDeadLetter) -> str:
        if not letter.topic:
            raise _refused(letter, f"it does not say where it was published{_mend(letter)}")
        return retry_topic(self._state.group) if self._state.to_group else letter.topic

    def _reached(self, result: SendResult) -> None:
        """A copy was stored here: those of the next window lie behind it."""
        self._targets[result.queue] = max(self._targets.get(result.queue, 0), result.queue_offset + 1)

    async def _know_ends(self, topic: str) -> None:
        """Where the queues of a target end, asked once."""
        if any(queue.topic == topic for queue in self._targets):
            return
        for queue, held in (await limits(self._cluster, await self._queues(topic))).items():
            self._targets[queue] = held.stop
        self._targets.setdefault(MessageQueue(topic, "", 0), 0)  # a topic that is not there yet is known as well

    async def _queues(self, topic: str) -> list[MessageQueue]:
        try:
            return await self._cluster.queues(topic)
        except NoRouteError:
            return []


async def begin(
    cluster: AdminCluster, file: StateFile, *, group: str, named: str, to_group: bool, again: bool
) -> ReplayState:
    """The state of a replay that goes on, or of a new one behind the last; `again`: of all dead letters that are there.

    `named`: the cluster in the words of the command line. Raises AdminError for a state of another replay, and
    ReplayStateError for one of messages that the cluster does not have.
    """
    held = await queues_of(cluster, group)
    state = file.read()
    if state is None or again:
        state = ReplayState(group, named, to_group)
    if (state.group, state.cluster) != (group, named):
        raise AdminError(f"{file.path} is of group {state.group} on {state.cluster}: give another --state")
    _check_held(state, file, held)
    if state.window is not None or state.left:
        if state.window is not None and state.to_group != to_group:
            said = "group" if state.to_group else "topic"
            raise AdminError(f"{file.path} is of a replay with --to {said}: end that first")
        state.to_group = to_group
        return state
    state.to_group, state.replayed = to_group, 0
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
            raise ReplayStateError(file.path, problem)


def _refused(letter: StoredDeadLetter, problem: str) -> AdminError:
    """A dead letter cannot go out as it was asked for."""
    return AdminError(f"dead letter {letter.place}: {problem}")


def _mend(letter: StoredDeadLetter) -> str:
    return f": mend that, or pass it over with --skip {letter.place}"
