# %%
import asyncio
import time
from contextlib import AsyncExitStack

import matplotlib.pyplot as plt

from rocketapp import Message, RocketApp
from rocketapp.plugin import Surface, hookimpl


class Watch:
    """What the app says of itself."""

    @hookimpl
    def app_startup(self, app: Surface) -> None:
        self.snapshot = app.snapshot


watch = Watch()
app = RocketApp("notebook", plugins=[watch])
orders = []


@app.subscribe("orders", start="first", concurrency=4)
async def settle(message: Message) -> None:
    await asyncio.sleep(0.05)
    orders.append(message.json()["id"])


# %%
running = AsyncExitStack()
await running.enter_async_context(app)  # the app runs on over the next cells

# %%
results = await app.publish_many("orders", [{"id": number} for number in range(400)])
len(results)

# %%
began, times, lags = time.monotonic(), [], []
while not lags or lags[-1] or len(orders) < 400:
    queues = [queue for group in watch.snapshot().groups for queue in group.queues]
    times.append(time.monotonic() - began)
    lags.append(sum(queue.lag or 0 for queue in queues if queue.queue.topic == "orders"))
    await asyncio.sleep(0.1)

# %%
figure, axes = plt.subplots(figsize=(7, 3))
axes.fill_between(times, lags, alpha=0.3)
axes.plot(times, lags)
axes.set(title="Lag of orders", xlabel="seconds", ylabel="messages", ylim=(0, None))
plt.show()

# %%
await running.aclose()  # drains: what runs is finished, and offsets are committed
sorted(orders) == list(range(400))
