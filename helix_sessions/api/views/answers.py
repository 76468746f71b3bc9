"""Answers of people without an account. A user who may change the session creates a link to one call."""

from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import AnswerLink, Outcome
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.turns import AnswerInput, AnswerLinkInput
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.store import SessionStore
from helix_sessions.types import AskedCall


class AnswerLinksView(View):
    @operation(
        "create_answer_link",
        tag="answers",
        request=AnswerLinkInput,
        sent={"tool_call_id": "call-1", "lifetime_seconds": 3600},
        response=AnswerLink,
        status=201,
        example=examples.ANSWER_LINK,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Create a link whose holder can answer one pending call, and do nothing else."""
        given = self.input(AnswerLinkInput)
        seconds = given.get("lifetime_seconds")
        lifetime = None if seconds is None else timedelta(seconds=min(seconds, 10**9))
        link = self.store.create_answer_link(
            session_id, given["tool_call_id"], lifetime=lifetime, may_edit=given.get("may_edit", False)
        )
        url = self.address("answer", link.token)
        return json_response(AnswerLink(token=link.token, url=url, expires_at=link.expires_at), status=201)


class AnswerView(View):
    """Authorizes the holder of a token. Every invalid token is 404."""

    authentication_classes = []
    permission_classes = [AllowAny]
    follows_project = False
    max_body_bytes = 2 * 1024 * 1024

    def rate_scope(self, request: Request) -> str:
        return "answer"

    def check_policy(self, request: Request, verb: str, session_id: str | None) -> None:
        """Ask the token alone."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        response["Referrer-Policy"] = "no-referrer"
        return response

    @operation(
        "read_answer_link",
        tag="answers",
        response=AskedCall,
        example=examples.ASKED_CALL,
        etag=False,
        public=True,
    )
    def get(self, request: Request, token: str) -> HttpResponse:
        """Read the question to the holder of a link."""
        self.query()
        return json_response(SessionStore(conf.API_DATABASE).read_answer_link(token))

    @operation(
        "submit_by_answer_link",
        tag="answers",
        request=AnswerInput,
        sent={"approved": True},
        response=Outcome,
        example={"outcome": "accepted"},
        etag=False,
        public=True,
    )
    def post(self, request: Request, token: str) -> HttpResponse:
        """Answer the call. The first answer is `accepted`; a retry does nothing more."""
        given = self.input(AnswerInput)
        submission = SessionStore(conf.API_DATABASE).submit_by_answer_link(token, **given)
        return json_response(Outcome(outcome=submission.outcome))
