"""Assigns queues to members by the broker, for clients that ask it.

Codes QUERY_ASSIGNMENT 400, SET_MESSAGE_REQUEST_MODE 401, GET_ALL_MESSAGE_REQUEST_MODE 402 (Java:
QueryAssignmentProcessor, MessageRequestModeManager).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.pop_tables import RequestModes
from rocketapp.errors import BrokerError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.state.allocation import AVERAGE, ByCircle, sorted_members
from rocketapp.transport.answers import DONE, KEYS_ARE_ENOUGH, REFUSES, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.assignment import (
    ALL_QUEUES,
    POP,
    AssignedQueue,
    AssignmentQuestion,
    RequestMode,
    encode_assigned,
)
from rocketapp.wire.requests.clients import BROADCASTING

_STRATEGIES = {strategy.name: strategy for strategy in (AVERAGE, ByCircle())}


class AssignmentProcessor:
    """Divides the queues of this broker among the members of a group."""

    def __init__(self, core: Core, modes: RequestModes) -> None:
        self._core, self._modes = core, modes

    @answers(RequestCode.QUERY_ASSIGNMENT, needs=KEYS_ARE_ENOUGH, reads=AssignmentQuestion.decode)
    def assigned(self, question: AssignmentQuestion) -> Answer:
        mode = self._modes.of(question.topic, question.group)
        config = self._core.topics.get(question.topic)
        count = 0 if config is None else config.read_queues
        name = self._core.config.name
        queues: Sequence[MessageQueue] | None = [MessageQueue(question.topic, name, at) for at in range(count)] or None
        if queues and question.message_model != BROADCASTING:
            queues = self._share(question, mode, queues)
        found = [AssignedQueue(queue, mode.mode) for queue in queues or ()]
        return encode_assigned(None if queues is None else found)

    @answers(RequestCode.SET_MESSAGE_REQUEST_MODE, needs=KEYS_ARE_ENOUGH, slave=REFUSES, reads=RequestMode.decode)
    def set_mode(self, mode: RequestMode) -> Answer:
        if is_retry_topic(mode.topic):
            raise BrokerError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        self._core.known_topic(mode.topic)
        self._core.group(mode.group)
        self._modes.put_mode(mode)
        self._core.save(None)
        return DONE

    @answers(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, needs=KEYS_ARE_ENOUGH)
    def all_modes(self, connection: Connection, command: Command) -> Answer:
        return msgspec.json.encode(self._modes.to_json())

    def _share(
        self, question: AssignmentQuestion, mode: RequestMode, queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue] | None:
        """The queues of one member; None when that cannot be told."""
        strategy = _STRATEGIES.get(question.strategy)
        members = sorted_members(one.client_id for one in self._core.consumers.members(question.group).values())
        if question.client_id not in members or strategy is None:
            return None
        me = members.index(question.client_id)
        if mode.mode != POP:
            shares = [question.client_id]
        elif not 0 < mode.share_queues < len(members) - 1:
            return [queues[0]._replace(queue_id=ALL_QUEUES)]
        elif len(members) > len(queues):
            return [queues[me % len(queues)]]
        else:  # its own share, and those of the members behind it
            shares = [members[(me + at) % len(members)] for at in range(mode.share_queues + 1)]
        return [queue for one in shares for queue in strategy.allocate(question.group, one, queues, members)]
