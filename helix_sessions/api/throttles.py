"""Rates per user and scope, from `HELIX_SESSIONS["API_THROTTLE_RATES"]`."""

from typing import Any

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from helix_sessions.conf import conf

DEFAULT_RATES = {"answer": "60/min"}
"""Strangers are limited where nobody says otherwise."""


class ScopeThrottle(SimpleRateThrottle):
    """`read` for safe methods, `create` where sessions are made, `answer` where a link is enough, `write` for
    the rest."""

    def __init__(self) -> None:
        """Leave rates to each request: they are read live."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.scope = view.throttle_scope(request)
        self.rate = {**DEFAULT_RATES, **conf.API_THROTTLE_RATES}.get(self.scope)
        if not self.rate:
            return True
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str:
        user = request.user
        who = user.pk if user is not None and user.is_authenticated else self.get_ident(request)
        return f"helix_sessions_throttle_{self.scope}_{who}"
