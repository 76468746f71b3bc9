"""Carries actions out on all sessions of a filter, batch by batch: in the request that asks for it, or beside
a worker."""

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.auth import get_user_model
from django.core.exceptions import SuspiciousOperation
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from helix_sessions.admin.actions import ACTIONS
from helix_sessions.admin.base import store
from helix_sessions.admin.operations import carry_out
from helix_sessions.admin.paginator import bounded_count
from helix_sessions.models import BulkAction, Session
from helix_sessions.store.maintenance import bulk_actions

BATCH = 20
"""So many sessions are acted upon between two looks whether to go on."""

PAGING = ("p", "all", "o", "e", "_changelist_filters", "_popup", "_to_field")
"""Parts of the address of a list that choose no sessions."""

MOST_QUERY = 4_000

_log = logging.getLogger("helix_sessions.admin")


class BadFilter(Exception):
    """The filter is none of the list."""


def cleaned(query: str) -> str:
    """A filter of the list, without what only pages and sorts."""
    given = QueryDict(query[:MOST_QUERY], mutable=True)
    for name in PAGING:
        given.pop(name, None)
    return given.urlencode()


def matching(user: Any, query: str) -> QuerySet[Any]:
    """The sessions that the list shows this user under a filter."""
    request = HttpRequest()
    request.method, request.GET, request.user = "GET", QueryDict(query), user
    model_admin: Any = admin.site._registry[Session]
    try:
        found = model_admin.get_changelist_instance(request).queryset
    except (IncorrectLookupParameters, SuspiciousOperation, ValueError) as error:
        raise BadFilter(str(error)) from error
    return cast("QuerySet[Any]", found)


def begin(request: HttpRequest, action: str, query: str, answers: dict[str, Any]) -> BulkAction:
    """Note the action of this user for all sessions of a filter."""
    return bulk_actions.create(
        store().using,
        action,
        query,
        answers,
        user_key=str(request.user.pk),
        username=request.user.get_username(),
        expected=bounded_count(matching(request.user, query)),
    )


def advance(
    bulk_id: str | None = None,
    *,
    seconds: float | None = None,
    should_stop: Callable[[], bool] = bool,
) -> BulkAction | None:
    """Go on with one, for so many seconds or to its end; `None` if there is none that is free."""
    using = store().using
    row = bulk_actions.claim(using, timezone.now(), bulk_id)
    if row is None:
        return None
    until = None if seconds is None else time.monotonic() + seconds
    try:
        _carry_on(using, row, until, should_stop)
    except Exception as error:
        _log.exception("The bulk action %s could not go on.", row.bulk_id)
        bulk_actions.finish(using, row, "failed", f"{type(error).__name__}: {error}")
    return row


def _carry_on(using: str, row: BulkAction, until: float | None, should_stop: Callable[[], bool]) -> None:
    if row.state == "stopping":
        return bulk_actions.finish(using, row, "stopped")
    action = ACTIONS.get(row.action)
    request = HttpRequest()
    user = get_user_model()._default_manager.filter(pk=row.user_key, is_active=True, is_staff=True).first()
    if action is None or user is None:
        return bulk_actions.finish(using, row, "failed", _("The user or the action is gone."))
    request.user = user
    form = action.form(row.answers)
    if not action.is_allowed(request) or not form.is_valid():
        return bulk_actions.finish(using, row, "failed", _("The user may not do this any more."))
    while not should_stop() and (until is None or time.monotonic() < until):
        rows = matching(user, row.query).filter(session_id__gt=row.cursor, created_at__lte=row.created_at)
        ids = list(rows.order_by("session_id").values_list("session_id", flat=True)[:BATCH])
        if not ids:
            return bulk_actions.finish(using, row, "done")
        outcome = carry_out(action, store(), request, ids, form.cleaned_data)
        goes_on = bulk_actions.move_on(
            using, row, cursor=ids[-1], done=len(outcome.done), failures=outcome.failures
        )
        if not goes_on:
            if row.state == "stopping":
                bulk_actions.finish(using, row, "stopped")
            return None
    return bulk_actions.release(using, row)
