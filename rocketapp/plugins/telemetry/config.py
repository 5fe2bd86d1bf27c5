"""Options of telemetry, table `[telemetry]`, and what they mean beside OpenTelemetry's own variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketapp import ConfigError
from rocketapp.plugin import option

EXPORTERS = ("otlp", "console")
GIVEN = "given"
"""The user's provider exports."""
_SAMPLERS = ("always_on", "always_off", "traceidratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Traces and metrics through OpenTelemetry."""

    enabled: bool | None = option(
        None, "Traces and metrics. None: when `endpoint` or OpenTelemetry's variables say where they go."
    )
    endpoint: str = option(
        "", "Base URL of an OTLP collector, HTTP with protobuf. Empty: OTEL_EXPORTER_OTLP_ENDPOINT, or localhost:4318."
    )
    traces: bool = option(True, "Spans of publishing and handling.")
    metrics: bool = option(True, "Counters and gauges of the app.")
    durations: bool = option(True, "Histograms of how long handlers and sends took; needs `metrics`.")
    sample: float | None = option(
        None, "Share of new traces that are kept. None: OTEL_TRACES_SAMPLER, or all.", least=0.0, most=1.0
    )
    metrics_interval: float | None = option(
        None, "Seconds between two exports of metrics. None: OTEL_METRIC_EXPORT_INTERVAL, or 60.", least=0.1
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which new traces are kept, as in OTEL_TRACES_SAMPLER."""

    share: float
    parent_based: bool
    """A trace that another program began is kept when that program keeps it."""


@dataclass(frozen=True, slots=True)
class WantedSignals:
    """The exporter for each signal: one of EXPORTERS, or GIVEN; empty: not exported."""

    traces: str
    metrics: str
    sampling: Sampling

    def __bool__(self) -> bool:
        return bool(self.traces or self.metrics)


def wanted(
    config: TelemetryConfig, environ: Mapping[str, str], *, traces_given: bool = False, metrics_given: bool = False
) -> WantedSignals:
    """Which signals to export. `..._given`: the user has given the plugin a provider.

    Raises ConfigError for a variable that asks for something rocketapp does not have.
    """
    is_off = config.enabled is False or environ.get("OTEL_SDK_DISABLED", "").lower() == "true"

    def exporter(signal: str, is_wanted: bool, is_given: bool) -> str:
        if is_off or not is_wanted:
            return ""
        return GIVEN if is_given else _exporter(signal, config, environ)

    return WantedSignals(
        exporter("TRACES", config.traces, traces_given),
        exporter("METRICS", config.metrics, metrics_given),
        _sampling(config, environ),
    )


def _exporter(signal: str, config: TelemetryConfig, environ: Mapping[str, str]) -> str:
    name = environ.get(f"OTEL_{signal}_EXPORTER", "").strip()
    where = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if name == "none" or not (config.enabled or config.endpoint or name or any(map(environ.get, where))):
        return ""
    name = name or "otlp"
    if name not in EXPORTERS:
        known = ", ".join((*EXPORTERS, "none"))
        raise ConfigError(f"OTEL_{signal}_EXPORTER", f"{name!r} is not supported; known are {known}")
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if name == "otlp" and environ.get(variable, "http/protobuf") != "http/protobuf":
            raise ConfigError(variable, f"{environ[variable]!r} is not supported: use http/protobuf")
    if name == "otlp":
        _check_url(config.endpoint, where, environ)
    return name


def _check_url(endpoint: str, variables: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Raises ConfigError for an address that nothing can be sent to: an exporter would only log it, every minute."""
    place, url = "telemetry.endpoint", endpoint
    if not url:
        place = next((one for one in variables if environ.get(one)), "")
        url = environ.get(place, "").strip()
    if url and not url.lower().startswith(("http://", "https://")):
        raise ConfigError(place, f"{url!r} is not a URL of HTTP: write http://host:4318")


def _sampling(config: TelemetryConfig, environ: Mapping[str, str]) -> Sampling:
    if config.sample is not None:
        return Sampling(config.sample, True)
    name = environ.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    parent_based, root = name.startswith("parentbased_"), name.removeprefix("parentbased_")
    if root not in _SAMPLERS:
        known = ", ".join((*_SAMPLERS, *(f"parentbased_{each}" for each in _SAMPLERS)))
        raise ConfigError("OTEL_TRACES_SAMPLER", f"{name!r} is not supported; known are {known}")
    if root != "traceidratio":
        return Sampling(float(root == "always_on"), parent_based)
    text = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError("OTEL_TRACES_SAMPLER_ARG", f"{text!r} is not a share from 0 to 1")
    return Sampling(share, parent_based)
