"""Tool rules in the admin."""

import pytest
from django.contrib.auth.models import Permission

pytestmark = pytest.mark.django_db

LIST = "/admin/helix_sessions/toolrule/"


@pytest.fixture
def operator(client, django_user_model):
    user = django_user_model.objects.create_user("op", is_staff=True)
    names = ("view_toolrule", "change_toolrule")
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(user)
    return client


def test_a_rule_is_made_seen_and_revoked(operator, store):
    made = operator.post(f"{LIST}add/", {"tool": "refund", "decision": "deny", "arguments": '{"cents": 5}'})
    assert made.status_code == 302, made.content.decode()
    [rule] = store.list_tool_rules()
    assert (rule.tool, rule.decision, rule.arguments, rule.agent_type) == (
        "refund",
        "deny",
        {"cents": 5},
        None,
    )
    assert "refund" in operator.get(LIST).content.decode()
    assert operator.get(f"{LIST}{rule.rule_id}/change/").status_code == 200
    assert operator.post(f"{LIST}{rule.rule_id}/delete/", {"post": "yes"}).status_code == 302
    assert store.list_tool_rules() == []


def test_what_is_no_rule_is_said(operator, store):
    for given in ({"tool": "a*b"}, {"tool": "a", "session_id": "unknown"}, {"tool": "a", "arguments": "[1]"}):
        page = operator.post(f"{LIST}add/", {"decision": "ask", **given})
        assert page.status_code == 200
        assert "errorlist" in page.content.decode(), given
    assert store.list_tool_rules() == []


def test_who_may_only_look_makes_none(client, django_user_model, store):
    user = django_user_model.objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_toolrule"))
    client.force_login(user)
    rule = store.set_tool_rule("refund", "ask")
    assert client.get(LIST).status_code == 200
    assert client.post(f"{LIST}add/", {"tool": "a", "decision": "ask"}).status_code == 403
    assert client.post(f"{LIST}{rule.rule_id}/delete/", {"post": "yes"}).status_code == 403
    assert store.list_tool_rules() == [rule]
