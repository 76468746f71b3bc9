"""Each page ends with a session in the admin, and there it is."""

import contextlib
import io
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helix_sessions.store import SessionStore
from tests.docs.examples import run
from tests.docs.pages import page

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("name", "agent_type", "session_id", "said"),
    [
        ("langgraph", "langgraph", "journey-1", "Oslo"),
        ("openai-agents", "openai_agents", "weather-1", "raining in Oslo"),
        ("google-adk", "google_adk", "travel/ada/tour-1", "Oslo"),
        ("pydantic-ai", "pydantic_ai", "visit-1", "Oslo"),
    ],
)
def test_the_session_of_the_page_is_in_the_admin(
    name: str, agent_type: str, session_id: str, said: str, admin_client: Client, store: SessionStore
) -> None:
    namespace: dict[str, Any] = {"__name__": "docs"}
    found = page(f"how-to/{name}.md")
    with contextlib.redirect_stdout(io.StringIO()):
        for block in found.blocks:
            if block.language == "python":
                run(block, namespace, file=found.name)

    listed = admin_client.get(
        reverse("admin:helix_sessions_session_changelist"), {"agent_type__exact": agent_type}
    )
    shown = admin_client.get(reverse("admin:helix_sessions_session_change", args=[session_id]), follow=True)

    assert session_id in listed.content.decode()
    assert agent_type in shown.content.decode()
    assert said in shown.content.decode()
    exported = io.StringIO()
    assert store.export_sessions(exported, session_ids=[session_id])
    assert said in exported.getvalue()
    assert 'pip install "django-helix-sessions[' in found.text
