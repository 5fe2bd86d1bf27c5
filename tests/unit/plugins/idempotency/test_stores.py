"""What every store has to do: the same tests for the one in memory and the one in a file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketapp import ConfigError
from rocketapp.hooks.idempotency import CLAIMED, DONE, Claim, IdempotencyStore, MarkState
from rocketapp.plugins.idempotency.decisions import MemoryStore
from rocketapp.plugins.idempotency.sqlite import SQLiteStore

MINE, OTHERS = Claim("k", "mine"), Claim("k", "others")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[IdempotencyStore]:
    store = MemoryStore(100) if request.param == "memory" else SQLiteStore(tmp_path / "deep" / "marks.db")
    await store.open()
    yield store
    await store.close()


async def test_a_free_key_is_claimed_once(store: IdempotencyStore) -> None:
    assert list(await store.claim([MINE], lease=30)) == [CLAIMED]
    (answer,) = await store.claim([OTHERS], lease=30)
    assert (answer.state, answer.holder) == (MarkState.RUNNING, "mine")
    assert 25 < answer.seconds <= 30


async def test_its_own_holder_may_claim_it_again(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=30)
    assert list(await store.claim([MINE], lease=30)) == [CLAIMED]


async def test_of_many_callers_at_once_one_gets_the_key(store: IdempotencyStore) -> None:
    claims = [Claim("k", f"holder {number}") for number in range(50)]
    answers = await asyncio.gather(*(store.claim([claim], lease=30) for claim in claims))
    assert sum(answer == CLAIMED for (answer,) in answers) == 1


async def test_a_key_is_free_when_its_lease_is_over(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=0.0)
    assert list(await store.claim([OTHERS], lease=30)) == [CLAIMED]


async def test_a_second_claim_renews_the_lease_of_its_holder_alone(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=5)
    await store.claim([OTHERS], lease=1000)
    (before,) = await store.claim([OTHERS], lease=5)
    await store.claim([MINE], lease=1000)
    (after,) = await store.claim([OTHERS], lease=5)
    assert before.seconds <= 5 < 900 < after.seconds


async def test_done_is_done_for_all_until_it_expires(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=30)
    await store.done(["k", "l"], expiry=30)
    assert list(await store.claim([MINE, OTHERS, Claim("l", "mine")], lease=30)) == [DONE, DONE, DONE]
    await store.done(["k"], expiry=0.0)
    assert list(await store.claim([OTHERS], lease=30)) == [CLAIMED]


async def test_a_released_key_is_free_and_only_its_holder_releases_it(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=30)
    await store.release([OTHERS])
    (answer,) = await store.claim([OTHERS], lease=30)
    assert answer.state is MarkState.RUNNING
    await store.release([MINE])
    assert list(await store.claim([OTHERS], lease=30)) == [CLAIMED]


async def test_a_release_that_comes_late_does_not_undo_done(store: IdempotencyStore) -> None:
    await store.claim([MINE], lease=30)
    await store.done(["k"], expiry=30)
    await store.release([MINE])
    assert list(await store.claim([OTHERS], lease=30)) == [DONE]


async def test_a_file_is_shared_and_survives_its_process(tmp_path: Path) -> None:
    one, other = SQLiteStore(tmp_path / "marks.db"), SQLiteStore(tmp_path / "marks.db")
    await one.open()
    await other.open()
    await one.claim([MINE, Claim("l", "mine")], lease=30)
    await one.done(["k"], expiry=30)
    first, second = await other.claim([OTHERS, Claim("l", "others")], lease=30)
    assert (first, second.state) == (DONE, MarkState.RUNNING)
    await one.close()
    await other.close()
    again = SQLiteStore(tmp_path / "marks.db")
    await again.open()
    assert list(await again.claim([OTHERS], lease=30)) == [DONE]
    await again.close()


async def test_many_callers_at_once_are_all_answered(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "marks.db")
    await store.open()

    async def handles(caller: int) -> None:
        for number in range(40):
            claim = Claim(f"{caller}-{number}", "mine")
            assert list(await store.claim([claim], lease=30)) == [CLAIMED]
            await store.release([claim])
            await store.done([claim.key], expiry=30)

    await asyncio.gather(*map(handles, range(64)))
    await store.close()


async def test_what_cancelled_callers_have_asked_for_is_written_before_it_closes(tmp_path: Path) -> None:
    """A drain that is cut cancels its calls: what they have done must not be done again."""
    store = SQLiteStore(tmp_path / "marks.db")
    await store.open()
    calls = asyncio.gather(*(store.done([f"k{number}"], expiry=30) for number in range(600)))
    await asyncio.sleep(0)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls
    await store.close()
    with sqlite3.connect(tmp_path / "marks.db") as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (600,)
    connection.close()


async def test_no_thread_of_a_file_keeps_a_process_that_wants_to_end(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "marks.db")
    before = set(threading.enumerate())
    await store.open()
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    await store.close()
    thread.join(5)
    assert not thread.is_alive()


async def test_a_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "marks.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SQLiteStore(file)
    opening = asyncio.ensure_future(store.open())
    done, _ = await asyncio.wait([opening], timeout=0.2)
    other.execute("COMMIT")
    other.close()
    assert not done
    await opening
    assert list(await store.claim([MINE], lease=30)) == [CLAIMED]
    await store.close()


async def test_expired_marks_leave_the_file(tmp_path: Path) -> None:
    now = 1000.0
    store = SQLiteStore(tmp_path / "marks.db", lambda: now)
    await store.open()
    await store.done([f"k{number}" for number in range(100)], expiry=10)
    now += 1000
    await store.done(["new"], expiry=10)
    await store.close()
    with sqlite3.connect(tmp_path / "marks.db") as connection:
        assert connection.execute("SELECT key FROM marks").fetchall() == [("new",)]
    connection.close()


async def test_a_file_that_cannot_be_opened_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SQLiteStore(tmp_path / "file" / "marks.db")
    with pytest.raises(ConfigError, match=r"idempotency\.path: .*marks\.db cannot be used"):
        await store.open()
    await store.close()


async def test_every_caller_hears_of_a_failed_transaction(tmp_path: Path) -> None:
    now = float("nan")  # which the file refuses
    store = SQLiteStore(tmp_path / "marks.db", lambda: now)
    await store.open()
    answers = await asyncio.gather(*(store.claim([MINE], lease=30) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [sqlite3.OperationalError] * 3
    assert len({id(answer) for answer in answers}) == 3
    now = 1000.0
    assert list(await store.claim([MINE], lease=30)) == [CLAIMED]
    await store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await store.done(["k"], expiry=30)


async def test_anything_that_goes_wrong_in_a_transaction_is_told_and_the_store_goes_on(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "marks.db")
    await store.open()
    async with asyncio.timeout(5):
        with contextlib.closing(sqlite3.connect(tmp_path / "marks.db")) as other:
            other.execute("DROP TABLE marks")
        with pytest.raises(sqlite3.OperationalError, match=r"^no such table: marks$"):
            await store.claim([MINE], lease=30)
        with pytest.raises(sqlite3.OperationalError, match="UnicodeEncodeError"):
            await store.claim([Claim("k", "\ud800")], lease=30)
        assert list(await store.claim([MINE], lease=30)) == [CLAIMED]
    await store.close()


@pytest.mark.parametrize("content", [b"garbage" * 1000, None], ids=["no database", "another table"])
async def test_a_file_that_holds_something_else_is_refused_at_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "marks.db"
    if content is None:
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE marks (key TEXT PRIMARY KEY, holder TEXT, until REAL)")
        connection.close()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"idempotency\.path: .*marks\.db cannot be used: .*holds marks or is new"):
        await SQLiteStore(file).open()


async def test_a_path_that_no_file_can_have_is_refused_at_start(tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(ConfigError, match=r"idempotency\.path"):
            await SQLiteStore(tmp_path / "a\0b").open()


async def test_a_lease_lasts_no_longer_when_the_clock_goes_back(tmp_path: Path) -> None:
    now = 10_000.0
    store = SQLiteStore(tmp_path / "marks.db", lambda: now)
    await store.open()
    await store.claim([MINE], lease=30)
    now -= 3600
    (answer,) = await store.claim([OTHERS], lease=30)
    assert (answer.state, answer.seconds) == (MarkState.RUNNING, 30)
    now += 31
    assert list(await store.claim([OTHERS], lease=30)) == [CLAIMED]
    await store.close()


async def test_more_expired_marks_than_one_look_removes_are_removed_by_the_next_transactions(tmp_path: Path) -> None:
    now = 1000.0
    store = SQLiteStore(tmp_path / "marks.db", lambda: now)
    await store.open()
    for begin in range(0, 5000, 500):
        await store.done([f"k{number}" for number in range(begin, begin + 500)], expiry=10)
    now += 1000
    for number in range(10):
        await store.done([f"new{number}"], expiry=10)
    await store.close()
    with sqlite3.connect(tmp_path / "marks.db") as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (10,)
    connection.close()
