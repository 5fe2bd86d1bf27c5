"""An OTLP collector for tests: answers the protocol over HTTP on loopback, and decodes what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {3: "client", 4: "producer", 5: "consumer", 1: "internal"}


class SeenSpan(NamedTuple):
    """One exported span."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    attributes: dict[str, Any]
    links: list[tuple[str, dict[str, Any]]]
    """Span ids and attributes."""
    error: str
    events: list[str]
    start: int
    resource: dict[str, Any]


class Collector:
    """Listens while it is entered; `spans` and `metrics` are what has come."""

    def __init__(self) -> None:
        self.trace_requests: list[ExportTraceServiceRequest] = []
        self.metric_requests: list[ExportMetricsServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Tests write no log of requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: bytes) -> bytes:
        if path == "/v1/traces":
            self.trace_requests.append(ExportTraceServiceRequest.FromString(body))
            return ExportTraceServiceResponse().SerializeToString()
        assert path == "/v1/metrics", path
        self.metric_requests.append(ExportMetricsServiceRequest.FromString(body))
        return ExportMetricsServiceResponse().SerializeToString()

    @property
    def spans(self) -> list[SeenSpan]:
        """In the order in which they began."""
        return sorted(self._spans(), key=lambda span: span.start)

    def _spans(self) -> Iterator[SeenSpan]:
        for request in self.trace_requests:
            for of_resource in request.resource_spans:
                for scope in of_resource.scope_spans:
                    for span in scope.spans:
                        yield SeenSpan(
                            span.name,
                            KINDS[span.kind],
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            values(span.attributes),
                            [(link.span_id.hex(), values(link.attributes)) for link in span.links],
                            span.status.message if span.status.code == 2 else "",
                            [event.name for event in span.events],
                            span.start_time_unix_nano,
                            values(of_resource.resource.attributes),
                        )


def values(attributes: Any) -> dict[str, Any]:
    """OTLP's key-value pairs as a dict."""
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
