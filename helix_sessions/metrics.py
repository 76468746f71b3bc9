"""Metrics for Prometheus (extra `metrics`): of the sessions, and of this process.

    path("metrics", helix_sessions.metrics.metrics)

Closed to strangers: the scraper sends `Authorization: Bearer <METRICS_TOKEN>`; without that setting it is for
users with the permission to see all sessions.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from helix_sessions.conf import conf
from helix_sessions.integrations.extras import needed_from
from helix_sessions.models import Schedule, Session
from helix_sessions.models.databases import sessions_database
from helix_sessions.store import SessionStore
from helix_sessions.store.context.context_tallies import tallies
from helix_sessions.store.limits import spend_limits
from helix_sessions.types import SESSION_STATUSES

with needed_from("metrics"):
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

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
    """Gauges that are counted on each scrape; every count is an index scan."""

    def collect(self) -> Iterable[Metric]:
        rows = Session.objects.using(sessions_database(conf.API_DATABASE))
        counted = dict(rows.order_by().values_list("status").annotate(count=Count("session_id")))
        sessions = GaugeMetricFamily("helix_sessions_sessions", "Sessions by status.", labels=["status"])
        for status in SESSION_STATUSES:
            sessions.add_metric([status], counted.get(status, 0))
        yield sessions
        now = timezone.now()
        for name, about, found in (
            (
                "runnable",
                "Sessions that a driver has something to do for and that have none.",
                rows.runnable(),
            ),
            ("running", "Sessions with a run under way.", rows.running()),
            (
                "crashing",
                "Sessions that were taken up more than once without a committed turn.",
                rows.filter(runnable_at__isnull=False, attempts__gt=1),
            ),
            (
                "awaiting_client",
                "Sessions in which a call waits for a person or a client.",
                rows.awaiting_client(),
            ),
            ("overdue_calls", "Sessions with a call past its deadline.", rows.past_deadline(now)),
            (
                "interrupts_requested",
                "Requests to stop that no driver took.",
                rows.interrupted_by_request(),
            ),
            ("expired", "Expired sessions that no clean-up has reached.", rows.expired(now)),
        ):
            yield GaugeMetricFamily(f"helix_sessions_{name}", about, value=found.count())
        schedules = Schedule.objects.using(rows.db).filter(enabled=True)
        late = schedules.filter(next_at__lt=now - timedelta(minutes=1)).count()
        yield GaugeMetricFamily(
            "helix_sessions_schedules_late", "Schedules that should have fired a minute ago.", value=late
        )
        failing = schedules.filter(last_error__isnull=False).count()
        yield GaugeMetricFamily(
            "helix_sessions_schedules_failing", "Schedules whose last firing failed.", value=failing
        )


class SpendCollector:
    """How spend limits stand. No label names a person: the limits of owners are only counted."""

    def collect(self) -> Iterable[Metric]:
        found = spend_limits.standings(SessionStore(conf.API_DATABASE))
        for name, about, limits in (
            ("reached", "Spend limits of which nothing is left.", [each.is_reached for each in found]),
            ("close", "Spend limits of which little is left.", [each.is_close for each in found]),
        ):
            yield GaugeMetricFamily(f"helix_sessions_spend_limits_{name}", about, value=sum(limits))
        used = GaugeMetricFamily(
            "helix_sessions_spend_used_ratio",
            "The used share of the spend limits for agent types and for all.",
            labels=["scope", "key", "window"],
        )
        for each in found:
            if each.scope != "owner":
                used.add_metric([each.scope, each.key or "", each.window], each.share)
        yield used


class ContextCollector:
    """What contexts cost this process: time of the sources, and size of what models are told."""

    def collect(self) -> Iterable[Metric]:
        seconds = SummaryMetricFamily(
            "helix_sessions_context_observation_seconds",
            "How long context sources took to observe.",
            labels=["source"],
        )
        for key, tally in sorted(tallies.seconds.items()):
            seconds.add_metric([key], tally.count, tally.total)
        yield seconds
        missing = CounterMetricFamily(
            "helix_sessions_context_unavailable",
            "How often context sources were unavailable.",
            labels=["source"],
        )
        for key, times in sorted(tallies.unavailable.items()):
            missing.add_metric([key], times)
        yield missing
        for name, about, tally in (
            ("baseline", "Characters of rendered baselines.", tallies.baselines),
            ("update", "Characters of updates of the context.", tallies.updates),
            ("growth", "Characters of updates that a baseline had gathered when replaced.", tallies.growths),
        ):
            yield SummaryMetricFamily(
                f"helix_sessions_context_{name}_characters", about, tally.count, tally.total
            )


REGISTRY.register(DatabaseCollector())
REGISTRY.register(SpendCollector())
REGISTRY.register(ContextCollector())


def observe(route: str, method: str, status: int, seconds: float) -> None:
    """Count a finished request."""
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
