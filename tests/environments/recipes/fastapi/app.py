from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rocketapp import RocketApp, SendRefused, SendUnknown


class Order(BaseModel):
    id: str
    amount: int


app = RocketApp("shop")
settled: dict[str, int] = {}


@app.subscribe("orders", start="first")
async def settle(order: Order) -> None:
    settled[order.id] = order.amount


@asynccontextmanager
async def lifespan(server: FastAPI) -> AsyncIterator[None]:
    async with app:
        yield


server = FastAPI(lifespan=lifespan)


@server.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    sent = await app.publish("orders", order, keys=[order.id])
    return {"message_id": sent.message_id}


@server.exception_handler(SendRefused)  # nothing was stored
@server.exception_handler(SendUnknown)  # perhaps it was: the caller may repeat it with the same id
async def not_sent(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=503)
