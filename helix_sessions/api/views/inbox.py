"""The inbox, and the driver of the session: notify, stop, wait."""

import time
from functools import partial

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples, streams
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Scheduled
from helix_sessions.api.pagination import page_response
from helix_sessions.api.policy import check_priority
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.inbox import AdmitInput, DeliveryInput, InputsQuery, StopInput, WaitQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.runtime.loop.runner import SessionRunner
from helix_sessions.store import SessionStore
from helix_sessions.types import InputReceipt, Occupancy, Page, RunOutcome, SessionState

_LOOK_SECONDS = 0.2


class InputsView(View):
    @listing(
        "list_inputs",
        tag="inbox",
        response=Page[InputReceipt],
        example=examples.INPUT,
        query=[Query("pending", "With `false`, all there ever were.", bool)],
        etag=False,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """List inputs in the order of their admission."""
        return page_response(request, self.store.page_of_inputs(session_id, **self.query(InputsQuery)))

    @operation(
        "admit_input",
        tag="inbox",
        request=AdmitInput,
        sent={"prompt": "Where is my parcel?", "input_id": "msg-1"},
        response=InputReceipt,
        status=201,
        example=examples.INPUT,
        etag=False,
        if_match=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Admit a prompt, durably and once for each input id."""
        given = self.input(AdmitInput)
        prompt = given.pop("prompt")
        check_priority(request.user, given.get("priority"))
        version = self.expected_version(session_id)
        receipt = self.store.admit_input(session_id, prompt, **given, expected_version=version)
        return json_response(receipt, status=201)


class InputView(View):
    @operation(
        "set_delivery",
        tag="inbox",
        request=DeliveryInput,
        sent={"delivery": "queue"},
        response=InputReceipt,
        example={**examples.INPUT, "delivery": "queue"},
        etag=False,
        if_match=True,
    )
    def patch(self, request: Request, session_id: str, input_id: str) -> HttpResponse:
        """Change the delivery of a pending input."""
        given = self.input(DeliveryInput)
        version = self.expected_version(session_id)
        return json_response(
            self.store.set_delivery(session_id, input_id, given["delivery"], expected_version=version)
        )

    @operation(
        "cancel_input",
        tag="inbox",
        response=InputReceipt,
        example=examples.INPUT,
        etag=False,
        if_match=True,
    )
    def delete(self, request: Request, session_id: str, input_id: str) -> HttpResponse:
        """Cancel a pending input."""
        version = self.expected_version(session_id)
        return json_response(self.store.cancel_input(session_id, input_id, expected_version=version))


def scheduled(state: SessionState) -> HttpResponse:
    """The answer to a request for a run."""
    body = Scheduled(scheduled=True, runnable_at=state.runnable_at)
    return json_response(body, status=202, version=state.version)


_scheduling = partial(
    operation,
    tag="inbox",
    response=Scheduled,
    status=202,
    example=examples.SCHEDULED,
    if_match=True,
)


class WakeRunnerView(View):
    @_scheduling("wake_runner")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Ask for a run, as `run/` does."""
        version = self.expected_version(session_id)
        return scheduled(self.store.request_run(session_id, expected_version=version))


class RunView(View):
    @_scheduling("run")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Ask for a run of at least one turn, durably. It is not waited for, and twice is one run."""
        version = self.expected_version(session_id)
        return scheduled(self.store.request_run(session_id, expected_version=version))


class RetryView(View):
    @_scheduling("retry_run")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Run the turn that failed or was stopped again, without a new message."""
        version = self.expected_version(session_id)
        return scheduled(self.store.retry_run(session_id, expected_version=version))


class StopView(View):
    @operation(
        "stop",
        tag="inbox",
        request=StopInput,
        sent={"reason": "The user left.", "timeout": 10},
        response=RunOutcome,
        example={"kind": "idle", "run": None, "output": None, "error": None},
        etag=False,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Interrupt the driver of the session, and wait until it has stopped. The inbox is kept."""
        return stop_driver(self, session_id)


def stop_driver(view: View, session_id: str) -> HttpResponse:
    """Interrupt the driver of a session, as the body of the request says."""
    given = view.input(StopInput)
    view.check_version(session_id)
    view.store.get_session_head(session_id)  # this user may change it
    timeout = min(given.get("timeout", streams.WAIT_SECONDS), streams.WAIT_SECONDS)
    runner = SessionRunner(None, store=SessionStore(conf.API_DATABASE))
    return json_response(runner.interrupt(session_id, given.get("reason"), timeout))


class IdleView(View):
    @operation(
        "wait_for_idle",
        tag="inbox",
        response=Occupancy,
        example=examples.OCCUPANCY,
        query=(Query("timeout", "How many seconds to wait at most.", float),),
        etag=False,
    )
    def get(self, request: Request, session_id: str) -> HttpResponse:
        """Wait until the session has no driver and nothing is left to do, or until the timeout."""
        timeout = min(self.query(WaitQuery).get("timeout", 0.0), streams.WAIT_SECONDS)
        deadline = time.monotonic() + timeout
        while not (found := self.store.get_occupancy(session_id)).idle:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(_LOOK_SECONDS, left))
        return json_response(found)
