"""What is in flight of a popped topic: what is acknowledged together, what is hidden anew, and never both at once."""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.pop_queue import MOST_COMING, HandOut, PopQueue

QUEUE = MessageQueue("orders", "broker-a", -1)


class Popped:
    """One message; equal to itself alone."""

    def __init__(self, offset: int, size: int = 100) -> None:
        self.offset, self.size = offset, size


class Stage(NamedTuple):
    queue: PopQueue[Popped]
    prompts: list[int]
    hand_out: HandOut
    messages: list[Popped]


def handle(start: int, popped_ms: int = 1_000, invisible_ms: int = 60_000) -> Handle:
    return Handle(start, popped_ms, invisible_ms, 3, 0, "broker-a", 0, start)


def popped(count: int, at: float = 0.0) -> Stage:
    prompts: list[int] = []
    queue: PopQueue[Popped] = PopQueue(QUEUE, lambda: prompts.append(1))
    messages = [Popped(7 + number) for number in range(count)]
    hand_out = HandOut(handle(7), at)
    queue.hand_out(hand_out, messages)
    return Stage(queue, prompts, hand_out, messages)


def test_what_ended_of_one_hand_out_is_acknowledged_together_and_once() -> None:
    queue, prompts, _, messages = popped(4)
    stats = HandlerStats()
    done = queue.finisher(stats)
    for message in messages[:2]:
        done(message)
    queue.finish_all(messages[1:3])
    assert (stats.handled, len(queue), queue.size, queue.has_acks) == (2, 1, 100, True)
    assert queue.take_acks() == [Acks(handle(7), [7, 8, 9])]
    assert queue.take_acks() == []
    queue.finish(messages[3])
    queue.finish(messages[3])
    assert queue.take_acks() == [Acks(handle(7), [10])]
    assert (len(queue), queue.size, len(prompts)) == (0, 0, 2)


def test_equal_offsets_of_two_queues_are_two_messages() -> None:
    queue, _, _, messages = popped(1)
    twin = Popped(7)
    other = handle(7)._replace(queue_id=1)
    queue.hand_out(HandOut(other, 0.0), [twin])
    queue.finish_all([*messages, twin])
    assert queue.take_acks() == [Acks(handle(7), [7]), Acks(other, [7])]


def test_messages_are_hidden_anew_at_half_of_their_time_and_not_when_it_is_over() -> None:
    queue, _, _, messages = popped(2, at=100.0)
    assert queue.due(129.9) == []
    assert queue.due(130.0) == messages
    assert queue.due(160.0) == []


def test_nothing_is_acknowledged_while_its_time_is_changed_and_then_with_the_new_handle() -> None:
    queue, prompts, _, (first, second) = popped(2)
    change = queue.begin_change(first)
    assert change is not None
    assert queue.begin_change(first) is None
    assert queue.due(30.0) == [second]
    queue.finish_all([first, second])
    assert queue.take_acks() == [Acks(handle(7), [8])]
    assert queue.has_acks
    new = handle(7, popped_ms=31_000)
    queue.changed(change, new, at=30.0)
    assert len(prompts) == 3
    assert queue.take_acks() == [Acks(new, [7])]


def test_a_change_without_an_answer_leaves_the_old_handle_and_may_be_tried_again() -> None:
    queue, _, _, (message,) = popped(1)
    change = queue.begin_change(message)
    assert change is not None
    queue.changed(change, None, at=31.0)
    assert queue.due(31.0) == [message]
    queue.finish(message)
    assert queue.take_acks() == [Acks(handle(7), [7])]


def test_a_changed_message_is_due_again_half_an_invisible_time_later() -> None:
    queue, _, _, (message,) = popped(1)
    change = queue.begin_change(message)
    assert change is not None
    queue.changed(change, handle(7, popped_ms=31_000), at=30.0)
    assert queue.due(59.0) == []
    assert queue.due(60.0) == [message]


def test_what_comes_again_later_is_neither_in_hand_nor_acknowledged() -> None:
    queue, _, _, (message, other) = popped(2)
    told: list[int] = []
    queue.watch(lambda: told.append(len(queue)))
    queue.forget(message)
    queue.finish(message)
    assert (queue.unfinished(), queue.size, told, queue.holds(other)) == ([other], 100, [1], True)
    assert queue.take_acks() == []


def test_the_oldest_is_what_was_handed_out_first() -> None:
    queue, _, _, (first, *rest) = popped(3)
    assert queue.oldest is first
    queue.finish_all([first, *rest])
    assert queue.oldest is None


def test_of_the_messages_that_come_again_the_last_ones_are_remembered() -> None:
    queue = popped(0).queue
    for number in range(MOST_COMING + 100):
        queue.comes_again(str(number), 3600.0 + number)
    assert list(queue.coming) == [str(number) for number in range(100, MOST_COMING + 100)]
