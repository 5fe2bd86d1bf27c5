"""Parcels: a breaker keeps away from a carrier that is down."""

from __future__ import annotations

import logging
from dataclasses import replace

from dependency_injector.wiring import Provide

from example_app.failures import POLICY
from example_app.model import PARCELS, Parcel
from example_app.outside import Carrier
from rocketapp import Breaker, Router

log = logging.getLogger("shop.parcels")
# The app's policy, and: three failures pause the topic, and after each pause one parcel is tried.
with_breaker = replace(POLICY, delays=[5, 10], breaker=Breaker(failures=3, within=30, pause=5))
# Each pause costs one parcel an attempt: with few retries a long outage would make dead letters.
router = Router(retries=16, retry=with_breaker)


@router.subscribe(PARCELS)
def send(parcel: Parcel, carrier: Carrier = Provide["carrier"]) -> None:
    """A sync handler runs in a thread, so it may block. The carrier knows copies by the order's id."""
    tracking = carrier.fetch(parcel.order_id, parcel.customer)
    log.info(
        "order %s: %d %s on the way to %s, %s", parcel.order_id, parcel.count, parcel.item, parcel.customer, tracking
    )
