"""Actions of the runtime."""

from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from helix_sessions import runtime
from helix_sessions.api import examples, outputs, scoping
from helix_sessions.api.idempotency import idempotent
from helix_sessions.api.responses import json_response
from helix_sessions.api.schema import operation
from helix_sessions.api.serializers.actions import INPUTS, SessionAction
from helix_sessions.api.views.base import View, checked
from helix_sessions.exceptions import NotConfigured
from helix_sessions.runtime import AgentSession, SessionRuntime
from helix_sessions.runtime.agents import agent_for
from helix_sessions.store import SessionStore

_FORK, _SEND = "ForkSession", "SendMessage"


class ActionsView(View):
    def rate_scope(self, request: Request) -> str:
        """A fork counts as a new session."""
        try:
            is_fork = _name(self.json()) == _FORK
        except Exception:  # errors of the body are reported where it is parsed
            is_fork = False
        return "create" if is_fork else super().rate_scope(request)

    @operation(
        "execute_action",
        tag="runtime",
        request=SessionAction,
        sent={"action": "ChangeModel", "model": "large"},
        response=outputs.AgentSession,
        example=examples.AGENT_SESSION,
        also={201: outputs.AgentSession},
        if_match=True,
        located=True,
    )
    @idempotent
    def post(self, request: Request, session_id: str) -> HttpResponse:
        """Load the session, execute an action on it, save it.

        409 when another caller saved it meanwhile; nothing of the action is saved then. A fork is a new
        session, answered with 201 and its own `ETag`. `SendMessage` takes no `Idempotency-Key`: the message
        is stored before the agent answers, and stays stored if the agent does not.
        """
        sent = self.json()
        name = _name(sent)
        given = checked(INPUTS[name], sent)
        store = scoping.store_of(request, session_id)
        expected = self.expected_version(session_id)
        if name == _SEND and "Idempotency-Key" in request.headers:
            raise ValidationError({"Idempotency-Key": ["SendMessage takes none."]})
        action = _ACTIONS[name](store, session_id, given)
        saved = SessionRuntime(store).execute(session_id, action, expected_version=expected)
        if name != _FORK:
            return json_response(shown(saved), version=saved.version)
        headers = self.location(saved.session_id)
        return json_response(shown(saved), status=201, version=saved.version, headers=headers)


def shown(session: AgentSession) -> outputs.AgentSession:
    """Return the session without its messages, which have pages of their own."""
    state = session.state
    return outputs.AgentSession(
        info=session.info,
        definition=session.definition,
        state=outputs.AgentState(
            message_count=len(state.messages),
            metadata=state.metadata,
            system_prompt=state.system_prompt,
            model=state.model,
            budget=state.budget,
            execution_count=state.execution_count,
            execution=state.execution,
        ),
    )


def _name(sent: Any) -> str:
    """The action of a body."""
    name = sent.get("action") if isinstance(sent, dict) else None
    if not isinstance(name, str) or name not in INPUTS:
        raise ValidationError({"action": [f"This must be one of {', '.join(INPUTS)}."]})
    return name


def _plain(name: str) -> Callable[[SessionStore, str, dict[str, Any]], Any]:
    kind = getattr(runtime, name)

    def made(store: SessionStore, session_id: str, given: dict[str, Any]) -> Any:
        return kind(**{key: value for key, value in given.items() if key != "action"})

    return made


def _message(store: SessionStore, session_id: str, given: dict[str, Any]) -> Any:
    """The agent of the settings; the caller cannot choose."""
    agent_type = store.get_session_head(session_id).agent_type
    agent = agent_for(agent_type)
    if agent is None:
        raise NotConfigured(f"No agent is configured for sessions of the type {agent_type!r}.")
    return runtime.SendMessage(given["message"], agent)


_ACTIONS = {name: _plain(name) for name in INPUTS} | {_SEND: _message}
