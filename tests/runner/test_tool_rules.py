"""Tool rules in the loop: they go before what the agent declares, and the log names them."""

from typing import Any

import pytest

from helix_sessions.runtime import SessionRunner
from helix_sessions.runtime.scripted import ScriptedAgent, calls
from helix_sessions.store import SessionStore
from tests.runner.test_activities import whole

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(store: SessionStore) -> str:
    store.create_session("s", agent_type="shop")
    store.admit_input("s", "refund it")
    return "s"


class Shop(ScriptedAgent):
    """Calls `refund` once."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[Any] = []
        super().__init__([calls("refund", cents=5), "done"], tools={"refund": self._refund}, **options)

    def _refund(self, arguments: Any, turn: Any) -> str:
        self.paid.append(arguments)
        return "paid"


def results(store: SessionStore) -> list[tuple[Any, bool]]:
    found = [message for message in store.get_messages("s").messages if message["role"] == "tool"]
    return [(message["content"], message.get("is_error", False)) for message in found]


def rulings(store: SessionStore) -> list[Any]:
    return [event.data for event in store.get_events("s", types=["tool_result_submitted"])]


def test_a_denied_tool_does_not_run_and_the_model_is_told(store: SessionStore, session: str) -> None:
    rule = store.set_tool_rule("refund", "deny", agent_type="shop")
    agent = Shop()
    assert SessionRunner(agent).run(session).kind == "completed"
    assert agent.paid == []
    [(said, is_error)] = results(store)
    assert is_error
    assert "rule" in said
    by = {"kind": "rule", "id": rule.rule_id}
    assert rulings(store) == [{"tool_call_id": "call-1", "answer": "denied", "by": by}]
    whole(store, session)


def test_an_approval_that_a_rule_gives_is_not_asked_for(store: SessionStore, session: str) -> None:
    rule = store.set_tool_rule("refund", "allow", session_id=session)
    agent = Shop(approval_tools=["refund"])
    assert SessionRunner(agent).run(session).kind == "completed"
    assert agent.paid == [{"cents": 5}]
    assert [each["by"]["id"] for each in rulings(store)] == [rule.rule_id]
    whole(store, session)


def test_a_tool_that_a_rule_asks_about_waits(store: SessionStore, session: str) -> None:
    store.set_tool_rule("re*", "ask")
    agent = Shop()
    assert SessionRunner(agent).run(session).kind == "suspended_client_tool"
    assert agent.paid == []
    assert rulings(store) == []
    store.submit_tool_result(session, "call-1", approved=True)
    assert SessionRunner(agent).wake(session).kind == "completed"
    assert agent.paid == [{"cents": 5}]
    whole(store, session)


def test_rules_about_other_arguments_do_not_count(store: SessionStore, session: str) -> None:
    store.set_tool_rule("refund", "deny", arguments={"cents": 6})
    agent = Shop()
    assert SessionRunner(agent).run(session).kind == "completed"
    assert agent.paid == [{"cents": 5}]
    assert rulings(store) == []


@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_sub_agents_are_tools(decision: str, store: SessionStore, session: str) -> None:
    store.set_tool_rule("research", decision)
    agent = ScriptedAgent([calls("research", prompt="look"), "done"])
    agent.subagents = {"research": "researcher"}
    outcome = SessionRunner(agent).run(session)
    assert store.get_sub_session_refs(session) == []
    if decision == "deny":
        assert outcome.kind == "completed"
        return
    store.submit_tool_result(session, "call-1", approved=True)
    assert SessionRunner(agent).wake(session).kind == "suspended_awaiting_children"
    assert [ref.agent_type for ref in store.get_sub_session_refs(session)] == ["researcher"]


def test_client_tools_are_tools(store: SessionStore, session: str) -> None:
    store.set_tool_rule("refund", "deny")
    agent = ScriptedAgent([calls("refund", cents=5), "done"], client_tools=["refund"])
    assert SessionRunner(agent).run(session).kind == "completed"
    assert results(store)[0][1]


@pytest.mark.parametrize("asked_by", ["a rule", "the agent"])
def test_a_client_tool_that_was_approved_is_the_clients(
    asked_by: str, store: SessionStore, session: str
) -> None:
    agent = ScriptedAgent([calls("refund", cents=5), "done"], client_tools=["refund"])
    if asked_by == "a rule":
        store.set_tool_rule("refund", "ask")
    else:
        agent.tool_options = {"refund": {"approval": True}}
    assert SessionRunner(agent).run(session).kind == "suspended_client_tool"
    store.submit_tool_result(session, "call-1", approved=True, arguments={"cents": 4})
    assert SessionRunner(agent).wake(session).kind == "suspended_client_tool"
    [entry] = (store.load_state(session).pending_client_tool_calls or {}).values()
    assert (entry["kind"], entry["arguments"]) == ("client_tool", {"cents": 4})
    assert store.submit_tool_result(session, "call-1", result="paid").outcome == "accepted"
    assert SessionRunner(agent).wake(session).kind == "completed"
    assert results(store)[0][0] == "paid"
    whole(store, session)


def test_a_rule_that_was_revoked_is_not_followed(store: SessionStore, session: str) -> None:
    store.delete_tool_rule(store.set_tool_rule("refund", "deny").rule_id)
    agent = Shop()
    SessionRunner(agent).run(session)
    assert agent.paid == [{"cents": 5}]
