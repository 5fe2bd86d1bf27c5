"""The metrics of an app in Prometheus's text format, version 0.0.4, without OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from rocketapp.plugin import AppSnapshot, Metric, metrics_of
from rocketapp.plugins.counts import BOUNDS, DISTRIBUTIONS, Counts, Histogram, Labels, messages_by

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNITS = {"By": "_bytes", "s": "_seconds"}


def exposition(app: AppSnapshot, counts: Counts | None = None) -> str:
    """Every metric as lines of text; without `counts` sends, calls and durations are left out."""
    counts = counts or Counts()
    lines: list[str] = []
    for distribution in DISTRIBUTIONS:
        name = f"{_name(distribution.name)}_seconds"
        samples = [
            line for labels, histogram in distribution.read(counts) for line in _histogram(name, labels, histogram)
        ]
        lines += _family(name, "histogram", distribution.meaning, samples)
    return text_of((*metrics_of(app), *messages_by(counts))) + "".join(f"{line}\n" for line in lines)


def text_of(metrics: Iterable[Metric]) -> str:
    """Metrics of any kind in the text format of Prometheus."""
    lines: list[str] = []
    for metric in metrics:
        unit, total = _UNITS.get(metric.unit, ""), "_total" if metric.kind == "counter" else ""
        name = f"{_name(metric.name)}{unit}{total}"
        samples = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples]
        lines += _family(name, metric.kind, metric.meaning, samples)
    return "".join(f"{line}\n" for line in lines)


def _family(name: str, kind: str, meaning: str, samples: list[str]) -> list[str]:
    if not samples:
        return []
    text = meaning.replace("\\", r"\\").replace("\n", r"\n")
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    # A copy, so that the count is that of the buckets.
    buckets, total = histogram.buckets.copy(), histogram.total
    bounds = [*map(_number, BOUNDS), "+Inf"]
    counts = list(accumulate(buckets))
    for bound, count in zip(bounds, counts, strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': bound})} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(total)}"
    yield f"{name}_count{_labels(labels)} {counts[-1]}"


def _name(name: str) -> str:
    return name.replace(".", "_")


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{_name(name)}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # A lone surrogate has no UTF-8.
    text = value.encode("utf-8", "replace").decode()
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(value)
