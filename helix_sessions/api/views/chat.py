"""A chat of the AI SDK (`useChat`) over a session: its inbox, its log, its waiting calls."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from rest_framework.exceptions import NotAcceptable, ValidationError
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.frontends import ai_sdk, answers, following
from helix_sessions.api.frontends.following import Answer
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import UIMessage
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import etag
from helix_sessions.api.schema import listing, operation
from helix_sessions.api.serializers.chat import ChatInput, UIMessageInput, UIPartInput
from helix_sessions.api.serializers.inbox import StopInput
from helix_sessions.api.serializers.pages import PageQuery
from helix_sessions.api.views.base import View, checked
from helix_sessions.api.views.inbox import stop_driver
from helix_sessions.api.views.stream import EventStreamRenderer, TooManyStreams, recheck
from helix_sessions.conf import conf
from helix_sessions.messages.narration import ANSWER_SUFFIX, answer_id, message_id
from helix_sessions.store import SessionStore
from helix_sessions.store.transcript import exchanges
from helix_sessions.stream import slots
from helix_sessions.stream.slots import Slot
from helix_sessions.types import Delivery, Page, RunOutcome


class FrontView(View):
    """What the views of front ends share."""

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Clients may ask for the type of the stream, which is what most answers are."""
        try:
            return super().perform_content_negotiation(request, force)
        except NotAcceptable:
            return self.get_content_negotiator().select_renderer(request, [EventStreamRenderer()])

    def slot(self) -> Slot:
        """A place for one more open stream of this user."""
        slot = slots.take(self.request.user.pk, conf.STREAMS_PER_USER)
        if slot is None:
            raise TooManyStreams
        return slot

    def respond(self, answer: Answer) -> HttpResponseBase:
        """The answer, as it is given."""
        request: HttpRequest = self.request._request
        session_id = answer.session_id

        def may_go_on() -> Awaitable[bool]:
            return asyncio.wrap_future(recheck(request, session_id))

        return following.respond(request, answer, may_go_on)


def whole_store() -> SessionStore:
    """The store of a session that was found to be the user's to see."""
    return SessionStore(conf.API_DATABASE)


class ChatView(FrontView):
    @listing(
        "get_chat",
        tag="front ends",
        response=Page[UIMessage],
        example=examples.UI_MESSAGE,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read the chat as the initial messages of `useChat`: the newest page, in the order of the chat."""
        query = self.query(PageQuery)
        head = self.store.get_session_head(session_id)
        unchanged = self.not_modified(etag(head.version))
        if unchanged is not None:
            return unchanged
        page = ai_sdk.history(whole_store(), session_id, query["limit"], query.get("cursor"))
        return page_response(request, page, version=head.version)

    @operation(
        "send_chat_message",
        tag="front ends",
        request=ChatInput,
        sent=examples.CHAT,
        etag=False,
        streams=True,
    )
    def post(self, request: Request, session_id: str) -> HttpResponseBase:
        """Send a message, or the answers to calls, and follow the answer as a UI message stream.

        The id of the message is the input id: sent again, it is followed again. Closing the connection
        stops nothing. The policy is asked for `admit_input`, `submit_tool_result` or `regenerate_answer` too.
        """
        given = self.input(ChatInput)
        head = self.store.get_session_head(session_id)
        slot = self.slot()
        try:
            if given.get("trigger") == "regenerate-message":
                answer = self._regenerate(session_id, given, slot)
            else:
                answer = self._submit(session_id, head.head_seq, given, slot)
        except BaseException:
            slot.release()
            raise
        return self.respond(answer)

    def _regenerate(self, session_id: str, given: dict[str, Any], slot: Slot) -> Answer:
        self.check_policy(self.request, "regenerate_answer", session_id)
        wanted = given.get("messageId")
        asked = None if wanted is None else wanted.removesuffix(ANSWER_SUFFIX)
        state = self.store.regenerate(session_id, asked)
        exchange = exchanges.find(whole_store(), session_id)
        return _follow(session_id, exchange, slot, after=state.head_seq)

    def _submit(self, session_id: str, head: int, given: dict[str, Any], slot: Slot) -> Answer:
        if not given["messages"]:
            raise ValidationError({"messages": ["There is no message."]})
        last = checked(UIMessageInput, given["messages"][-1])
        parts = [checked(UIPartInput, part) for part in last["parts"]]
        if last["role"] == "user":
            return self._say(session_id, last["id"], parts, given.get("delivery", "steer"), slot)
        waiting = following.standing(session_id).waiting
        calls = {call.call_id for call in waiting}
        found = list(answers.of_parts(parts, calls, given.get("arguments", {})))
        self.check_policy(self.request, "submit_tool_result", session_id)
        asked = last["id"].removesuffix(ANSWER_SUFFIX)
        whole = whole_store()
        exchange = exchanges.find(whole, session_id, message_id=asked) or exchanges.find(whole, session_id)
        if found:
            answers.submit(self.store, self.request.user, session_id, found)
            answer = _follow(session_id, exchange, slot, after=head)
        else:
            decided = answers.decided_at(whole, session_id, parts, exchange)
            if decided is not None:  # by another tab, or by a click before: it is told what followed
                return _follow(session_id, exchange, slot, after=decided - 1, replayed_to=head)
            answer = _follow(session_id, exchange, slot, after=head)
        now = following.standing(session_id)
        if not now.is_under_way and not (found and following.has_ended_since(session_id, head)):
            front = answer.front
            nothing = front.end("failed", "Nothing waits for this answer.")
            answer.ending = front.waits(now.waiting) if now.waiting else nothing
        return answer

    def _say(
        self, session_id: str, input_id: str, parts: list[dict[str, Any]], delivery: Delivery, slot: Slot
    ) -> Answer:
        self.check_policy(self.request, "admit_input", session_id)
        receipt = self.store.admit_input(
            session_id, ai_sdk.prompt_of(parts), input_id=input_id, delivery=delivery
        )
        front = ai_sdk.UIMessageStream(answer_id(input_id))
        if receipt.promoted_seq is not None:
            exchange = exchanges.find(whole_store(), session_id, message_id=input_id)
            head = self.store.get_session_head(session_id).head_seq
            return _follow(session_id, exchange, slot, after=receipt.promoted_seq, replayed_to=head)
        answer = Answer(
            session_id=session_id, after=receipt.admitted_seq, input_id=input_id, front=front, slot=slot
        )
        rest = following.at_rest(session_id, input_id)
        if rest is not None:  # it waits for answers, or for an operator who lets it go on
            error = "The session is paused." if rest.status == "paused" else ""
            answer.ending = front.end("waiting", error)
        return answer


class ChatStreamView(FrontView):
    @operation("follow_chat", tag="front ends", also={204: None}, etag=False, streams=True)
    def get(self, request: Request, session_id: str, chat_id: str) -> HttpResponseBase:
        """Follow the answer under way from its start, as `resumeStream` does; 204 when there is none."""
        head = self.store.get_session_head(session_id)
        now = following.standing(session_id)
        if not now.is_under_way:
            return HttpResponse(status=204)
        slot = self.slot()
        store = whole_store()
        pending = store.list_inputs(session_id)
        if pending and store.get_occupancy(session_id).run_id is None:
            waiting = pending[-1]
            front = ai_sdk.UIMessageStream(answer_id(waiting.input_id))
            answer = Answer(
                session_id=session_id,
                after=waiting.admitted_seq,
                input_id=waiting.input_id,
                front=front,
                slot=slot,
            )
        else:
            answer = _follow(session_id, exchanges.find(store, session_id), slot, replayed_to=head.head_seq)
        return self.respond(answer)


class ChatStopView(View):
    @operation(
        "stop_chat",
        tag="front ends",
        request=StopInput,
        sent={"timeout": 10},
        response=RunOutcome,
        example={"kind": "idle", "run": None, "output": None, "error": None},
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Stop the answer under way, as `run/interrupt/` does. What was said so far is kept."""
        return stop_driver(self, session_id)


def _follow(
    session_id: str,
    exchange: exchanges.Exchange | None,
    slot: Slot,
    *,
    after: int | None = None,
    replayed_to: int = 0,
) -> Answer:
    """The answer to a message, from its start or from a later event on."""
    asked = "message-0" if exchange is None else message_id(exchange.message, exchange.position)
    start = 0 if exchange is None else exchange.answered_from
    return Answer(
        session_id=session_id,
        after=start if after is None else after,
        front=ai_sdk.UIMessageStream(answer_id(asked)),
        slot=slot,
        replayed_to=replayed_to,
    )
