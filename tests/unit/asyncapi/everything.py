"""An app with everything that can be declared, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic

from rocketapp import (
    Breaker,
    Context,
    DeadLetter,
    Message,
    Policy,
    Pull,
    Retry,
    RocketApp,
    Router,
    Skip,
    Topic,
    TypeByProperty,
    TypeByTag,
)
from tests.unit.plugins.protobuf_classes import Parcel

T = TypeVar("T")


class Colour(Enum):
    """What it looks like."""

    RED = "red"
    BLUE = "blue"


class Category(msgspec.Struct):
    """A shelf in a shop: holds smaller ones."""

    name: str
    inside: list[Category] = []
    parent: Category | None = None


class Card(msgspec.Struct, tag=True):
    number: Annotated[str, msgspec.Meta(pattern="^[0-9]{4}$", description="The last four digits.")]


class Cash(msgspec.Struct, tag=True):
    coins: tuple[int, float]
    change: tuple[int, ...] = ()


class Address(pydantic.BaseModel):
    """Where a parcel goes."""

    street: str
    zip: str = pydantic.Field(min_length=5, description="Five digits, or more.")
    neighbours: list[Address] = []


class Order(msgspec.Struct):
    """What a customer wants.

    It is kept for ten years.
    """

    id: UUID
    cents: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    at: datetime
    paid_by: Card | Cash
    to: Address
    colours: dict[str, Colour] = {}
    category: Category | None = None
    price: Decimal = Decimal("1.50")
    wait: timedelta | None = None
    size: Literal["small", "large"] = "small"
    signature: bytes = b""


@dataclass
class Note:
    text: str
    about: list[int] = field(default_factory=list)


class Click(TypedDict):
    page: str
    seconds: NotRequired[float]


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: str | None = None


class Shelf(msgspec.Struct, array_like=True):
    row: int
    column: int = 0


class Elsewhere:
    """Holds another class that is called Order, and one of pydantic."""

    class Order(msgspec.Struct):
        number: int

    class Address(msgspec.Struct):
        lines: list[str]


class Shipped(msgspec.Struct):
    by: str


class Lost(msgspec.Struct):
    where: str


class Weight(msgspec.Struct):
    """In grams."""

    grams: int
    __avro_schema__: ClassVar[Any] = {
        "type": "record",
        "name": "Weight",
        "namespace": "shop",
        "fields": [{"name": "grams", "type": "int", "doc": "More than 0."}],
    }


class Versioned(msgspec.Struct):
    id: str


class BusyError(Exception):
    """Try again."""


PAID: Topic[Order] = Topic("paid", Order)
PARCELS = Annotated[Shipped | Lost, TypeByTag({"shipped": Shipped, "sent": Shipped, "lost": Lost})]
EVENTS = Annotated[Shipped | Lost, TypeByProperty("kind", {"shipped": Shipped, "lost": Lost})]


class Audit:
    """Keeps what it sees."""

    def __call__(self, message: Message) -> None:
        pass


def by_customer(message: Message) -> str:
    return message.tag or ""


def everything() -> RocketApp:
    """The app."""
    app = RocketApp("shop", version="2.1", clusters={"eu": "192.0.2.1:9876;192.0.2.2:9876", "us": "192.0.2.3:9876"})
    router = Router(prefix="shop-", group="billing", retries=3)

    @app.upcaster(Versioned, version=1)
    def with_id(members: dict[str, Any]) -> dict[str, Any]:
        return {"id": "", **members}

    policy = Policy(
        delays=[1, 5, 30],
        on={BusyError: Retry(after=60), ValueError: DeadLetter, KeyError: Skip},
        breaker=Breaker(failures=5, pause=10),
    )

    @app.subscribe("orders", tags="new || changed", retry=policy, timeout=5, idempotent=True)
    @app.publishes(PAID, tag="paid", delay=10, order_key="1")
    async def settle(order: Order, context: Context) -> Order | None:
        """Take the money.

        It is taken once, with `charge`.
        """

    @app.subscribe("orders", tags="other")
    async def rest(order: Elsewhere.Order) -> None:
        """Another class with this name."""

    @app.subscribe("orders")
    def all_else(message: Message) -> None: ...

    @app.subscribe("stock", orderly=True, retries=-1, start=datetime(2026, 1, 1, tzinfo=UTC), rate=10)
    async def move(body: bytes) -> None: ...

    @app.subscribe("clicks", batch=500, batch_wait=0.2)
    async def count(clicks: list[Click]) -> None: ...

    @app.subscribe("notes", order_by=by_customer)
    @app.publishes("answers")
    async def answer(note: Note) -> list[Note] | Skip: ...

    @app.subscribe("notes", cluster="eu", order_by="customer")
    def keep(text: str) -> None: ...

    @router.subscribe("pages", cluster="us")
    @router.publishes("weights", cluster="eu", content_type="application/msgpack")
    async def turn(page: Page[Order]) -> Click: ...

    @router.subscribe("parcels", tags="shipped || lost")
    async def follow(parcel: PARCELS) -> None: ...

    @router.subscribe("events")
    async def hear(event: EVENTS) -> None: ...

    @router.subscribe("plain")
    async def take(fields: dict[str, Any]) -> None: ...

    @router.subscribe("addresses")
    async def visit(address: Address) -> None: ...

    @router.subscribe("addresses", tags="old")
    async def write(address: Elsewhere.Address) -> None: ...

    @router.subscribe("weights")
    async def weigh(weight: Weight) -> None: ...

    @router.subscribe("parcels-of-others")
    async def unpack(parcel: Parcel) -> None: ...

    @router.subscribe("shelves")
    async def put(shelf: Shelf, message: Message) -> None: ...

    @router.subscribe("versions")
    async def upgrade(one: Versioned) -> None: ...

    @router.subscribe("later")
    async def wait(later: Later) -> None: ...

    @app.subscribe("prices")
    async def price(order: Order) -> Note | Skip: ...

    @app.subscribe("prices", tags="quick", group="quick")
    async def guess(order: Order) -> Skip | None: ...

    @app.subscribe("prices", tags="any", group="any", cluster="eu")
    def tell(order: Order) -> Any: ...

    @app.subscribe("news", group="screens", broadcast=True)
    async def show(note: Note) -> None: ...

    @app.poll("work", every=5)
    async def work(pull: Pull) -> None: ...

    @router.transaction("bookings")
    async def book(order: Order) -> bool:
        """Book it, and tell everybody."""
        return True

    @book.check
    async def is_booked(order: Order) -> bool | None: ...

    @app.transaction(PAID)
    async def pay(order: Order) -> bool:
        return True

    @pay.check
    async def is_paid(order: Order) -> bool | None: ...

    app.include(router)
    app.subscribe(PAID)(lambda message: None)
    app.subscribe("%DLQ%shop", group="gravediggers", retries=0)(Audit())
    app.publisher("orders", Order)
    app.publisher(PAID)
    app.publisher(PAID)
    return app


class Later(msgspec.Struct):
    """Defined below the handler that names it."""

    at: datetime
