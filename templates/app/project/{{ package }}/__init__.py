"""Orders become bills."""
