"""Turns: begin, suspend, resume, rewind; and the end of a child."""

from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from helix_sessions.api import examples, fences
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Scheduled
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.turns import (
    ResumeInput,
    RewindInput,
    SettlementInput,
    SuspensionInput,
    TurnInput,
)
from helix_sessions.api.views.base import View
from helix_sessions.api.views.inbox import scheduled
from helix_sessions.api.views.states import state_from
from helix_sessions.runtime.agents import is_driven_here
from helix_sessions.types import CommitResult, Resumption, SessionState, Turn


class TurnsView(View):
    creates_sessions = True

    @operation(
        "begin_turn",
        tag="turns",
        request=TurnInput,
        sent={"message": "Where is my parcel?", "agent_type": "support"},
        response=Turn,
        status=201,
        example=examples.TURN,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Begin a turn: of a new session, of a branch, or of a session that exists, which is continued.

        409 while a run is running, and while the session waits.
        """
        given = self.input(TurnInput)
        turn = self.store.begin_turn(session_id, **given, expected_version=self.expected_version(session_id))
        return json_response(self.visible(turn), status=201, version=turn.state.version)


class SuspendView(View):
    @operation(
        "suspend",
        tag="turns",
        request=SuspensionInput,
        sent=examples.SUSPENSION,
        response=CommitResult,
        example=examples.COMMITTED,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Commit the step with the results that are ready, and let the rest wait.

        A caller that lost the response retries the request with the same `checkpoint_meta.checkpoint_id`.
        """
        given = self.input(SuspensionInput)
        result = self.store.suspend(
            session_id,
            given.pop("kind"),
            state=state_from(session_id, given.pop("state")),
            **given,
            expected_version=self.expected_version(session_id),
        )
        return json_response(result, version=result.version)


class ResumeView(View):
    @operation(
        "resume",
        tag="turns",
        request=ResumeInput,
        sent={"run_id": "run-2"},
        response=Resumption,
        also={202: Scheduled},
        also_example=examples.SCHEDULED,
        example=examples.RESUMPTION,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Resume a session that is suspended, interrupted or paused: of N callers exactly one does.

        409 `still_waiting` names what is missing. It is for a driver that executes the run itself, under
        its lease (`Helix-Fence`), so that no run is left without an owner. Without one, a session whose
        type `AGENTS` names is left to a worker: a run is requested (202), and a message is admitted to the
        inbox. Any other request without a lease is refused with 400.
        """
        given = self.input(ResumeInput)
        if fences.fence_of(request) is None:
            if is_driven_here(self.store.get_session_head(session_id).agent_type):
                return self._request_run(session_id, given.get("message"))
            raise ParseError(fences.NEEDED)
        resumed = self.store.resume(session_id, **given, expected_version=self.expected_version(session_id))
        return json_response(self.visible(resumed), version=resumed.state.version)

    def _request_run(self, session_id: str, message: Any) -> HttpResponse:
        version = self.expected_version(session_id)
        if message is not None:
            self.store.admit_input(session_id, message, expected_version=version)
            version = None
        return scheduled(self.store.request_run(session_id, expected_version=version))


class RewindView(View):
    @operation(
        "rewind",
        tag="turns",
        request=RewindInput,
        sent={"checkpoint_id": examples.CHECKPOINT_ID},
        response=SessionState,
        example=examples.STATE,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Rewind state and transcript to a checkpoint, by default the latest."""
        given = self.input(RewindInput)
        state = self.store.rewind(session_id, **given, expected_version=self.expected_version(session_id))
        return self.shown(state)


class ChildView(View):
    @operation(
        "settle_child",
        tag="turns",
        request=SettlementInput,
        sent={"status": "completed", "output": {"found": True}},
        status=204,
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str, child_id: str) -> HttpResponse:
        """End a sub-session, and settle its parent's wait for it. Idempotent.

        `If-Match` is the version of the child.
        """
        given = self.input(SettlementInput)
        self.store.settle_child(
            child_id,
            given.pop("status"),
            **given,
            parent_session_id=session_id,
            expected_version=self.expected_version(child_id),
        )
        return no_content()
