"""The user's function of a sink: it takes the rows of a batch, and returns those to store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb

import pyarrow as pa

from rocketapp_pyspark.errors import SinkError, TransformError

Transform = Callable[[pa.Table], "pa.Table | None"]


def transformed(transform: Transform, table: pa.Table) -> pa.Table | None:
    """What the function makes of the rows. Raises TransformError, with its line, when it fails."""
    try:
        answer: object = transform(table)
    except SinkError:
        raise
    except (Exception, SystemExit) as error:  # the loop would end with what ends a thread, and the batch be lost
        failure = f"{type(error).__name__}: {error}"
        raise TransformError(f"the function of the sink failed{_place(transform, error)}: {failure}") from error
    if answer is None or isinstance(answer, pa.Table):
        return answer
    raise SinkError(f"the function of the sink returned {type(answer).__name__}: return a pyarrow.Table, or None")


def _place(transform: Transform, error: BaseException) -> str:
    """The innermost line of its file that the error came through."""
    code = getattr(inspect.unwrap(transform), "__code__", None)
    lines = [line for line in extract_tb(error.__traceback__) if code and line.filename == code.co_filename]
    return f" at {Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""
