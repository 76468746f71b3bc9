"""The inbox, and whoever runs the session: told, stopped, waited for."""

import time
from collections.abc import Callable
from functools import partial

from django.http import HttpResponse
from rest_framework.request import Request

from helix_sessions.api import examples
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.outputs import Scheduled
from helix_sessions.api.pagination import page_response
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import Query, listing, operation
from helix_sessions.api.serializers.inbox import AdmitInput, DeliveryInput, InputsQuery, StopInput, WaitQuery
from helix_sessions.api.views.base import View
from helix_sessions.conf import conf
from helix_sessions.runtime.loop.runner import SessionRunner
from helix_sessions.runtime.scheduling import schedule_run, wake_session
from helix_sessions.store import SessionStore
from helix_sessions.types import InputReceipt, Occupancy, Page, RunOutcome

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
        """Take a prompt, durably and once for each input id."""
        given = self.input(AdmitInput)
        prompt = given.pop("prompt")
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
        """Deliver a pending input otherwise."""
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
        """Take a pending input out of the inbox."""
        version = self.expected_version(session_id)
        return json_response(self.store.cancel_input(session_id, input_id, expected_version=version))


class SchedulingView(View):
    """A view that has somebody else do something with the session."""

    def schedule(self, session_id: str, scheduled: Callable[..., bool]) -> HttpResponse:
        self.check_version(session_id)
        agent_type = self.store.get_session_head(session_id).agent_type
        told = scheduled(session_id, agent_type=agent_type, using=conf.API_DATABASE)
        return json_response(Scheduled(scheduled=told), status=202)


_scheduling = partial(
    operation,
    tag="inbox",
    response=Scheduled,
    status=202,
    example={"scheduled": True},
    etag=False,
)


class WakeRunnerView(SchedulingView):
    @_scheduling("wake_runner")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Tell whoever runs the session to look at its inbox."""
        return self.schedule(session_id, wake_session)


class RunView(SchedulingView):
    @_scheduling("run")
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Have the session run, at least one turn. It is not waited for."""
        return self.schedule(session_id, schedule_run)


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
        """Interrupt whoever drives the session, and wait until it has stopped. The inbox is kept."""
        given = self.input(StopInput)
        self.check_version(session_id)
        self.store.get_session_head(session_id)  # this user may change it
        timeout = min(given.get("timeout", conf.STREAM_WAIT_SECONDS), conf.STREAM_WAIT_SECONDS)
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
        """Wait until nobody drives the session and nothing is left to do, or the time is over."""
        timeout = min(self.query(WaitQuery).get("timeout", 0.0), conf.STREAM_WAIT_SECONDS)
        deadline = time.monotonic() + timeout
        while not (found := self.store.get_occupancy(session_id)).idle:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(_LOOK_SECONDS, left))
        return json_response(found)
