"""What the consume modes of one group share: each mode makes itself from it and from its topics."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.by_offset import FailedMessages, SentBack
from rocketapp.consumer.modes.delivery import Keep, Prompt, no_prompt
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.rollout.forward import Forwarding
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeContext:
    """The parts of a group that its consume modes use."""

    member: Member
    redelivery: Redelivery
    stopping: Stopping
    attempts: FailedAttempts
    """Of messages that are tried again in place."""
    threads: MakeThreads = Threads
    """`threads(name, most)` makes the threads of a sync handler."""
    journal: Journal | None = None
    """Where workers note down what they have in flight; None: nowhere."""
    forwarding: Forwarding | None = None
    """What becomes of messages that no handler takes; None: they are done."""
    prompt: Prompt = no_prompt
    """Called when messages of a queue in order were finished."""

    def new_acks(
        self, process_queue: ProcessQueue[Message], handler: Handler, keep: Keep, failures: FailedMessages | None = None
    ) -> SentBack:
        """What sees to the ended calls of one handler in one session. `failures`: who takes what has failed."""
        failures = failures or self.redelivery
        return SentBack(process_queue, handler, keep, redelivery=failures, stopping=self.stopping)
