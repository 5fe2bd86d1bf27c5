from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import REOPEN, QueueLimits
from rocketapp.state.pauses import Pauses
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.unpaused import Unpaused

LIMITS = QueueLimits(max_messages=8, max_bytes=3000, max_span=20)


@dataclass(frozen=True)
class Retried:
    """A message of a retry queue."""

    offset: int
    topic: str
    size: int = 100


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "finish", "pause", "resume", "advance"]), st.sampled_from("ab"), st.integers(0, 9)
    ),
    max_size=80,
)


@given(STEPS)
def test_only_messages_of_topics_that_are_not_paused_count_in_any_order_of_events(
    steps: list[tuple[str, str, int]],
) -> None:
    queue: ProcessQueue[Retried] = ProcessQueue(MessageQueue("%RETRY%g", "b", 0), 0)
    pauses = Pauses()
    unpaused = Unpaused(queue, pauses)
    for what, topic, number in steps:
        if what == "put":
            queue.put([Retried(queue.end_offset + each, topic) for each in range(number)])
        elif what == "finish":
            queue.finish_all(queue.unfinished()[number : 2 * number])
        elif what == "pause":
            pauses.pause(topic, "x")
        elif what == "resume":
            pauses.resume(topic)
        else:
            queue.advance(queue.end_offset + number)
        unfinished = queue.unfinished()
        counted = [message for message in unfinished if not pauses.is_paused(message.topic)]
        span = queue.commit_offset + queue.span - counted[0].offset if counted else 0
        for share in (1.0, REOPEN):
            assert unpaused.reached(LIMITS, share) == bool(
                counted
                and (
                    len(counted) >= LIMITS.max_messages * share
                    or queue.size >= LIMITS.max_bytes * share
                    or span >= 20 * share
                )
            )


def test_what_is_held_is_said_with_its_reason() -> None:
    queue: ProcessQueue[Retried] = ProcessQueue(MessageQueue("%RETRY%g", "b", 0), 0)
    queue.put([Retried(0, "a"), Retried(1, "b"), Retried(2, "a")])
    pauses = Pauses()
    unpaused = Unpaused(queue, pauses)
    assert unpaused.held() is None
    pauses.pause("a", "sink down")
    assert unpaused.held() == "2 messages are held: paused: sink down"
