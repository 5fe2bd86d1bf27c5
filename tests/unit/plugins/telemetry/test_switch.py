"""When telemetry is on, and what it costs a process where it is off."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rocketapp import ConfigError
from rocketapp.plugins.telemetry.config import Sampling, TelemetryConfig, wanted
from tests.cases import cases


def test_where_it_is_off_nothing_of_opentelemetry_is_imported() -> None:
    program = "import sys, rocketapp.plugins.telemetry.plugin; print([m for m in sys.modules if 'opentelemetry' in m])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@cases(
    "config, environ, traces, metrics",
    [
        (TelemetryConfig(), {}, "", ""),
        (TelemetryConfig(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp", "otlp"),
        (TelemetryConfig(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, "otlp", ""),
        (TelemetryConfig(), {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}, "console", ""),
        (TelemetryConfig(endpoint="http://c:4318", metrics=False), {}, "otlp", ""),
        (TelemetryConfig(enabled=True), {"OTEL_METRICS_EXPORTER": "none"}, "otlp", ""),
        (TelemetryConfig(enabled=False, endpoint="http://c:4318"), {}, "", ""),
        (TelemetryConfig(enabled=True), {"OTEL_SDK_DISABLED": "true"}, "", ""),
    ],
)
def test_settings_and_variables_turn_it_on_and_off(
    config: TelemetryConfig, environ: dict[str, str], traces: str, metrics: str
) -> None:
    found = wanted(config, environ)
    assert (found.traces, found.metrics) == (traces, metrics)


@pytest.mark.parametrize(
    ("config", "environ", "sampling"),
    [
        (TelemetryConfig(), {}, Sampling(1.0, True)),
        (TelemetryConfig(sample=0.01), {"OTEL_TRACES_SAMPLER": "always_off"}, Sampling(0.01, True)),
        (
            TelemetryConfig(),
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
            Sampling(0.5, True),
        ),
        (TelemetryConfig(), {"OTEL_TRACES_SAMPLER": "always_off"}, Sampling(0.0, False)),
    ],
)
def test_the_share_of_new_traces_is_the_setting_s_or_the_variable_s(
    config: TelemetryConfig, environ: dict[str, str], sampling: Sampling
) -> None:
    assert wanted(config, environ).sampling == sampling


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "jaeger"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "c/v1/metrics"},
        {"OTEL_TRACES_SAMPLER": "often"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
    ],
)
def test_what_rocketapp_does_not_have_is_refused_by_the_variable_s_name(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=list(environ)[-1]):
        wanted(TelemetryConfig(), environ)


def test_an_address_that_nothing_can_be_sent_to_is_refused_by_the_setting_s_name() -> None:
    with pytest.raises(ConfigError, match=r"^telemetry.endpoint: 'collector:4318' is not a URL of HTTP"):
        wanted(TelemetryConfig(endpoint="collector:4318"), {})
