"""Tool rules over HTTP."""

import pytest

from tests.api.test_problems import is_problem

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(user, client_of, grant):
    return client_of(grant(user, "change_toolrule"))


def test_a_rule_is_set_listed_read_and_revoked(operator, session, store, user):
    body = {"tool": "refund", "decision": "deny", "session_id": "s", "arguments": {"cents": 5}}
    made = operator.post("/api/tool-rules/", body)
    assert made.status_code == 201
    rule = made.json()
    assert {**rule, "rule_id": ""} == {**body, "rule_id": "", "agent_type": None, "owner_id": None}
    of_owner = operator.post("/api/tool-rules/", {"tool": "*", "decision": "ask", "owner": user.pk}).json()
    assert operator.get("/api/tool-rules/").json() == {"items": [rule, of_owner], "next_cursor": None}
    assert operator.get(f"/api/tool-rules/?owner={user.pk}").json()["items"] == [of_owner]
    assert operator.get("/api/tool-rules/?session_id=s&decision=deny").json()["items"] == [rule]
    path = f"/api/tool-rules/{rule['rule_id']}/"
    assert operator.get(path).json() == rule
    assert operator.delete(path).status_code == 204
    is_problem(operator.delete(path), 404, "tool_rule_not_found")
    is_problem(operator.get(path), 404, "tool_rule_not_found")


def test_what_is_no_rule_is_refused(operator):
    for body in ({"tool": "refund"}, {"tool": "a*b", "decision": "ask"}, {"tool": "a", "decision": "maybe"}):
        is_problem(operator.post("/api/tool-rules/", body), 400, "invalid_input")
