"""The shop's own tests."""
