"""Apps with sinks, as in the tests of rocketapp-lake."""

from sink_shop import shop

__all__ = ["shop"]
