"""`python -m example_app.shop 12`: customers order twelve times, from outside of the running app.

Like any app it finds the embedded broker of this folder, or the cluster that ROCKETAPP_CLIENT__NAME_SERVER names.
"""

from __future__ import annotations

import asyncio
import sys

from example_app import demo
from example_app.model import ORDERS
from rocketapp import RocketApp, RocketAppError

till = RocketApp("shop-till")
"""Has no handlers: it only publishes."""


async def main(count: int) -> None:
    async with till:
        for order in demo.orders(count):
            await till.publish(ORDERS, order, keys=[order.id])
            print(f"{order.customer} orders {order.count} {order.item}: order {order.id}")


if __name__ == "__main__":
    try:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else len(demo.CUSTOMERS)))
    except (RocketAppError, ValueError) as error:
        sys.exit(f"the orders are not placed: {error}")
