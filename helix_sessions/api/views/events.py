"""The event log. Events come without a new version too, so the tag of a range is that of the log's end."""

from collections.abc import Callable
from dataclasses import replace

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples, private_state
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.pagination import links, page_response
from helix_sessions.api.responses import events_text, json_response, text_response
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.events import EventInput, EventsQuery
from helix_sessions.api.views.base import View
from helix_sessions.content import documents
from helix_sessions.types import EventRecord, EventTexts, Page, ProjectedMessage

_RANGE = (
    Query("from_seq", "From this number on; not with `cursor`.", int),
    Query("to_seq", "Up to this number, without it.", int),
    Query("types", "Only events of these types.", many=True),
    Query("run_id", "Only events of this run."),
    Query("turn_id", "Only events of this turn."),
)


class EventsView(View):
    def range(self, session_id: str, answer: Callable[[EventTexts], HttpResponse]) -> HttpResponse:
        """The response with the range; a 304 if the caller has it already."""
        wanted = self.query(EventsQuery)
        head = self.store.get_session_head(session_id)
        tag = f'"{head.version}.{head.head_seq}"'
        response = self.not_modified(tag)
        if response is None:
            found = self.store.get_event_texts(session_id, **wanted)
            hidden = private_state.keys_hidden_from(self.request.user)
            if hidden:
                shown = [private_state.event_text(text, hidden) for text in found.texts]
                found = replace(found, texts=shown)
            response = answer(found)
            response["ETag"] = tag
        return response

    @listing(
        "get_events",
        tag="events",
        response=Page[EventRecord],
        example=examples.EVENT,
        query=_RANGE,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read a range of the log, oldest first."""
        return self.range(
            session_id,
            lambda found: text_response(events_text(found), headers=links(request, found.next_cursor)),
        )

    @operation(
        "emit_event",
        tag="events",
        request=EventInput,
        sent={"type": "tool_called", "data": {"tool_call_id": "call-1", "name": "track"}},
        response=EventRecord,
        status=201,
        example=examples.EVENT,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Append an event. A message type with `data.content` is a message too."""
        given = self.input(EventInput)
        self.check_version(session_id)
        return json_response(self.store.emit_event(session_id, given.pop("type"), **given), status=201)


class ProjectionView(EventsView):
    http_method_names = ["get", "head", "options"]

    @listing(
        "project_messages",
        tag="events",
        response=Page[ProjectedMessage],
        example=examples.PROJECTED_MESSAGE,
        query=_RANGE,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """The classic message history out of a range of the log; a page is a range of its own."""

        def projected(found: EventTexts) -> HttpResponse:
            events = [EventRecord(**record) for record in documents.load_all(found.texts)]
            page = Page(items=self.store.project_messages(events), next_cursor=found.next_cursor)
            return page_response(request, page)

        return self.range(session_id, projected)
