"""The shop's own table of settings, `[shop]`: each option is declared once, with its meaning and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp import ConfigError
from rocketapp.plugin import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    """Values come from settings.toml and from variables: ROCKETAPP_SHOP__BANK_KEY sets `bank_key`."""

    database: str = option(".rocketapp/shop.db", "File of the shop's SQLite database.")
    outside: str = option("demo", "Bank and carrier: imitations within the app, or by HTTP.", choices=("demo", "http"))
    bank_url: str = option("", "Base URL of the bank.")
    bank_key: str = option("", "Key for the bank. It belongs into a variable, not into a file.", secret=True)
    carrier_url: str = option("", "Base URL of the carrier.")
    timeout: float = option(5.0, "Seconds to wait for the bank or the carrier.", least=0.1, most=60.0)
    demo_orders: int = option(0, "Orders that the shop places with itself at each start.", least=0, most=100)
    console_spans: bool = option(False, "Spans go to the console, once telemetry.enabled asks for them.")

    def __post_init__(self) -> None:
        """What a single option cannot say: which ones need each other. It ends the start with exit code 2."""
        missing = [name for name in ("bank_url", "bank_key", "carrier_url") if not getattr(self, name)]
        if self.outside == "http" and missing:
            variables = ", ".join(f"ROCKETAPP_SHOP__{name.upper()}" for name in missing)
            raise ConfigError("shop.outside", f"'http' needs {', '.join(missing)}: set {variables}")
