import json
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .app import Order
from .messaging import publish


@csrf_exempt
@require_POST
@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    data: dict[str, Any] = json.loads(request.body)
    order = Order(str(data["id"]), str(data["account"]), int(data["amount"]))
    publish("orders", order, keys=[order.id], tag=data.get("tag"))
    return JsonResponse({"placed": order.id}, status=202)


urlpatterns = [path("orders", place)]
