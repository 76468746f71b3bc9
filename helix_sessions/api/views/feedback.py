"""What people think of answers."""

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.messages import FeedbackInput
from helix_sessions.api.views.base import View
from helix_sessions.types import Feedback, Page


class FeedbackListView(View):
    @operation(
        "list_feedback",
        tag="messages",
        response=Page[Feedback],
        example={"items": [examples.FEEDBACK], "next_cursor": None},
        etag=False,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List what people think of the answers of a session."""
        self.query()
        return json_response(Page(items=self.store.list_feedback(session_id), next_cursor=None))


class FeedbackView(View):
    @operation(
        "give_feedback",
        tag="messages",
        request=FeedbackInput,
        sent={"rating": "up", "comment": "Quick and right."},
        response=Feedback,
        example=examples.FEEDBACK,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str, position: int) -> HttpResponse:
        """Say what you think of an answer, in place of what you said before."""
        given = self.input(FeedbackInput)
        rating = given.pop("rating")
        kept = self.store.give_feedback(session_id, position, rating, by=_author(request.user), **given)
        return json_response(kept)

    @operation("withdraw_feedback", tag="messages", status=204, etag=False)
    def delete(self, request: Request, session_id: str, position: int) -> HttpResponse:
        """Take back what you said of an answer."""
        self.query()
        self.store.give_feedback(session_id, position, None, by=_author(request.user))
        return no_content()


def _author(user: Any) -> str:
    return "" if user is None or user.pk is None else str(user.pk)
