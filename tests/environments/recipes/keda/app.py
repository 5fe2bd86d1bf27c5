import asyncio

from rocketapp import RocketApp

app = RocketApp("shop")


@app.subscribe("orders", start="first", concurrency=1)
async def settle(order: bytes) -> None:
    await asyncio.sleep(0.5)
