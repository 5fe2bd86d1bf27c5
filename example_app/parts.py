"""The container: what handlers need beside their message. A test puts another one in the place of any of them."""

from __future__ import annotations

from dependency_injector import containers, providers

from example_app.books import Ledger, Shelf
from example_app.demo import DemoBank, DemoCarrier
from example_app.options import ShopOptions
from example_app.outside import HttpBank, HttpCarrier
from example_app.prices import Prices


class Parts(containers.DeclarativeContainer):
    """Settings come in as a provider: they are read when the app starts, and this is made before."""

    options: providers.Dependency[ShopOptions] = providers.Dependency(instance_of=ShopOptions)
    database_file = options.provided.database
    prices = providers.Singleton(Prices, {"tea": 350, "coffee": 420, "cocoa": 510})
    ledger = providers.Singleton(Ledger)
    shelf = providers.Singleton(Shelf)
    # `shop.outside` chooses. What is chosen between has no type of its own: handlers ask for it by name.
    bank = providers.Selector(
        options.provided.outside,
        demo=providers.Singleton(DemoBank),
        http=providers.Singleton(
            HttpBank, options.provided.bank_url, options.provided.bank_key, options.provided.timeout
        ),
    )
    carrier = providers.Selector(
        options.provided.outside,
        demo=providers.Singleton(DemoCarrier),
        http=providers.Singleton(HttpCarrier, options.provided.carrier_url, options.provided.timeout),
    )


parts = Parts()
