"""The audit trail: a log record for every request, and with `AUDIT_TRAIL` a row for each that changes
something.

The row is committed with the change, or neither is. A refusal is stored as well, after the rollback.
"""

import json
import logging
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any
from uuid import uuid4

from django.http import HttpResponse
from rest_framework.permissions import SAFE_METHODS

from helix_sessions.api.exceptions import handle
from helix_sessions.conf import conf
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.keyed.audits import Deed, audited

_log = logging.getLogger("helix_sessions.audit")
REQUEST_ID = "X-Request-ID"
_LONGEST_REQUEST_ID = 128


def watched(view: Any, request: Any, dispatch: Callable[[], Any]) -> HttpResponse:
    """Handle a request, and record it."""
    began = perf_counter()
    changes = request.method not in SAFE_METHODS
    kept = changes and conf.AUDIT_TRAIL
    response = _answered(view, request, dispatch) if kept else dispatch()
    response[REQUEST_ID] = request_id(request)
    _tell(view, request, response, changes, perf_counter() - began)
    return response


def _answered(view: Any, request: Any, dispatch: Callable[[], HttpResponse]) -> HttpResponse:
    """The outermost handler, which also handles a database that is unavailable."""
    try:
        database = sessions_database(conf.API_DATABASE)
        return audited(database, dispatch, lambda response: _deed(view, request, response))
    except Exception as error:
        response = handle(error, {"view": view, "request": request})
        if response is None:
            raise
        return response


def _deed(view: Any, request: Any, response: HttpResponse) -> Deed:
    user = getattr(getattr(view, "request", request), "user", None)
    key = getattr(user, "pk", None)
    return Deed(
        actor=None if key is None else str(key),
        session_id=_session_id(view, response),
        action=f"{request.method} {_route(request)}",
        status=response.status_code,
        code=_code(response),
        address=(request.META.get("REMOTE_ADDR") or None),
        request_id=request_id(request),
    )


def _session_id(view: Any, response: HttpResponse) -> str | None:
    """The session of the URL; for a created one, its new id."""
    named = view.kwargs.get("session_id")
    if named is None and response.status_code == 201:
        named = json.loads(response.content).get("session_id")
    return str(named) if named is not None else None


def _code(response: HttpResponse) -> str | None:
    if response.status_code < 400 or not response.content:
        return None
    try:
        return str(json.loads(response.content)["code"])[:64]
    except (ValueError, KeyError, TypeError):
        return None


def _route(request: Any) -> str:
    """The route without its ids: few values, and nothing that a caller chose."""
    match = request.resolver_match
    return str(match.route).rstrip("/") if match is not None else ""


def request_id(request: Any) -> str:
    """The request id of the client or a proxy, if it is safe to log; else a new one."""
    named: str | None = getattr(request, "helix_request_id", None)
    if named is None:
        given = str(request.headers.get(REQUEST_ID, ""))[:_LONGEST_REQUEST_ID]
        named = given if given.isascii() and given.isprintable() and given else uuid4().hex
        request.helix_request_id = named
    return named


def _tell(view: Any, request: Any, response: HttpResponse, changes: bool, seconds: float) -> None:
    metrics = sys.modules.get("helix_sessions.metrics")
    if metrics is not None:
        metrics.observe(_route(request), request.method, response.status_code, seconds)
    level = logging.INFO if changes or response.status_code in (401, 403, 429) else logging.DEBUG
    if not _log.isEnabledFor(level):
        return
    deed = _deed(view, request, response)
    fields = {name: getattr(deed, name) for name in Deed.__slots__}
    run_id = view.kwargs.get("run_id")
    extra = {**fields, "run_id": run_id, "method": request.method, "seconds": round(seconds, 6)}
    _log.log(level, "%s %s", deed.action, deed.status, extra=extra)
