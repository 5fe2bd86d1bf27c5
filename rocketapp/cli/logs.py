"""Where log lines go: stderr, or where a configuration file says. How they look is said by `plugins.log_format`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from rocketapp.cli.failure import CommandError, describe, problem_of
from rocketapp.config.app import AppConfig
from rocketapp.model.event import Event, LoopFailed
from rocketapp.plugins.log_context import MessageFilter
from rocketapp.plugins.log_format import make_formatter

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMS = (".toml", ".json", ".ini", ".conf")
"""How names of files with a configuration end: the last two are those of Python's own form."""


def set_up_logging(config: AppConfig, *, file: str | None = None, process: str = "") -> None:
    """Send the root logger to stderr, or do what `file` says (`--log-config`).

    `process` names a worker or a broker in each line. Raises CommandError for a file that cannot be used.
    """
    if file is not None:
        _use_file(file, process)
    else:
        _use_stderr(config, process)


def _use_stderr(config: AppConfig, process: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(MessageFilter())
    handler.setFormatter(make_formatter(config.log_format, process=process))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(config.log_level)
    # Debug lines of the event loop say nothing about messages.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _use_file(file: str, process: str) -> None:
    kind = Path(file).suffix.lower()
    if kind not in FORMS:
        raise CommandError(f"--log-config {file}: its name ends in none of {', '.join(FORMS)}: write one of these")
    try:
        _read(kind, Path(file).read_text("utf-8"))
    except OSError as error:
        raise CommandError(f"--log-config {file}: {problem_of(error)}") from error
    except Exception as error:
        # The cause says what is wrong: what is around it says only where.
        cause = f": {describe(error.__cause__)}" if error.__cause__ is not None else ""
        raise CommandError(f"--log-config {file}: {describe(error)}{cause}") from error
    if process:
        import multiprocessing

        multiprocessing.current_process().name = process  # `%(processName)s` says which worker it is


def _read(kind: str, text: str) -> None:
    """Do what a file of this kind says. Loggers of modules that are imported already go on."""
    import json
    import tomllib
    from io import StringIO
    from logging.config import dictConfig, fileConfig

    if kind in (".toml", ".json"):
        table = tomllib.loads(text) if kind == ".toml" else json.loads(text)
        dictConfig({"version": 1, "disable_existing_loggers": False, **table})
    else:
        fileConfig(StringIO(text), disable_existing_loggers=False)


def log_failure(event: Event) -> None:
    """Log that a task of the command itself failed: an app's tasks are told to its plugins instead."""
    if isinstance(event, LoopFailed):
        logging.getLogger("rocketapp.run").error("%s failed: %s", event.loop, event.error)
