"""A storyteller: long answers to stop, to reload, to kill workers in. Its model is overloaded at first."""

from pathlib import Path

from django.db import connections
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError

from helix_sessions.agents import current_turn
from helix_sessions.store import SessionStore
from project.agents.models import model_or
from project.agents.script import Heard, Line

_STORY = Path(__file__).with_name("lighthouse.md").read_text(encoding="utf-8").strip()


def _play(heard: Heard) -> Line:
    """The first call for each prompt fails as an overloaded provider does, and the loop asks again. That it
    has failed is in the log, so that any worker knows."""
    turn = current_turn()
    try:
        failures = SessionStore(turn.using).get_events(turn.session_id, types=["model_call_failed"])
    finally:
        connections.close_all()
    if len(failures) <= len(heard.earlier):
        raise ModelHTTPError(503, "script", {"error": "The model is overloaded. Please try again."})
    return Line(_STORY)


teller = Agent(
    model_or(_play),
    name="storyteller",
    instructions="You tell long, calm stories in markdown, of about four hundred words.",
)
