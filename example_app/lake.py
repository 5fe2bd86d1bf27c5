"""Payments in a table, as a second app beside the shop: Spark writes its files, and each payment is one row.

It needs `pip install 'rocketapp[spark]'` and a JDK. Without `written_by` the app itself writes them, without either.
"""

from __future__ import annotations

from example_app.model import PAYMENTS, Payment
from rocketapp import RocketApp
from rocketapp_lake import sink

app = RocketApp("shop-lake", version="1.0")
sink(app, PAYMENTS.name, table="lake/payments", format="parquet", written_by="spark", schema=Payment, flush_seconds=3)
