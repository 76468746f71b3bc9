"""The state, its status, its counters, the interrupt flag."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.bodies import JSON_PATCH_TYPE, JSON_TYPE
from helix_sessions.api.exceptions import problem
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Count, Counters, Interrupt, Problem, Status, Version
from helix_sessions.api.responses import json_response, no_content
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.states import (
    InterruptInput,
    MergeInput,
    StateInput,
    StatusInput,
    StatusUpdateInput,
)
from helix_sessions.api.views.base import View, checked, risen
from helix_sessions.exceptions import StaleState
from helix_sessions.types import UNSET, CasMismatch, CasOk, SessionState

_PATCH_SCHEMA = {
    "type": "array",
    "items": {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]},
}


def state_from(session_id: str, given: dict[str, Any]) -> SessionState:
    """The state of a body. An omitted mode stays as it is."""
    return SessionState(**{"session_id": session_id, "agent_type": "", "mode": UNSET, **given})


class StateView(View):
    @operation("load_state", tag="state", response=SessionState, example=examples.STATE)
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Load the state."""
        self.query()
        return self.state(session_id)

    @operation(
        "save_state",
        tag="state",
        request=StateInput,
        sent=examples.OWNED_STATE,
        response=SessionState,
        example=examples.STATE,
        if_match=True,
    )
    def put(self, request: Request, session_id: str) -> HttpResponse:
        """Save a whole state, with a checkpoint. Omitted keys take their default; PATCH changes parts."""
        state = state_from(session_id, self.input(StateInput))
        saved = self.store.save_state(session_id, state, expected_version=self.expected_version(session_id))
        return self.shown(saved)

    @operation(
        "merge_custom_state",
        tag="state",
        request={JSON_TYPE: MergeInput, JSON_PATCH_TYPE: _PATCH_SCHEMA},
        sent={"writes": examples.WRITES},
        sent_as_patch=[{"op": "add", "path": "/parcel/found", "value": True}],
        response=SessionState,
        example=examples.STATE,
        if_match=True,
    )
    def patch(self, request: Request, session_id: str) -> HttpResponse:
        """Apply writes to the custom state, all or none.

        StepWrites as `application/json`, or an RFC 6902 patch as `application/json-patch+json`.
        """
        sent = self.json(JSON_TYPE, JSON_PATCH_TYPE)
        writes = sent if isinstance(sent, list) else checked(MergeInput, sent)["writes"]
        expected = self.expected_version(session_id)
        state = self.store.merge_custom_state(session_id, writes, expected_version=expected)
        return self.shown(state)


class StatusView(View):
    @operation("get_status", tag="status", response=Status, example={"status": "active", "version": 2})
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read the status."""
        self.query()
        return self.tagged(session_id, lambda head: Status(status=head.status, version=head.version))

    @operation(
        "compare_and_set_status",
        tag="status",
        request=StatusInput,
        sent={"expected_statuses": ["active"], "new_status": "paused"},
        response=CasOk,
        example={"ok": True, "new_version": 3},
        also={409: Problem},
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Set the status if it is one of those expected; 409 says what it is instead."""
        expected = self.expected_version(session_id)
        given = self.input(StatusInput)
        result = self.store.compare_and_set_status(
            session_id,
            given.pop("expected_statuses"),
            given.pop("new_status"),
            expected_version=expected,
            **given,
        )
        if not isinstance(result, CasMismatch):
            return json_response(result, version=result.new_version)
        status, version = result.current_status, result.current_version
        if expected is not None and expected != version:
            raise StaleState(expected_version=expected, current_version=version, current_status=status)
        detail = f"The session is {status} at version {version}."
        return problem(409, "status_mismatch", detail, current_status=status, current_version=version)

    @operation(
        "update_status",
        tag="status",
        request=StatusUpdateInput,
        sent={"status": "failed", "error": "The model did not answer.", "failure_reason": "model"},
        response=Version,
        example={"version": 3},
        if_match=True,
    )
    def put(self, request: Request, session_id: str) -> HttpResponse:
        """Set the status, regardless of the present one."""
        given = self.input(StatusUpdateInput)
        version = self.store.update_status(
            session_id, given.pop("status"), expected_version=self.expected_version(session_id), **given
        )
        return json_response(Version(version=version), version=version)


class CountersView(View):
    @operation(
        "get_counters",
        tag="counters",
        response=Counters,
        example={"step_count": 1, "resume_count": 0, "version": 2},
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read the counters."""
        self.query()
        return self.tagged(
            session_id,
            lambda head: Counters(
                step_count=head.step_count, resume_count=head.resume_count, version=head.version
            ),
        )


_counting = partial(operation, tag="counters", response=Count, etag=False, if_match=True)


class CountingView(View):
    """A view that increments a counter."""

    def count(self, session_id: str, increment: Callable[..., int]) -> HttpResponse:
        expected = self.expected_version(session_id)
        value = increment(session_id, expected_version=expected)
        return json_response(Count(value=value), version=risen(expected))


class StepCounterView(CountingView):
    @_counting("increment_step_count", example={"value": 2})
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Count one step."""
        return self.count(session_id, self.store.increment_step_count)


class ResumeCounterView(CountingView):
    @_counting("increment_resume_count", example={"value": 1})
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Count one resume."""
        return self.count(session_id, self.store.increment_resume_count)


class InterruptView(View):
    @operation(
        "peek_interrupt_flag",
        tag="interrupt",
        response=Interrupt,
        example=examples.INTERRUPT,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Read the flag without clearing it."""
        self.query()
        return self.tagged(
            session_id, lambda _: Interrupt(interrupt=self.store.peek_interrupt_flag(session_id))
        )

    @operation(
        "set_interrupt_flag",
        tag="interrupt",
        request=InterruptInput,
        sent={"reason": "The user left."},
        response=Version,
        example={"version": 3},
        if_match=True,
    )
    def put(self, request: Request, session_id: str) -> HttpResponse:
        """Ask the driver of the session to stop."""
        given = self.input(InterruptInput)
        expected = self.expected_version(session_id)
        version = self.store.set_interrupt_flag(session_id, **given, expected_version=expected)
        return json_response(Version(version=version), version=version)

    @operation("clear_interrupt_flag", tag="interrupt", status=204, if_match=True)
    def delete(self, request: Request, session_id: str) -> HttpResponse:
        """Withdraw the request."""
        expected = self.expected_version(session_id)
        return no_content(self.store.clear_interrupt_flag(session_id, expected_version=expected))


class TakeInterruptView(View):
    @operation(
        "take_interrupt_flag",
        tag="interrupt",
        response=Interrupt,
        example=examples.INTERRUPT,
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Read and clear the flag at once: of N callers exactly one gets it."""
        expected = self.expected_version(session_id)
        taken = self.store.check_interrupt_flag(session_id, expected_version=expected)
        return json_response(Interrupt(interrupt=taken), version=risen(expected, taken is not None))
