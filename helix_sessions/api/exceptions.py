"""Errors as problems: one table from the codes of the store to status codes, one body (RFC 9457)."""

import json
import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError, connections
from django.http import Http404, HttpResponse
from rest_framework import exceptions as drf
from rest_framework.permissions import SAFE_METHODS

from helix_sessions import exceptions
from helix_sessions.conf import conf
from helix_sessions.models.databases import sessions_database
from helix_sessions.store.engine.connection import let_go_if_broken

PROBLEM = "application/problem+json"
RETRY_AFTER = 1

STATUS_OF: dict[type[Exception], int] = {
    exceptions.InvalidInput: 400,
    exceptions.InvalidCursor: 400,
    exceptions.InvalidDocument: 422,
    exceptions.InvalidWrites: 422,
    exceptions.IdempotencyKeyReused: 422,
    exceptions.NotFound: 404,
    exceptions.SessionMoved: 421,
    exceptions.EventsArchived: 410,
    exceptions.Conflict: 409,
    exceptions.StaleState: 412,
    exceptions.SessionConflict: 409,
    exceptions.ForeignNamespace: 403,
    exceptions.AnswerForbidden: 403,
    exceptions.SearchTooWide: 422,
    exceptions.NotConfigured: 501,
    exceptions.BlobTooLarge: 413,
    exceptions.MediaTypeRefused: 415,
    exceptions.ContextUnavailable: 503,
    exceptions.ContextOverflow: 422,
    exceptions.TransientError: 503,
    exceptions.SessionBusy: 503,
    exceptions.StoreUnavailable: 503,
    exceptions.ContentUnreadable: 503,
    exceptions.HelixSessionsError: 400,
}
"""An error has the status of its nearest class in this table."""

_RETRIED = (
    exceptions.SessionBusy,
    exceptions.StoreUnavailable,
    exceptions.IdempotencyInProgress,
    exceptions.ContextUnavailable,
    exceptions.TransientError,
)

_ASK_AGAIN = "Retry in a moment."
_REPEAT_WITH_KEY = "A write may have taken place or not; retry it with its Idempotency-Key."

logger = logging.getLogger("helix_sessions.api")


class BodyTooLarge(drf.APIException):
    status_code = 413
    default_detail = "The body of the request is larger than allowed."
    default_code = "body_too_large"


class LengthRequired(drf.APIException):
    status_code = 411
    default_detail = "The body of the request needs a Content-Length."
    default_code = "length_required"


class PreconditionFailed(drf.APIException):
    status_code = 412
    default_detail = "The precondition of the request is not met."
    default_code = "precondition_failed"


def status_of(error: exceptions.HelixSessionsError) -> int:
    """The status code of an error of the store."""
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def problem(
    status: int, code: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any
) -> HttpResponse:
    """A response that says what is wrong. `code` is stable, `detail` is for people."""
    body = {
        "type": f"urn:helix-sessions:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **more,
    }
    # ASCII, because a detail may quote what no encoding can carry.
    return HttpResponse(json.dumps(body, default=str), status=status, content_type=PROBLEM, headers=headers)


def problem_of(error: exceptions.HelixSessionsError) -> HttpResponse:
    """The problem document of an error of the store."""
    more: dict[str, Any] = {}
    if isinstance(error, exceptions.StaleState):
        more = {
            "expected_version": error.expected_version,
            "current_version": error.current_version,
            "current_status": error.current_status,
        }
    elif isinstance(error, exceptions.EventsArchived):
        more = {"first_available_seq": error.first_available_seq}
    elif isinstance(error, exceptions.StillWaiting):
        more = {"tool_call_ids": error.tool_call_ids, "sub_session_ids": error.sub_session_ids}
    elif isinstance(error, exceptions.LeaseHeld):
        more = {"owner": error.owner, "expires_at": error.expires_at.isoformat()}
    headers = {"Retry-After": str(RETRY_AFTER)} if isinstance(error, _RETRIED) else None
    return problem(status_of(error), error.code, str(error), headers=headers, **more)


def handle(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """The exception handler of every view here; `None` leaves an unexpected error to Django."""
    if isinstance(error, exceptions.HelixSessionsError):
        return problem_of(error)
    if isinstance(error, OperationalError | InterfaceError):
        return _database_lost(error, context)
    if isinstance(error, Http404):
        error = drf.NotFound()
    elif isinstance(error, PermissionDenied):
        error = drf.PermissionDenied()
    if not isinstance(error, drf.APIException):
        return None
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    if isinstance(error, drf.ValidationError):
        return problem(400, "invalid_input", "The request is invalid.", errors=error.detail)
    return problem(error.status_code, str(error.get_codes()), str(error.detail), headers=headers)


def _database_lost(error: Exception, context: dict[str, Any]) -> HttpResponse:
    """The connection was lost during a request, so it is unknown whether a write took place."""
    logger.error("The database connection was lost during a request (%s).", type(error).__name__)
    logger.debug("It said:", exc_info=error)
    let_go_if_broken(connections[sessions_database(conf.API_DATABASE)])
    request = context.get("request")
    reads = request is not None and request.method in SAFE_METHODS
    return problem(
        503,
        "database_lost",
        f"The database connection was lost.  {_ASK_AGAIN if reads else _REPEAT_WITH_KEY}",
        headers={"Retry-After": str(RETRY_AFTER)},
    )
