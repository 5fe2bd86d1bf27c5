"""What the ways of one group share: each way makes itself from it and from its topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.member import GroupStats
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.rollout.forward import Forwarding
from rocketapp.consumer.stalls import StallReasons
from rocketapp.consumer.ways.delivery import NewCompletion, Prompt, no_prompt
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.model.event import Observe

if TYPE_CHECKING:
    from rocketapp.consumer.retry.slow import SlowSendBack


@dataclass(frozen=True, slots=True, kw_only=True)
class WayContext:
    """The parts of a group that its ways use."""

    group: str
    stats: GroupStats
    observe: Observe
    stall_reasons: StallReasons
    waits: StallReasons
    """Queues that wait for a free call of their handler. They are pulled all the same."""
    pausing: Pausing
    retries: RetryContext
    """Of messages that are tried again in place."""
    new_completion: NewCompletion
    """`new_completion(process_queue, handler, keep)` judges the calls of one handler in one session."""
    threads: MakeThreads = Threads
    """`threads(name, most)` makes the threads of a sync handler."""
    crashes: Crashes | None = None
    """Where workers note down what they have in hand; None: nowhere."""
    forwarding: Forwarding | None = None
    """What becomes of messages that no handler takes; None: they are done."""
    released: SlowSendBack | None = None
    """Knows messages of concurrent handlers that were sent back while their call ran; None: none are."""
    prompt: Prompt = no_prompt
    """Called when messages of a queue in order were finished."""
    locked: bool = True
    """Queues in order are another member's at other times. Otherwise each member consumes them for itself."""
