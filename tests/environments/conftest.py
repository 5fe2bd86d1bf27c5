"""The tests of a recipe run in its own environment, by `python -m tests.environments`."""

collect_ignore_glob = ["recipes/*/*"]
