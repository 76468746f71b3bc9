"""Spending: users see their own, operators see all and keep the limits."""

from django.http import HttpResponse
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from helix_sessions.api import operator_examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.policy import sees_all_spending
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import Query, operation
from helix_sessions.api.serializers.spend import SpendLimitInput, SpendQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.spending import key_of_owner
from helix_sessions.types import Page, SpendLimit, SpendStatus


def _store() -> SessionStore:
    return SessionStore(conf.API_DATABASE)


class SpendView(View):
    @operation(
        "spend_status",
        tag="spend",
        response=Page[SpendStatus],
        example={"items": [operator_examples.SPEND_STATUS], "next_cursor": None},
        query=(
            Query("owner", "Only the limits of this user. Others than operators see their own alone."),
            Query("agent_type", "Only the limits of this agent type; for operators."),
        ),
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """Read what was used of spend limits: of the user's own, and as an operator of all."""
        given = self.query(SpendQuery)
        if sees_all_spending(request.user):
            found = _store().spend_status(**given)
        elif "agent_type" in given or given.get("owner", key_of_owner(request.user.pk)) != key_of_owner(
            request.user.pk
        ):
            raise PermissionDenied("Only an operator sees what others have spent.")
        else:
            found = SessionStore(conf.API_DATABASE, owned_by=request.user).spend_status()
        return json_response(Page(items=found, next_cursor=None))

    @operation(
        "set_spend_limit",
        tag="spend",
        request=SpendLimitInput,
        sent={"scope": "owner", "key": "7", "window": "month", "usd": 20, "warn_at": 0.8},
        response=SpendLimit,
        status=201,
        example=operator_examples.SPEND_LIMIT,
        etag=False,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Set a spend limit. One with the same scope, key and window replaces the one before."""
        return json_response(_store().set_spend_limit(**self.input(SpendLimitInput)), status=201)


class SpendLimitsView(View):
    @operation(
        "list_spend_limits",
        tag="spend",
        response=Page[SpendLimit],
        example={"items": [operator_examples.SPEND_LIMIT], "next_cursor": None},
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """List spend limits, by scope, key and window."""
        self.query()
        return json_response(Page(items=_store().list_spend_limits(), next_cursor=None))


class SpendLimitView(View):
    @operation("delete_spend_limit", tag="spend", status=204, etag=False)
    def delete(self, request: Request, limit_id: str) -> HttpResponse:
        """Delete a spend limit. What was spent stays counted."""
        _store().delete_spend_limit(limit_id)
        return no_content()
