"""The event log as it grows: server-sent events where there is an event loop, a long poll elsewhere.

The view is a plain function, so that it runs under every server: a stream is the body of the response, which
ASGI iterates on the event loop, and under WSGI nothing of asyncio is used.
"""

import asyncio
import copy
import json
from collections.abc import Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import urlencode
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import Throttled, ValidationError
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from helix_sessions.api import examples, private_state, streams, tickets
from helix_sessions.api.audit import REQUEST_ID
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Polled, StreamTicket
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import Query, operation
from helix_sessions.api.serializers.events import StreamQuery
from helix_sessions.api.throttles import RATE_LIMIT
from helix_sessions.api.tickets import PARAMETER, TicketAuthentication
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.exceptions import EventsArchived
from helix_sessions.store.engine.inputs import MAX_INTEGER
from helix_sessions.stream import slots, sse
from helix_sessions.stream.readers import Readers

_checkers = Readers()
"""Checks the permissions of open streams, on other threads than those that read for them."""


class EventStreamRenderer(BaseRenderer):
    """Lets browsers ask for a stream; what is streamed is not rendered by it."""

    media_type = sse.CONTENT_TYPE
    format = "sse"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b""


class Admitted(HttpResponse):
    """The result of authorizing a reader. It is never sent."""

    def __init__(self, request: streams.Request | None = None) -> None:
        super().__init__()
        self.request = request


class StreamView(View):
    """The part of a stream that is like any request: authorization and parameters."""

    authentication_classes = [TicketAuthentication, *View.authentication_classes]

    http_method_names = ["get", "head", "options"]
    renderer_classes = [EventStreamRenderer, JSONRenderer]
    again = False
    """Whether an open stream is checked: nothing is counted."""

    def get_throttles(self) -> list[Any]:
        return [] if self.again else super().get_throttles()

    @operation(
        "follow_events",
        tag="events",
        response=Polled,
        example={"items": [examples.EVENT], "after": 6, "closed": False},
        frames=sse.named("tool_called", sse.numbered(6, json.dumps(examples.EVENT))).decode(),
        also={204: None},
        query=(
            Query("after", "Start after the event with this number; without it at the head.", int),
            Query("types", "Only these types of events.", many=True),
            Query("run", "Only the events of this run; the stream ends with it.", str),
            Query("named", "`false` leaves `event:` out.", bool),
            Query("wait", "Long poll: answer once, after this many seconds at the latest.", float),
        ),
        etag=False,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Follow the log from an event on, as server-sent events.

        It is a long poll with `wait`, under WSGI, and for clients that accept only JSON. 204 when the run is
        over and its last event was seen.
        """
        if self.again:
            self.store.get_session_head(session_id)
            return Admitted()
        wanted = self.query(StreamQuery, besides=(PARAMETER,))
        after = _last_event_id(request, wanted.get("after"))
        until, run_id = None, wanted.get("run")
        if run_id is not None:
            run = self.store.get_run(session_id, run_id)
            until = run.end_sequence
            after = run.start_sequence if after is None else max(after, run.start_sequence)
            if until is not None and after >= until:
                return HttpResponse(status=204)  # tells a browser not to reconnect
        head = self.store.get_session_head(session_id)
        if after and after < head.first_seq - 1:
            raise EventsArchived(first_available_seq=head.first_seq)
        if request.method == "HEAD":
            return HttpResponse(content_type=sse.CONTENT_TYPE, headers=sse.HEADERS)
        slot = slots.take(request.user.pk, conf.STREAMS_PER_USER)
        if slot is None:
            raise TooManyStreams
        as_json = isinstance(request.accepted_renderer, JSONRenderer)
        return Admitted(
            streams.Request(
                session_id=session_id,
                after=head.head_seq if after is None else after,
                types=frozenset(wanted["types"]) if "types" in wanted else None,
                run_id=run_id,
                until=until,
                named=wanted["named"],
                as_json=as_json,
                wait=_wait(request, wanted.get("wait"), as_json),
                hidden=tuple(private_state.keys_hidden_from(request.user)),
                slot=slot,
            )
        )


class StreamTicketsView(View):
    @operation(
        "create_stream_ticket",
        tag="events",
        response=StreamTicket,
        status=201,
        example=examples.STREAM_TICKET,
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Get a read-only address that a browser's `EventSource` opens without a login, for a short time."""
        self.store.get_session_head(session_id)
        ticket, expires_at = tickets.issue(request.user, session_id)
        url = f"{self.address('event-stream', session_id)}?{urlencode({PARAMETER: ticket})}"
        headers = {"Cache-Control": "no-store"}
        return json_response(StreamTicket(url=url, expires_at=expires_at), status=201, headers=headers)


class TooManyStreams(Throttled):
    default_detail = "This user has too many streams open."
    default_code = "too_many_streams"

    def __init__(self) -> None:
        super().__init__(wait=streams.RETRY_SECONDS)


def _last_event_id(request: Request, after: int | None) -> int | None:
    """A reader that reconnects sends its place, which overrides the place in the URL."""
    given = request.headers.get("Last-Event-ID", "").strip()
    if not given:
        return after
    if not (given.isascii() and given.isdigit() and int(given) <= MAX_INTEGER):
        raise ValidationError({"Last-Event-ID": ["This is not the number of an event."]})
    return int(given)


def _wait(request: Request, seconds: float | None, as_json: bool) -> float | None:
    if seconds is None and not as_json and isinstance(request._request, ASGIRequest):
        return None
    return streams.WAIT_SECONDS if seconds is None else min(seconds, streams.WAIT_SECONDS)


_KEPT = (REQUEST_ID, *RATE_LIMIT)
"""Headers of the admission that a stream answers with."""

_admit = StreamView.as_view()
_admit_again = StreamView.as_view(again=True)


@csrf_exempt
@non_atomic_requests
def event_stream(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """Server-sent events; a long poll under WSGI, with `?wait=`, and for clients that accept only JSON."""
    answer = _admit(request, session_id=session_id)
    if not isinstance(answer, Admitted) or answer.request is None:
        return answer
    answer.request.headers.update((name, answer[name]) for name in _KEPT if name in answer)
    if not isinstance(request, ASGIRequest):
        return streams.long_poll_in_thread(answer.request, alone=not request.META.get("wsgi.multithread"))
    # A ticket opens the stream; it need not be valid for as long as the stream is open.
    request.helix_ticket_admitted = True  # type: ignore[attr-defined]
    if answer.request.wait is not None:
        return streams.LongPoll(answer.request)

    async def may_go_on() -> bool:
        return await asyncio.wrap_future(recheck(request, session_id))

    return StreamingHttpResponse(
        streams.EventStream(answer.request, may_go_on),
        content_type=sse.CONTENT_TYPE,
        headers={**answer.request.headers, **sse.HEADERS},
    )


@csrf_exempt
@non_atomic_requests
def alias(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """The same at another address, which the schema leaves out."""
    return event_stream(request, session_id)


# What the schema describes.
event_stream.cls, event_stream.initkwargs = StreamView, {}  # type: ignore[attr-defined]


def recheck(request: HttpRequest, session_id: str) -> "Future[bool]":
    """Whether the user of an open stream may still follow the session."""
    return _checkers.submit(lambda: _is_admitted(request, session_id))


def _is_admitted(request: HttpRequest, session_id: str) -> bool:
    return isinstance(_admit_again(_afresh(request), session_id=session_id), Admitted)


def _afresh(request: HttpRequest) -> HttpRequest:
    """A copy of the request without its cached user, as one that reads."""
    again = copy.copy(request)
    again.method = "GET"
    vars(again).pop("_cached_user", None)
    session = getattr(request, "session", None)
    if session is not None:
        engine = import_module(settings.SESSION_ENGINE)
        again.session = engine.SessionStore(session.session_key)
        again.user = get_user(again)
    return again
