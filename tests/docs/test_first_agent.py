"""The first code a stranger sees: the agent of the README and of the documentation's front page, as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from helix_sessions.store import SessionStore
from tests.docs.pages import Page, page

pytestmark = pytest.mark.django_db(transaction=True)

README, INDEX = page("../README.md"), page("index.md")
PAYMENTS = """
paid = []

def pay_back(order, cents, *, key):
    paid.append((order, cents, key))
    return f"{cents} cents were paid back."
"""


def _files(found: Page) -> dict[str, str]:
    return {
        block.marks[0]: block.code
        for block in found.blocks
        if block.marks and block.marks[0].startswith("shop/")
    }


def _model(messages: list[Any], info: Any) -> Any:
    """Asks for the refund, and says what came of it."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    answers = [part for message in messages for part in message.parts if part.part_kind == "tool-return"]
    if answers:
        return ModelResponse([TextPart(answers[-1].content)])
    return ModelResponse([ToolCallPart("refund", {"order": 7, "cents": 4990})])


def test_it_waits_for_a_person_and_pays_once(
    store: SessionStore, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    function = pytest.importorskip("pydantic_ai.models.function")
    (tmp_path / "shop").mkdir()
    for name, code in (_files(README) | {"shop/payments.py": PAYMENTS}).items():
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    from shop import agents, payments  # type: ignore[import-not-found]
    from shop import settings as of_the_page

    monkeypatch.setattr(agents.support, "model", function.FunctionModel(_model))
    settings.HELIX_SESSIONS = of_the_page.HELIX_SESSIONS
    store.create_session("kettle-7", agent_type="support")
    store.admit_input("kettle-7", "The kettle of order 7 arrived broken.")
    call_command("run_sessions", "--once")
    pending = store.load_state("kettle-7").pending_client_tool_calls
    assert pending is not None
    [call] = pending.values()
    assert (call["tool_name"], payments.paid) == ("refund", [])
    store.submit_tool_result("kettle-7", call["tool_call_id"], approved=True)
    call_command("run_sessions", "--once")
    [(order, cents, key)] = payments.paid
    assert (order, cents, bool(key)) == (7, 4990, True)
    assert store.get_messages("kettle-7").messages[-1]["content"] == "4990 cents were paid back."


def test_both_pages_have_the_same() -> None:
    readme, index = _files(README), _files(INDEX)
    assert readme == index, json.dumps([readme, index], indent=1)
    assert readme.keys() == {"shop/agents.py", "shop/settings.py"}
