"""Tool rules: which of them decides, and whose they are."""

from typing import Any

import pytest

from helix_sessions.exceptions import InvalidDocument, InvalidInput, SessionNotFound, ToolRuleNotFound
from helix_sessions.store import SessionStore
from helix_sessions.store.calls import tool_rules
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(django_user_model):
    return django_user_model.objects.create_user("ada")


@pytest.fixture
def session(store, owner):
    store.create_session("s", agent_type="shop", owner=owner)
    return "s"


def decided(store, owner, tool="refund", arguments=None):
    rules = tool_rules.applicable(store.using, "s", "shop", owner.pk)
    rule = tool_rules.decisive(rules, tool, {} if arguments is None else arguments)
    return None if rule is None else rule.decision


SPECIFIC_FIRST: list[dict[str, Any]] = [
    {"session_id": "s", "arguments": {"cents": 5}},
    {"session_id": "s"},
    {"session_id": "s", "tool": "re*"},
    {"owner": True, "arguments": {"cents": 5}, "tool": "re*"},
    {"owner": True},
    {"owner": True, "tool": "*"},
    {"agent_type": "shop", "arguments": {"cents": 5}},
    {"agent_type": "shop"},
    {"arguments": {"cents": 5}},
    {},
    {"tool": "*"},
]
"""Each goes before all that follow: scope, then arguments, then name."""


def test_the_most_specific_rule_decides(store, session, owner):
    for number, selectors in enumerate(reversed(SPECIFIC_FIRST)):
        given = {"tool": "refund", **selectors}
        if "owner" in given:
            given["owner"] = owner
        decision = ("allow", "ask", "deny")[number % 3]
        store.set_tool_rule(given.pop("tool"), decision, **given)
        assert decided(store, owner, arguments={"cents": 5}) == decision, selectors


@each(
    ("decisions", "wins"),
    [(("allow", "ask", "deny"), "deny"), (("allow", "ask"), "ask"), (("allow",), "allow"), ((), None)],
)
def test_among_equals_the_strictest_decides(decisions, wins, store, session, owner):
    for number, decision in enumerate(decisions):
        store.set_tool_rule(f"{'refund'[: number + 1]}*", decision)
    assert decided(store, owner) == wins


def test_rules_of_others_do_not_count(store, session, owner, django_user_model):
    other = django_user_model.objects.create_user("eve")
    store.create_session("t", agent_type="other", owner=other)
    store.set_tool_rule("refund", "deny", session_id="t")
    store.set_tool_rule("refund", "deny", owner=other)
    store.set_tool_rule("refund", "deny", agent_type="other")
    store.set_tool_rule("Refund", "deny")
    store.set_tool_rule("refund", "deny", arguments={"cents": 6})
    assert decided(store, owner, arguments={"cents": 5}) is None


def test_arguments_are_compared_as_json(store, session, owner):
    store.set_tool_rule("refund", "deny", arguments={"a": 1, "b": [True]})
    assert decided(store, owner, arguments={"b": [True], "a": 1}) == "deny"
    assert decided(store, owner, arguments={"b": [1], "a": True}) is None


def test_the_same_selectors_replace_the_rule_before(store, session, owner):
    first = store.set_tool_rule("refund", "deny", session_id="s", arguments={"a": 1, "b": 2})
    second = store.set_tool_rule("refund", "allow", session_id="s", arguments={"b": 2, "a": 1})
    assert (second.rule_id, second.decision) == (first.rule_id, "allow")
    assert store.list_tool_rules() == [second]


def test_they_are_listed_by_their_selectors(store, session, owner):
    of_session = store.set_tool_rule("refund", "deny", session_id="s")
    of_owner = store.set_tool_rule("refund", "ask", owner=owner)
    of_all = store.set_tool_rule("ship*", "allow", arguments={"a": 1})
    assert store.list_tool_rules() == [of_session, of_owner, of_all]
    assert store.list_tool_rules(session_id="s") == [of_session]
    assert store.list_tool_rules(owner=owner) == [of_owner]
    assert store.list_tool_rules(tool="ship*") == store.list_tool_rules(arguments={"a": 1}) == [of_all]
    assert store.list_tool_rules(decision="allow", agent_type=None) == [of_all]


def test_a_rule_is_revoked(store, session):
    rule = store.set_tool_rule("refund", "deny", session_id="s")
    store.delete_tool_rule(rule.rule_id)
    assert store.list_tool_rules() == []
    assert [event.type for event in store.get_events("s")][-2:] == ["tool_rule_set", "tool_rule_deleted"]
    with pytest.raises(ToolRuleNotFound):
        store.delete_tool_rule(rule.rule_id)


def test_a_sessions_rules_go_with_it(store, session):
    store.set_tool_rule("refund", "deny", session_id="s")
    kept = store.set_tool_rule("refund", "deny")
    store.delete_session("s")
    assert store.list_tool_rules() == [kept]


@each(
    ("tool", "decision", "more"),
    [
        ("", "allow", {}),
        ("re*fund", "allow", {}),
        ("refund", "perhaps", {}),
        ("refund", "allow", {"arguments": [1]}),
        (7, "allow", {}),
    ],
)
def test_what_is_no_rule_is_refused(tool, decision, more, store, session):
    with pytest.raises((InvalidInput, InvalidDocument)):
        store.set_tool_rule(tool, decision, **more)
    assert store.list_tool_rules() == []


def test_of_an_unknown_session_there_are_none(store, session):
    with pytest.raises(SessionNotFound):
        store.set_tool_rule("refund", "deny", session_id="unknown")


def test_a_store_of_one_owner_knows_the_rules_of_that_owner(store, session, owner, django_user_model):
    other = django_user_model.objects.create_user("eve")
    store.create_session("t", agent_type="shop", owner=other)
    theirs = store.set_tool_rule("refund", "deny", session_id="t")
    mine = SessionStore(owned_by=owner)
    rules = [mine.set_tool_rule("refund", "ask", session_id="s"), mine.set_tool_rule("refund", "ask")]
    assert rules[1].owner_id == owner.pk
    assert mine.list_tool_rules() == rules
    with pytest.raises(SessionNotFound):
        mine.delete_tool_rule(theirs.rule_id)
    with pytest.raises(InvalidInput):
        mine.set_tool_rule("refund", "ask", owner=other)
