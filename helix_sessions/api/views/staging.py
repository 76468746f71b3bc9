"""Staged writes. Staging does not raise the version, so its responses have no `ETag`."""

from datetime import timedelta
from functools import partial

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples, scoping
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Removed
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.staging import (
    CleanupInput,
    DiscardInput,
    PromoteInput,
    StagedInput,
    StagingQuery,
)
from helix_sessions.api.views.base import View
from helix_sessions.store import SessionStore
from helix_sessions.types import CommitResult, Page, StagedChange


class StagingView(View):
    @listing(
        "get_staged_changes",
        tag="staging",
        response=Page[StagedChange],
        example=examples.STAGED,
        query=[Query("step_id", "What this step staged only.")],
        etag=False,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List what is staged, in the order it will be applied."""
        page = self.query(StagingQuery)
        return page_response(request, self.visible(self.store.list_staged_changes(session_id, **page)))


class StagedChangeView(View):
    @operation(
        "stage_changes",
        tag="staging",
        request=StagedInput,
        sent={"writes": examples.WRITES},
        response=StagedChange,
        example=examples.STAGED,
        etag=False,
    )
    def put(self, request: Request, session_id: str, step_id: str, tool_call_id: str) -> HttpResponse:
        """Stage a tool's writes for the commit of its step. A repeated call replaces them in place."""
        writes = self.input(StagedInput)["writes"]
        self.check_version(session_id)
        return json_response(
            self.visible(self.store.stage_changes(session_id, step_id, tool_call_id, writes))
        )


class PromoteView(View):
    @operation(
        "promote_staging",
        tag="staging",
        request=PromoteInput,
        sent={"step_id": "step-2"},
        response=CommitResult,
        example=examples.COMMITTED,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Apply what a step staged to the stored state, with a checkpoint."""
        given = self.input(PromoteInput)
        result = self.store.promote_staging(
            session_id,
            given["step_id"],
            given.get("checkpoint_meta"),
            expected_version=self.expected_version(session_id),
        )
        return json_response(result, version=result.version)


class DiscardView(View):
    @operation(
        "discard_staging",
        tag="staging",
        request=DiscardInput,
        sent={"step_id": "step-2"},
        response=Removed,
        example={"removed": 1},
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Discard staged writes, of one step or of all."""
        given = self.input(DiscardInput)
        self.check_version(session_id)
        return json_response(Removed(removed=self.store.discard_staging(session_id, **given)))


_cleaning = partial(
    operation,
    tag="staging",
    request=CleanupInput,
    sent={"older_than_seconds": 86400},
    response=Removed,
    example={"removed": 1},
    etag=False,
)


class CleaningView(View):
    """A view that discards old staged writes."""

    def clean(self, store: SessionStore, **which: str) -> HttpResponse:
        older_than = timedelta(seconds=self.input(CleanupInput)["older_than_seconds"])
        return json_response(Removed(removed=store.cleanup_orphaned_staging(older_than=older_than, **which)))


class CleanupView(CleaningView):
    @_cleaning("cleanup_orphaned_staging")
    @idempotent
    def post(self, request: Request) -> HttpResponse:
        """Discard old staged writes of all sessions this user may change, unless a run is running there."""
        return self.clean(scoping.changing_store(request))


class SessionCleanupView(CleaningView):
    @_cleaning("cleanup_orphaned_staging_of_session")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Discard old staged writes of one session, unless its run is running."""
        return self.clean(self.store, session_id=session_id)
