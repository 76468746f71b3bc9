"""Rates per user and scope, from `HELIX_SESSIONS["API_THROTTLE_RATES"]`."""

from math import ceil
from typing import Any

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from helix_sessions.conf import conf

RATE_LIMIT = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")

DEFAULT_RATES = {"answer": "60/min"}
"""The default for people without an account."""


class ScopeThrottle(SimpleRateThrottle):
    """`read` for safe methods, `create` for requests that create sessions, `answer` for links, `write` for
    the rest."""

    def __init__(self) -> None:
        """Leave rates to each request: they are read live."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.scope = view.rate_scope(request)
        self.rate = {**DEFAULT_RATES, **conf.API_THROTTLE_RATES}.get(self.scope)
        if not self.rate:
            return True
        self.num_requests, self.duration = self.parse_rate(self.rate)
        allowed = super().allow_request(request, view)
        view.rate_limit = self._limit()
        return allowed

    def _limit(self) -> dict[str, str]:
        """What is left, as response headers say it."""
        used, period = len(self.history), self.duration or 0
        reset = period - (self.now - self.history[-1]) if used else period
        found = (self.num_requests, max(0, (self.num_requests or 0) - used), max(1, ceil(reset)))
        return dict(zip(RATE_LIMIT, map(str, found), strict=True))

    def get_cache_key(self, request: Request, view: Any) -> str:
        user = request.user
        who = user.pk if user is not None and user.is_authenticated else self.get_ident(request)
        return f"helix_sessions_throttle_{self.scope}_{who}"
