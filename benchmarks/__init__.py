"""Ours beside its peers: `python -m benchmarks` measures them on the same messages and prints one table."""
