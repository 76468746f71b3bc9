"""AG-UI 1.0 over a session: its inbox, its log, its waiting calls."""

from typing import Any

from django.http import HttpResponseBase
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from helix_sessions.api import examples, private_state
from helix_sessions.api.frontends import ag_ui, answers, following
from helix_sessions.api.frontends.following import Answer
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.chat import RunAgentInput
from helix_sessions.api.views.chat import FrontView, whole_store
from helix_sessions.store.transcript import exchanges
from helix_sessions.stream.slots import Slot


class AGUIView(FrontView):
    @operation("follow_ag_ui", tag="front ends", etag=False, streams=True)
    def get(self, request: Request, session_id: str) -> HttpResponseBase:
        """Follow the session: its state and messages, and the answer under way from its start."""
        head = self.store.get_session_head(session_id)
        now = following.standing(session_id)
        front, slot = self._front(session_id, {}), self.slot()
        exchange = exchanges.find(whole_store(), session_id) if now.is_under_way else None
        front.open_with_snapshot(None if exchange is None else exchange.position + 1)
        after = 0 if exchange is None else exchange.answered_from
        answer = Answer(session_id=session_id, after=after, front=front, slot=slot, replayed_to=head.head_seq)
        if not now.is_under_way:
            answer.ending = front.waits(now.waiting) if now.waiting else front.end("completed", "")
        return self.respond(answer)

    @operation(
        "run_ag_ui", tag="front ends", request=RunAgentInput, sent=examples.AG_UI, etag=False, streams=True
    )
    def post(self, request: Request, session_id: str) -> HttpResponseBase:
        """Run the agent with the last message of the input, or with the answers in its `resume`.

        While calls are open, `resume` has to answer all of them; otherwise the stream is a `RUN_ERROR`, and
        nothing is stored. The policy is asked for `admit_input` or `submit_tool_result` too.
        """
        given = self.input(RunAgentInput)
        head = self.store.get_session_head(session_id)
        slot = self.slot()
        try:
            answer = self._answer(session_id, head.head_seq, given, slot)
        except BaseException:
            slot.release()
            raise
        return self.respond(answer)

    def _answer(self, session_id: str, head: int, given: dict[str, Any], slot: Slot) -> Answer:
        front = self._front(session_id, given)
        answer = Answer(session_id=session_id, after=head, front=front, slot=slot)
        waiting = following.standing(session_id).waiting
        try:
            if waiting or given.get("resume"):
                found = ag_ui.resumed(waiting, given.get("resume") or ())
                self.check_policy(self.request, "submit_tool_result", session_id)
                answers.submit(self.store, self.request.user, session_id, found)
                return answer
        except ag_ui.Refused as refusal:
            answer.ending = front.end("resume_refused", str(refusal))
            return answer
        return self._say(session_id, given, front, slot)

    def _say(self, session_id: str, given: dict[str, Any], front: ag_ui.AGUIStream, slot: Slot) -> Answer:
        last = given["messages"][-1] if given["messages"] else None
        if not isinstance(last, dict):
            last = {}
        content, input_id = last.get("content"), last.get("id")
        if last.get("role") != "user" or not isinstance(input_id, str):
            raise ValidationError({"messages": ["The last message has to be one of a user, with an id."]})
        self.check_policy(self.request, "admit_input", session_id)
        prompt = content if isinstance(content, str) else {"content": content}
        receipt = self.store.admit_input(session_id, prompt, input_id=input_id)
        is_new = receipt.promoted_seq is None
        answer = Answer(
            session_id=session_id,
            after=receipt.admitted_seq if receipt.promoted_seq is None else receipt.promoted_seq,
            input_id=input_id if is_new else None,
            front=front,
            slot=slot,
            replayed_to=0 if is_new else self.store.get_session_head(session_id).head_seq,
        )
        rest = following.at_rest(session_id, input_id) if is_new else None
        if rest is not None:
            answer.ending = front.end(rest.status, f"The session is {rest.status}.")
        return answer

    def _front(self, session_id: str, given: dict[str, Any]) -> ag_ui.AGUIStream:
        hidden = private_state.keys_hidden_from(self.request.user)
        thread_id, run_id = given.get("threadId", session_id), given.get("runId", "follow")
        return ag_ui.AGUIStream(whole_store(), session_id, thread_id, run_id, hidden)
