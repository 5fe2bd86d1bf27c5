"""Sets up OpenTelemetry's SDK for one app: exporters, sampling and shutdown."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from rocketapp.plugins.telemetry.config import Sampling, TelemetryConfig
from rocketapp.plugins.telemetry.tracing import KEPT


class AppTracerProvider(TracerProvider):
    """A tracer provider made for an app, to distinguish it from one that the user has set up."""


class ChosenFirst(Sampler):
    """Keeps traces that were chosen before their first span; asks another sampler about all others."""

    def __init__(self, others: Sampler) -> None:
        self._others = others

    def should_sample(  # noqa: PLR0917 - OpenTelemetry's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if parent_context is not None and parent_context.get(KEPT):
            state = trace.get_current_span(parent_context).get_span_context().trace_state
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, state)
        return self._others.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return self._others.get_description()


def sampler_of(sampling: Sampling) -> Sampler:
    root = TraceIdRatioBased(sampling.share)
    return ChosenFirst(ParentBased(root)) if sampling.parent_based else root


def tracer_provider_of_process() -> trace.TracerProvider | None:
    """The global tracer provider if the process has set one up; None for none or an app's own."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | AppTracerProvider) else provider


def meter_provider_of_process() -> metrics.MeterProvider | None:
    """The global meter provider if the process has set one up; otherwise None."""
    provider = metrics.get_meter_provider()
    # OpenTelemetry has no public name for the one that waits until another is set.
    return None if type(provider).__name__ == "_ProxyMeterProvider" else provider


def known_sampling(provider: trace.TracerProvider) -> Sampling | None:
    """The sampling, if it can be decided before a span is made: the producer's decision."""
    is_parent_based = isinstance(getattr(provider, "sampler", None), ParentBased)
    return Sampling(1.0, True) if is_parent_based else None


def resource_of(name: str, version: str) -> Resource:
    """The resource of this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    own = {"service.name": name, "service.version": version, "service.instance.id": str(uuid.uuid4())}
    of_app = Resource.create({key: value for key, value in own.items() if value})
    return of_app.merge(OTELResourceDetector().detect())


def new_tracer_provider(
    exporter: str, config: TelemetryConfig, sampling: Sampling, resource: Resource
) -> TracerProvider:
    """A tracer provider; also made global if there is none, so that spans made by handlers join the same traces."""
    provider = AppTracerProvider(sampler=sampler_of(sampling), resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_span_exporter(exporter, config.endpoint)))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    return provider


def new_meter_provider(exporter: MetricExporter, config: TelemetryConfig, resource: Resource) -> MeterProvider:
    interval = None if config.metrics_interval is None else config.metrics_interval * 1000
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval)
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)


def _span_exporter(name: str, endpoint: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=_url(endpoint, "traces"))


def metric_exporter(name: str, endpoint: str) -> MetricExporter:
    if name == "console":
        return ConsoleMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(endpoint=_url(endpoint, "metrics"))


def _url(endpoint: str, signal: str) -> str | None:
    """None: the exporter reads OpenTelemetry's variables."""
    return f"{endpoint.rstrip('/')}/v1/{signal}" if endpoint else None
