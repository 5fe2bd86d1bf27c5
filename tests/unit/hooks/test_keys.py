from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rocketapp import Message, RocketApp
from rocketapp.hooks.idempotency import keys_of
from rocketapp.model.subscription import Subscription
from tests.unit.app.given import bound
from tests.unit.plugins.idempotency.stage import message

TEXT = st.text("ab", max_size=2)


def subscription() -> Subscription:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def take(message: Message) -> None: ...

    return bound(app).subscription


@given(TEXT, TEXT, TEXT, TEXT)
def test_copies_have_the_id_and_the_body_in_common(id_: str, body: str, other_id: str, other_body: str) -> None:
    key = keys_of(subscription())
    one, other = message(f"i{id_}", body.encode()), message(f"i{other_id}", other_body.encode(), offset=1)
    assert (key(one) == key(other)) == ((id_, body) == (other_id, other_body))


def test_each_handler_has_its_own_keys() -> None:
    first = subscription()
    others = [
        replace(first, topic="carts"),
        replace(first, group="billing"),
        replace(first, cluster="eu"),
        replace(first, handler_name="shop:other"),
        replace(first, expression="paid"),
    ]
    keys = {keys_of(one, lambda message: "1")(message()) for one in [first, *others]}
    assert len(keys) == 6
