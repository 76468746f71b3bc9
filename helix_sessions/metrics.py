"""Metrics for Prometheus (extra `metrics`): what the sessions do, and what this process serves.

    path("metrics", helix_sessions.metrics.metrics)

Closed to strangers: the scraper sends `Authorization: Bearer <METRICS_TOKEN>`; without that setting it is for
users with the permission to see all sessions.
"""

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from helix_sessions.conf import conf
from helix_sessions.models import Session
from helix_sessions.types import SESSION_STATUSES

REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "helix_sessions_api_requests",
    "Requests of the HTTP API.",
    ["route", "method", "status"],
    registry=REGISTRY,
)
SECONDS = Histogram(
    "helix_sessions_api_request_seconds", "How long they took.", ["route", "method"], registry=REGISTRY
)


class DatabaseCollector:
    """Gauges that are counted when they are asked for; every count is an index scan."""

    def collect(self) -> Iterable[Metric]:
        rows = Session.objects.using(conf.API_DATABASE)
        counted = dict(rows.order_by().values_list("status").annotate(count=Count("session_id")))
        sessions = GaugeMetricFamily("helix_sessions_sessions", "Sessions by status.", labels=["status"])
        for status in SESSION_STATUSES:
            sessions.add_metric([status], counted.get(status, 0))
        yield sessions
        now = timezone.now()
        for name, about, found in (
            ("running", "Sessions with a run under way.", rows.running()),
            (
                "awaiting_client",
                "Sessions in which a call waits for a person or a client.",
                rows.awaiting_client(),
            ),
            ("overdue_calls", "Sessions with a call past its deadline.", rows.past_deadline(now)),
            ("interrupts_requested", "Requests to stop that nobody took.", rows.interrupted_by_request()),
            ("expired", "Sessions past their time that clean-up has not reached.", rows.expired(now)),
        ):
            yield GaugeMetricFamily(f"helix_sessions_{name}", about, value=found.count())


REGISTRY.register(DatabaseCollector())


def observe(route: str, method: str, status: int, seconds: float) -> None:
    """Count a request that was answered."""
    REQUESTS.labels(route, method, str(status)).inc()
    SECONDS.labels(route, method).observe(seconds)


def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics as text."""
    if not _may(request):
        raise PermissionDenied
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _may(request: HttpRequest) -> bool:
    token: str = conf.METRICS_TOKEN
    given = request.headers.get("Authorization", "")
    if token and constant_time_compare(given, f"Bearer {token}"):
        return True
    user: Any = getattr(request, "user", None)
    return user is not None and bool(user.has_perm("helix_sessions.view_all_sessions"))
