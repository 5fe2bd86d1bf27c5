"""What every store of marks has to do, against a real Redis."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from rocketapp.plugin import CLAIMED, DONE, Claim, MarkState
from rocketapp.testing import check_idempotency_store
from rocketapp_redis import RedisStore

MINE, OTHERS = Claim("k", "mine"), Claim("k", "others")


@pytest.fixture
async def store(shared_server: Any, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(shared_server.url, prefix=prefix)
    await store.open()
    yield store
    await store.close()


async def test_it_does_what_the_contract_says(shared_server: Any, prefix: str) -> None:
    await check_idempotency_store(lambda: RedisStore(shared_server.url, prefix=prefix))


async def test_a_free_key_is_claimed_once(store: RedisStore) -> None:
    assert await store.claim([MINE], lease=30) == [CLAIMED]
    (answer,) = await store.claim([OTHERS], lease=30)
    assert (answer.state, answer.holder) == (MarkState.RUNNING, "mine")
    assert 25 < answer.seconds <= 30


async def test_its_own_holder_may_claim_it_again(store: RedisStore) -> None:
    await store.claim([MINE], lease=30)
    assert await store.claim([MINE], lease=30) == [CLAIMED]


async def test_of_many_callers_at_once_one_gets_the_key(store: RedisStore) -> None:
    claims = [Claim("k", f"holder {number}") for number in range(50)]
    answers = await asyncio.gather(*(store.claim([claim], lease=30) for claim in claims))
    assert sum(answer == CLAIMED for (answer,) in answers) == 1


async def test_a_second_claim_renews_the_lease_of_its_holder_alone(store: RedisStore) -> None:
    await store.claim([MINE], lease=5)
    await store.claim([OTHERS], lease=1000)
    (before,) = await store.claim([OTHERS], lease=5)
    await store.claim([MINE], lease=1000)
    (after,) = await store.claim([OTHERS], lease=5)
    assert before.seconds <= 5
    assert after.seconds > 900


async def test_done_is_done_for_all(store: RedisStore) -> None:
    await store.claim([MINE], lease=30)
    await store.done(["k", "l"], expiry=30)
    assert await store.claim([MINE, OTHERS, Claim("l", "mine")], lease=30) == [DONE, DONE, DONE]


async def test_leases_and_marks_end_by_themselves(store: RedisStore, shared_server: Any, prefix: str) -> None:
    await store.claim([MINE], lease=30)
    await store.done(["l"], expiry=60)
    redis = Redis.from_url(shared_server.url)
    assert 25_000 < await redis.pttl(f"{prefix}k") <= 30_000
    assert 55_000 < await redis.pttl(f"{prefix}l") <= 60_000
    await redis.aclose()


async def test_a_released_key_is_free_and_only_its_holder_releases_it(store: RedisStore) -> None:
    await store.claim([MINE], lease=30)
    await store.release([OTHERS])
    (answer,) = await store.claim([OTHERS], lease=30)
    assert answer.state is MarkState.RUNNING
    await store.release([MINE])
    assert await store.claim([OTHERS], lease=30) == [CLAIMED]


async def test_a_release_that_comes_late_does_not_undo_done(store: RedisStore) -> None:
    await store.claim([MINE], lease=30)
    await store.done(["k"], expiry=30)
    await store.release([MINE])
    assert await store.claim([OTHERS], lease=30) == [DONE]


async def test_a_redis_that_has_lost_its_scripts_answers(store: RedisStore, shared_server: Any) -> None:
    await store.claim([MINE], lease=30)
    redis = Redis.from_url(shared_server.url)
    await redis.script_flush()
    await redis.aclose()
    (answer,) = await store.claim([OTHERS], lease=30)
    assert answer.state is MarkState.RUNNING


async def test_a_caller_that_is_cancelled_keeps_no_other_one_waiting(store: RedisStore) -> None:
    gone = asyncio.ensure_future(store.claim([MINE], lease=30))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(30):
        (answer,) = await store.claim([OTHERS], lease=30)
    assert gone.cancelled()
    assert (answer.state, answer.holder) == (MarkState.RUNNING, "mine")


async def test_a_key_that_another_program_uses_is_an_error_of_its_own(
    store: RedisStore, shared_server: Any, prefix: str
) -> None:
    redis = Redis.from_url(shared_server.url)
    await redis.hset(f"{prefix}k", "a", "b")  # type: ignore[misc]
    await redis.aclose()
    asked = (store.claim([MINE], lease=30), store.claim([Claim("l", "mine")], lease=30))
    taken, free = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(taken, RedisError) and "WRONGTYPE" in str(taken)
    assert free == [CLAIMED]


async def test_a_server_that_is_away_is_an_error_and_used_again_when_it_is_back(own_server: Any) -> None:
    store = RedisStore(own_server.url, timeout=30.0)
    await store.open()
    await store.claim([MINE], lease=30)
    own_server.stop()
    with pytest.raises(RedisError):
        await store.claim([MINE], lease=30)
    own_server.start()
    assert await store.claim([MINE], lease=30) == [CLAIMED]
    await store.close()


async def test_a_user_needs_what_the_readme_says_and_one_without_eval_is_told(shared_server: Any, prefix: str) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    needed = re.findall(r"\+[a-z]+", readme)
    async with Redis.from_url(shared_server.url) as admin:
        for name, rules in (("allowed", needed), ("refused", [rule for rule in needed if rule != "+eval"])):
            await admin.execute_command("ACL", "SETUSER", name, "on", ">secret", f"~{prefix}*", *rules)
    url = shared_server.url.replace("unix://", "unix://{}:secret@")
    await check_idempotency_store(lambda: RedisStore(url.format("allowed") + "?db=1", prefix=prefix))
    refused = RedisStore(url.format("refused"), prefix=prefix)
    await refused.open()
    with pytest.raises(RedisError, match="'eval'"):
        await refused.claim([MINE], lease=30)
    await refused.close()
