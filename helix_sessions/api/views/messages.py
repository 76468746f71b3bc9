"""The transcript."""

from django.http import HttpResponse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import MessageCount, MessagePage, Removed
from helix_sessions.api.pagination import links
from helix_sessions.api.responses import json_response, messages_text, text_response
from helix_sessions.api.schema import PAGE, Query, operation
from helix_sessions.api.serializers.messages import MessagesInput, MessagesQuery, TruncateInput
from helix_sessions.api.views.base import View, risen
from helix_sessions.types import AppendResult


class MessagesView(View):
    @operation(
        "get_messages",
        tag="messages",
        response=MessagePage,
        example={"items": examples.MESSAGES, "total": 2, "next_cursor": None},
        query=(
            *PAGE,
            Query("offset", "How many to skip, from the end the page starts at; not with `cursor`.", int),
            Query("newest_first", "Begin at the end.", bool),
        ),
        linked=True,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read a page of the transcript, each message exactly as it was appended."""
        wanted = self.query(MessagesQuery)
        if "cursor" in wanted and "offset" in wanted:
            raise ValidationError({"offset": ["A cursor knows its place; it takes no offset."]})
        unchanged = self.unchanged(session_id)
        if unchanged is not None:
            return unchanged
        page = self.store.get_message_texts(session_id, **wanted)
        headers = links(request, page.next_cursor)
        return text_response(messages_text(page), version=page.version, headers=headers)

    @operation(
        "append_messages",
        tag="messages",
        request=MessagesInput,
        sent={"messages": examples.MESSAGES},
        response=AppendResult,
        status=201,
        example={"first_position": 0, "message_count": 2, "version": 2, "head_seq": 3},
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Append messages."""
        given = self.input(MessagesInput)
        expected = self.expected_version(session_id)
        appended = self.store.append_messages(
            session_id, given.pop("messages"), **given, expected_version=expected
        )
        return json_response(appended, status=201, version=appended.version)


class MessageCountView(View):
    @operation(
        "get_message_count",
        tag="messages",
        response=MessageCount,
        example={"message_count": 2},
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """How many messages the transcript has."""
        self.query()
        return self.tagged(session_id, lambda head: MessageCount(message_count=head.message_count))


class TruncateView(View):
    @operation(
        "truncate_messages",
        tag="messages",
        request=TruncateInput,
        sent={"count": 1},
        response=Removed,
        example={"removed": 1},
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Keep the first messages only. The others stay readable in the event log."""
        count = self.input(TruncateInput)["count"]
        expected = self.expected_version(session_id)
        removed = self.store.truncate_messages(session_id, count, expected_version=expected)
        return json_response(Removed(removed=removed), version=risen(expected, removed > 0))
