"""Answers to tool calls that wait."""

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples, tool_answers
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.turns import ToolResultInput
from helix_sessions.api.views.base import View, risen
from helix_sessions.types import Submission


class ToolResultsView(View):
    @operation(
        "submit_tool_result",
        tag="turns",
        request=ToolResultInput,
        sent={"tool_call_id": "call-1", "approved": True, "approval_id": "refund-1"},
        response=Submission,
        example=examples.SUBMISSION,
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Answer a tool call of the session, or of any session of the tree whose root it is.

        The first answer is `accepted`. `If-Match` is the version of the session whose call it is. With the
        last answer that session is runnable, and a worker resumes it. A participant decides on calls whose
        `approver` is `participant`, and has an approval remembered for the session only.
        """
        given = self.input(ToolResultInput)
        expected = self.expected_version(session_id)
        call_id = given.pop("tool_call_id")
        submission = tool_answers.submit(
            self.store, request.user, session_id, call_id, expected_version=expected, **given
        )
        return json_response(submission, version=risen(expected, submission.outcome == "accepted"))
