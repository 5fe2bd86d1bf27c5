from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from tests.unit.state.pulled import Item, items


def process_queue(first_offset: int = 0) -> ProcessQueue[Item]:
    return ProcessQueue(MessageQueue("t", "b", 0), first_offset)


def test_a_gap_holds_the_commit_offset_back() -> None:
    queue = process_queue(10)
    queue.put(items(10, 11, 12))
    queue.finish_all(items(11, 12))
    assert queue.commit_offset == 10
    queue.finish(Item(10))
    assert queue.commit_offset == 13


@given(st.permutations(range(8)))
def test_no_order_of_finishing_commits_past_unfinished_work(order: list[int]) -> None:
    queue = process_queue()
    queue.put(items(*range(8)))
    waiting = set(order)
    for offset in order:
        waiting.discard(offset)
        queue.finish(Item(offset))
        assert queue.commit_offset == min(waiting, default=8)


def test_the_oldest_is_the_unfinished_message_with_the_lowest_offset() -> None:
    queue = process_queue()
    assert queue.oldest is None
    queue.put(items(0, 1, 2))
    queue.finish(Item(0))
    assert queue.oldest == Item(1)


def test_an_untouched_queue_commits_where_it_began() -> None:
    assert process_queue(7).commit_offset == 7


def test_the_next_session_goes_on_counting_where_the_one_before_was_committed() -> None:
    first = process_queue(10)
    first.put(items(10, 11, 12))
    first.finish(Item(10))
    following = process_queue(first.commit_offset)
    assert (first.finished, following.finished) == (11, 11)
    following.advance(20)
    assert following.finished == 11, "what its broker passes over is not finished"


def test_the_same_messages_pulled_again_are_ignored_whether_finished_or_not() -> None:
    queue = process_queue()
    assert list(queue.put(items(0, 1, 2))) == items(0, 1, 2)
    queue.finish(Item(1))
    assert list(queue.put(items(0, 1, 2, 3))) == items(3)
    assert len(queue) == 3
    assert queue.commit_offset == 0


def test_filtered_messages_count_as_done_but_only_behind_what_was_put() -> None:
    queue = process_queue()
    queue.put(items(3))
    queue.advance(10)
    assert queue.commit_offset == 3
    queue.finish(Item(3))
    assert queue.commit_offset == queue.end_offset == 10
    queue.advance(5)
    assert queue.end_offset == 10


def test_size_and_span_count_what_is_unfinished() -> None:
    queue = process_queue()
    queue.put([Item(0, 10), Item(5, 20), Item(9, 30)])
    assert (queue.size, queue.span, len(queue)) == (60, 9, 3)
    queue.finish(Item(5, 20))
    queue.finish(Item(9, 30))
    # What a crash would repeat does not shrink because the upper end is done.
    assert (queue.size, queue.span, len(queue)) == (10, 9, 1)
    queue.finish(Item(0, 10))
    assert (queue.size, queue.span, len(queue)) == (0, 0, 0)


def test_finishing_twice_or_something_unknown_changes_nothing() -> None:
    queue = process_queue()
    queue.put(items(0, 1))
    queue.finish(Item(0))
    queue.finish(Item(0))
    queue.finish_all(items(0, 55))
    assert (queue.size, len(queue)) == (100, 1)


def test_withdrawn_messages_are_to_be_read_again() -> None:
    queue = process_queue()
    queue.put(items(*range(10)))
    queue.advance(30)
    queue.withdraw(6)
    assert (len(queue), queue.size, queue.end_offset, queue.finished) == (6, 600, 6, 0)
    queue.finish_all(items(*range(6)))
    assert (queue.commit_offset, queue.finished) == (6, 6)


def test_a_closed_queue_accepts_nothing() -> None:
    queue = process_queue()
    queue.put(items(0))
    queue.close()
    assert list(queue.put(items(1))) == []
    queue.advance(50)
    assert (queue.end_offset, len(queue)) == (1, 1)


def test_every_watch_is_called_for_what_is_finished_or_withdrawn_until_it_ends() -> None:
    queue, one, other = process_queue(), [], []
    queue.put(items(0, 1, 2, 3))

    def watch_one() -> None:
        one.append(len(queue))

    def watch_until_two_are_left() -> None:
        other.append(len(queue))
        if len(queue) == 2:
            queue.unwatch(watch_until_two_are_left)

    for callback in (watch_one, watch_until_two_are_left, watch_one):
        queue.watch(callback)
    queue.finish(Item(1))
    queue.finish(Item(1))
    queue.withdraw(3)
    queue.finish_all(items(0, 2))
    assert (one, other) == ([3, 2, 0], [3, 2])


def test_it_says_what_it_is() -> None:
    queue = process_queue(4)
    queue.put(items(4))
    assert repr(queue) == "<ProcessQueue t@b:0 epoch 0: 1 unfinished, commit 4>"
    queue.close()
    assert repr(queue) == "<ProcessQueue t@b:0 epoch 0: closed>"
