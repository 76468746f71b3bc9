"""References to sub-sessions."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Version
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import listing, operation
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.serializers.turns import RefChangesInput, RefsInput
from helix_sessions.api.views.base import View, risen
from helix_sessions.types import Page, SubSessionRef


class SubSessionsView(View):
    @listing(
        "get_sub_session_refs",
        tag="sub-sessions",
        response=Page[SubSessionRef],
        example=examples.STORED_REF,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List the references to sub-sessions, in the order they were added."""
        page = self.query(PageQuery)
        return self.tagged(session_id, lambda _: self.store.list_sub_session_refs(session_id, **page))

    @operation(
        "add_sub_session_refs",
        tag="sub-sessions",
        request=RefsInput,
        sent={"refs": [examples.REF]},
        response=Version,
        status=201,
        example={"version": 3},
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Add references to sub-sessions. Idempotent for equal references."""
        refs = self.input(RefsInput)["refs"]
        expected = self.expected_version(session_id)
        version = self.store.add_sub_session_refs(session_id, refs, expected_version=expected)
        return json_response(Version(version=version), status=201, version=version)


class SubSessionView(View):
    @operation(
        "update_sub_session_ref",
        tag="sub-sessions",
        request=RefChangesInput,
        sent={"status": "completed", "result": {"found": True}},
        response=SubSessionRef,
        example={**examples.STORED_REF, "status": "completed", "result": {"found": True}},
        etag=False,
        if_match=True,
    )
    def patch(self, request: Request, session_id: str, sub_session_id: str) -> HttpResponse:
        """Change a reference to a sub-session."""
        changes = self.input(RefChangesInput)
        expected = self.expected_version(session_id)
        ref = self.store.update_sub_session_ref(
            session_id, sub_session_id, expected_version=expected, **changes
        )
        return json_response(ref, version=risen(expected, bool(changes)))
