"""Fragments for live readers, and crash recovery."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.events import FragmentInput
from helix_sessions.api.views.base import View
from helix_sessions.types import Wake


class WakeView(View):
    @operation(
        "wake",
        tag="events",
        response=Wake,
        example={"prior_head": 5, "head_seq": 9},
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Recover a session whose worker died: its run is closed, its open tool calls are failed."""
        return json_response(self.store.wake(session_id))


class FragmentsView(View):
    @operation(
        "publish_fragment",
        tag="events",
        request=FragmentInput,
        sent={"data": {"text": "Your par"}},
        status=204,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Send a fragment to the live readers of the session. Nothing is stored."""
        self.store.publish_fragment(session_id, self.input(FragmentInput)["data"])
        return no_content()
