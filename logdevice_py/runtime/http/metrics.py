"""What HTTP services count."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class HttpMetrics:
    """Of one service."""

    requests: int = counter("Requests answered, whatever the answer.", unit="requests")
    requests_failed: int = counter("Requests answered with an error.", unit="requests")
    requests_unauthorized: int = counter("Requests without the right token, or for another host.", unit="requests")
    requests_overloaded: int = counter("Requests turned away at the limit.", unit="requests")
    requests_timed_out: int = counter("Requests ended because they took too long.", unit="requests")
    requests_abandoned: int = counter("Requests whose sender was gone before the answer.", unit="requests")
    requests_running: int = gauge("Requests that are worked on.", unit="requests")
    streams_open: int = gauge("Answers that go on for as long as somebody reads them.", unit="requests")
    connections_refused: int = counter(
        "Connections turned away: requests of all others were worked on.", unit="connections"
    )
    connections_displaced: int = counter(
        "Idle connections ended because another one came and had no place.", unit="connections"
    )
    tls_failed: int = counter(
        "Connections closed for clear text, no valid TLS, or a certificate that is not accepted.", unit="connections"
    )
    connections_idle: int = counter("Connections ended because no request came.", unit="connections")
