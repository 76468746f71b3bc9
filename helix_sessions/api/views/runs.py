"""Runs."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.filters import RunFilter, narrowed, queries
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import CurrentRun
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import listing, operation
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.turns import RunInput, RunUpdateInput
from helix_sessions.api.views.base import View, risen
from helix_sessions.types import Page, Run, SessionHead


class RunsView(View):
    @listing(
        "list_runs",
        tag="runs",
        response=Page[Run],
        example=examples.RUN,
        query=queries(RunFilter),
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List the runs of a session, newest first."""
        page = self.query(PageQuery, besides=tuple(RunFilter.base_filters))

        def read(_: SessionHead) -> Page[Run]:
            rows = narrowed(RunFilter, request.query_params, self.store.query_runs(session_id))
            return self.store.page_of_runs(rows, **page)

        return self.tagged(session_id, read)

    @operation(
        "create_run",
        tag="runs",
        request=RunInput,
        sent={"run_id": "run-1"},
        response=Run,
        status=201,
        example=examples.RUN,
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Start a run; 409 while another one is running."""
        given = self.input(RunInput)
        expected = self.expected_version(session_id)
        run = self.store.create_run(session_id, **given, expected_version=expected)
        return json_response(run, status=201, version=risen(expected))


class CurrentRunView(View):
    @operation("get_current_run", tag="runs", response=CurrentRun, example={"run": examples.RUN})
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """The running run, or null."""
        self.query()
        return self.tagged(session_id, lambda _: CurrentRun(run=self.store.get_current_run(session_id)))


class RunView(View):
    @operation("get_run", tag="runs", response=Run, example=examples.RUN)
    def get(self, request: Request, session_id: str, run_id: str) -> HttpResponse:
        """Read a run."""
        self.query()
        return self.tagged(session_id, lambda _: self.store.get_run(session_id, run_id))

    @operation(
        "update_run_status",
        tag="runs",
        request=RunUpdateInput,
        sent={"status": "completed", "usage": {"tokens": 120}},
        response=Run,
        example=examples.ENDED_RUN,
        etag=False,
        if_match=True,
    )
    def patch(self, request: Request, session_id: str, run_id: str) -> HttpResponse:
        """Update a run, or end it. A run that ended never runs again."""
        given = self.input(RunUpdateInput)
        expected = self.expected_version(session_id)
        run = self.store.update_run_status(
            session_id, run_id, given.pop("status"), **given, expected_version=expected
        )
        return json_response(run, version=risen(expected))
