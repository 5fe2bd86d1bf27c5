"""Projects that `rocketapp new` makes: with this interpreter in the tests, and from a wheel by `python -m`."""
