"""Traces and metrics of an app through OpenTelemetry.

On when `[telemetry]` or OpenTelemetry's variables ask for it; otherwise nothing of OpenTelemetry is imported, and
nothing stands in front of a handler or a publish.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any

from rocketapp import ConfigError
from rocketapp.plugin import AppConfig, ClientConfig, PublishWrapper, Subscription, Surface, Wrapper, events, hookimpl
from rocketapp.plugins.counts import Counts
from rocketapp.plugins.log_context import is_on
from rocketapp.plugins.telemetry.config import TelemetryConfig, WantedSignals, wanted

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

    from rocketapp.plugins.telemetry.metrics import Instruments
    from rocketapp.plugins.telemetry.tracing import Tracing


log: logging.Logger = logging.getLogger("rocketapp.telemetry")
_PATIENCE = 3.0
"""Seconds that the last export may take while the app stops."""
_SDK, _OTLP = "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"


class Telemetry:
    """The plugin: `RocketApp(plugins=[Telemetry(meter_provider=mine)])` takes the place of the usual one."""

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        """Providers of yours get the app's spans and metrics, without any setting; nothing shuts them down."""
        self._tracer_provider, self._meter_provider = tracer_provider, meter_provider
        self._config = TelemetryConfig()
        self._wanted: WantedSignals | None = None
        self._tracing: Tracing | None = None
        self._counts: Counts | None = None
        self._instruments: Instruments | None = None
        """Instruments of the user's provider: they stay for the next start."""
        self._endings: list[Callable[[], object]] = []
        """What ends each provider of ours."""

    @hookimpl
    def options(self) -> tuple[str, type[TelemetryConfig]]:
        return "telemetry", TelemetryConfig

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        """Decide what to export, before handlers are wrapped."""
        self._config, self._tracing, self._counts = app.options(TelemetryConfig), None, None
        traces_given, metrics_given = self._tracer_provider is not None, self._meter_provider is not None
        asked = wanted(self._config, os.environ, traces_given=traces_given, metrics_given=metrics_given)
        self._wanted = asked if asked and self._is_installed(asked) else None
        if self._wanted is not None and self._wanted.traces:
            from rocketapp.plugins.telemetry.tracing import Tracing

            self._tracing = Tracing(Random(), in_logs=is_on(app.options(AppConfig)))
        if self._wanted is not None and self._wanted.metrics:
            self._counts = self._new_counts(app.name)

    def _new_counts(self, app: str) -> Counts:
        """Histograms that the user's provider records too; our own exporter only reads them."""
        from rocketapp.plugins.telemetry import metrics, providers

        provider = self._meter_provider or providers.meter_provider_of_process()
        if provider is None:
            return Counts()
        meter = metrics.meter_of(provider, app)
        self._instruments = self._instruments or metrics.Instruments(meter)
        return Counts(metrics.recorded_by(meter))

    @hookimpl
    def observe_events(self) -> events.Observe | None:
        return None if self._tracing is None else self._tracing.settled

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        timed = None if self._counts is None or not self._config.durations else self._counts.handler(subscription)
        traced = None if self._tracing is None else self._tracing.handler(subscription)
        return _around(traced, timed) if traced and timed else traced or timed

    @hookimpl(trylast=True)
    def publish_wrapper(self) -> PublishWrapper | None:
        """Innermost, so that spans show what other wrappers have changed."""
        tracing, counts = self._tracing, self._counts
        if tracing is None or counts is None:
            return tracing.publishing if tracing is not None else counts.publishing if counts is not None else None
        return lambda call: tracing.publishing(counts.publishing(call))

    @hookimpl
    def app_startup(self, app: Surface) -> None:
        """Start the exporters; the client ids are known now."""
        if self._wanted is None:
            return
        from rocketapp.plugins.telemetry import providers

        resource = providers.resource_of(app.name, app.version)
        if self._tracing is not None:
            self._begin_tracing(self._tracing, self._wanted, resource, app)
        if self._counts is not None:
            from rocketapp.plugins.telemetry import metrics

            instruments = self._instruments
            if instruments is None:
                to = providers.metric_exporter(self._wanted.metrics, self._config.endpoint)
                provider = providers.new_meter_provider(metrics.WithDurations(to, self._counts), self._config, resource)
                self._endings.append(provider.shutdown)
                instruments = metrics.Instruments(metrics.meter_of(provider))
            instruments.show(metrics.Glances(app, asyncio.get_running_loop()), self._counts)

    @hookimpl
    async def app_shutdown(self) -> None:
        """Export what is left. A collector that does not answer is waited for as long as anything else here."""
        if self._instruments is not None:
            self._instruments.end()
        endings, self._endings = self._endings, []
        loop = asyncio.get_running_loop()

        def end(shut_down: Callable[[], object], future: asyncio.Future[None]) -> None:
            shut_down()
            with contextlib.suppress(RuntimeError):  # too late: the loop is closed
                loop.call_soon_threadsafe(future.set_result, None)

        ended: list[asyncio.Future[None]] = []
        for shut_down in endings:
            ended.append(loop.create_future())
            # A daemon: an exporter that waits for a dead collector must not keep the process.
            threading.Thread(target=end, args=(shut_down, ended[-1]), name="telemetry ends", daemon=True).start()
        if ended and (await asyncio.wait(ended, timeout=_PATIENCE))[1]:
            text = "the last spans and metrics were not exported within %g s: see that the collector can be reached"
            log.warning(text, _PATIENCE)

    def _begin_tracing(self, tracing: Tracing, wanted: WantedSignals, resource: Resource, app: Surface) -> None:
        from rocketapp.plugins.telemetry import providers
        from rocketapp.plugins.telemetry.tracing import gate_of

        given = self._tracer_provider or providers.tracer_provider_of_process()
        if given is not None:
            sampling, provider = providers.known_sampling(given), given
        else:
            sampling = wanted.sampling
            provider = own = providers.new_tracer_provider(wanted.traces, self._config, sampling, resource)
            self._endings.append(own.shutdown)
        namespace = app.options(ClientConfig).namespace
        tracing.begin(provider, gate_of(sampling, Random()), app.snapshot().client_ids, namespace)

    def _is_installed(self, asked: WantedSignals) -> bool:
        """Whether the extra is installed.

        Required if the settings ask for it; a variable may be meant for other programs.
        """
        by_otlp = "otlp" in (asked.traces, asked.metrics)
        missing = [name for name in (_SDK, _OTLP) if (name is _SDK or by_otlp) and not _is_there(name)]
        if not missing:
            return True
        mend = "pip install 'rocketapp[telemetry]'"
        if self._config.enabled or self._config.endpoint:
            raise ConfigError("telemetry.enabled", f"{missing[0]} is not installed: {mend}")
        log.warning("OTEL_ variables ask for telemetry, and %s is not installed: %s", missing[0], mend)
        return False


def _around(outer: Wrapper, inner: Wrapper) -> Wrapper:
    """One wrapper around another, for sync and async handlers."""

    def half(name: str) -> Callable[[Any], Any]:
        around, within = getattr(outer, name), getattr(inner, name)
        return lambda call: around(within(call))

    return Wrapper(
        layer="telemetry", for_sync=half("for_sync"), for_async=half("for_async"), polled=outer.polled and inner.polled
    )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
