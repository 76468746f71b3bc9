"""Schedules and their firings, for operators."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import operator_examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.schedules import ScheduleInput, SchedulePatch, SchedulesQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.store import SessionStore
from helix_sessions.types import Page, Schedule, ScheduleFiring


def _store() -> SessionStore:
    return SessionStore(conf.API_DATABASE)


class SchedulesView(View):
    @listing(
        "list_schedules",
        tag="schedules",
        response=Page[Schedule],
        example=operator_examples.SCHEDULE,
        query=[Query("enabled", "Only those that are enabled, or are not.", bool)],
        etag=False,
    )
    def get(self, request: Request) -> HttpResponse:
        """List schedules, the oldest first."""
        return page_response(request, _store().list_schedules(**self.query(SchedulesQuery)))

    @operation(
        "create_schedule",
        tag="schedules",
        request=ScheduleInput,
        sent=operator_examples.NEW_SCHEDULE,
        response=Schedule,
        status=201,
        example=operator_examples.SCHEDULE,
        etag=False,
    )
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Give an agent a prompt at the times of a cron expression, from now on."""
        given = self.input(ScheduleInput)
        return json_response(_store().create_schedule(given.pop("name"), **given), status=201)


class ScheduleView(View):
    @operation(
        "get_schedule", tag="schedules", response=Schedule, example=operator_examples.SCHEDULE, etag=False
    )
    def get(self, request: Request, schedule_id: str) -> HttpResponse:
        """Read a schedule, with its next five firings."""
        self.query()
        return json_response(_store().get_schedule(schedule_id))

    @operation(
        "update_schedule",
        tag="schedules",
        request=SchedulePatch,
        sent={"enabled": False},
        response=Schedule,
        example={**operator_examples.SCHEDULE, "enabled": False, "next_firings": []},
        etag=False,
    )
    def patch(self, request: Request, schedule_id: str) -> HttpResponse:
        """Change a schedule. Of one whose times change, or that is enabled again, nothing was missed."""
        return json_response(_store().update_schedule(schedule_id, **self.input(SchedulePatch)))

    @operation("delete_schedule", tag="schedules", status=204, etag=False)
    def delete(self, request: Request, schedule_id: str) -> HttpResponse:
        """Delete a schedule. The sessions it has made stay."""
        _store().delete_schedule(schedule_id)
        return no_content()


class RunScheduleView(View):
    @operation(
        "run_schedule",
        tag="schedules",
        response=ScheduleFiring,
        status=201,
        example=operator_examples.SCHEDULE_FIRING,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, schedule_id: str) -> HttpResponse:
        """Fire a schedule now, enabled or not. It is queued while the firing before is under way."""
        return json_response(_store().run_schedule(schedule_id), status=201)


class FiringsView(View):
    @listing(
        "list_schedule_firings",
        tag="schedules",
        response=Page[ScheduleFiring],
        example=operator_examples.SCHEDULE_FIRING,
        etag=False,
    )
    def get(self, request: Request, schedule_id: str) -> HttpResponse:
        """List the last firings of a schedule, the newest first."""
        return page_response(request, _store().list_schedule_firings(schedule_id, **self.query(PageQuery)))
