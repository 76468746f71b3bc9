"""Approvals: other arguments, the digest of what was asked, schemas of results, what is remembered."""

from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from helix_sessions.exceptions import (
    AnswerForbidden,
    InvalidDocument,
    InvalidInput,
    NotConfigured,
    SubmissionMismatch,
)
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.types import PendingCall
from helix_sessions.values import response_schemas
from helix_sessions.values.tools import ToolOptions
from tests.contract.suspended import approval, asked, child, messages, suspend, suspended
from tests.invariants import assert_invariants, dump
from tests.rows import each

pytestmark = pytest.mark.django_db(transaction=True)

NUMBER = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


def entry(store: SessionStore, call_id: str = "a", session_id: str = "s") -> dict[str, Any]:
    calls = store.load_state(session_id).pending_client_tool_calls or {}
    return dict(calls[call_id])


def refused(store: SessionStore, kind: type[Exception], call_id: str = "a", /, **answer: Any) -> None:
    """The answer is refused, and writes nothing."""
    before = dump()
    with pytest.raises(kind):
        store.submit_tool_result("s", call_id, **answer)
    assert dump() == before, answer


class TestEditedArguments:
    def test_are_executed_and_the_call_keeps_its_own(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"), approval("b"))
        given = {"of": "me", "n": [1]}
        outcome = store.submit_tool_result("s", "a", approved=True, arguments=given)
        assert outcome.outcome == "accepted"
        assert entry(store)["arguments"] == {"of": "a"}
        told = [event.data for event in store.get_events("s") if (event.data or {}).get("edited")]
        by = {"kind": "code", "id": None}
        assert told == [
            {"tool_call_id": "a", "answer": "approved", "by": by, "edited": True, "arguments": given}
        ]
        store.submit_tool_result("s", "b", approved=True, arguments={"of": "b"})
        resumed = store.resume("s")
        assert [call["arguments"] for call in resumed.approved] == [given, {"of": "b"}]
        assert messages(store, "s")[-1]["tool_calls"][0]["arguments"] == {"of": "a"}
        assert len([event for event in store.get_events("s") if (event.data or {}).get("edited")]) == 1
        assert_invariants("s")

    def test_come_with_an_approval_and_are_an_object(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"), asked("b"))
        answers: list[dict[str, Any]] = [
            {"approved": False, "arguments": {}},
            {"error": "no", "arguments": {}},
            {"approved": True, "arguments": [1]},
            {"approved": True, "arguments": "{}"},
            {"approved": True, "arguments": 1},
        ]
        for answer in answers:
            refused(store, SubmissionMismatch, **answer)
        refused(store, SubmissionMismatch, "b", result=1, arguments={})
        refused(store, SubmissionMismatch, "b", approved=True, arguments={})
        refused(store, InvalidDocument, approved=True, arguments={"x": "x" * (1024 * 1024)})
        refused(store, InvalidDocument, approved=True, arguments={"x": float("nan")})

    def test_of_a_call_that_has_an_answer_change_nothing(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"), approval("b"))
        store.submit_tool_result("s", "a", approved=True)
        before = dump()
        again = store.submit_tool_result("s", "a", approved=True, arguments={"of": "me"})
        assert (again.outcome, dump() == before) == ("already_completed", True)


class TestDigests:
    def test_tell_one_question_from_another(self, store: SessionStore) -> None:
        same = [{"x": 1, "y": [{"a": 1, "b": 2}]}, {"y": [{"b": 2, "a": 1}], "x": 1}]
        other = [{"x": True, "y": []}, {"x": 1}, {}, None, [], "text"]
        calls = [
            PendingCall(tool_call_id=f"{n}", tool_name="t", arguments=arguments)
            for n, arguments in enumerate([*same, *other])
        ]
        named = PendingCall(tool_call_id="named", tool_name="u", arguments=same[0])
        suspended(store, "s", *calls, named)
        found = [entry(store, call.tool_call_id)["arguments_digest"] for call in (*calls, named)]
        assert found[0] == found[1]
        assert len(set(found)) == len(found) - 1
        assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in found)

    def test_an_answer_to_another_question_is_refused(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"), asked("b"))
        digest = entry(store)["arguments_digest"]
        for wrong in (entry(store, "b")["arguments_digest"], "", digest.upper(), 7, digest[:-1]):
            refused(store, SubmissionMismatch, approved=True, arguments_digest=wrong)
            refused(store, SubmissionMismatch, approved=False, arguments_digest=wrong)
        assert (
            store.submit_tool_result("s", "a", approved=True, arguments_digest=digest).outcome == "accepted"
        )

    def test_a_call_that_was_changed_is_another_question(self, store: SessionStore) -> None:
        """Also where who changed it left the digest as it was."""
        suspended(store, "s", approval("a"))
        seen = entry(store)["arguments_digest"]
        state = store.load_state("s")
        changed = {"a": {**entry(store), "arguments": {"of": "them"}}}
        store.save_state("s", replace(state, pending_client_tool_calls=changed))
        refused(store, SubmissionMismatch, approved=True, arguments_digest=seen)


class TestResponseSchemas:
    def test_a_result_must_fit(self, store: SessionStore) -> None:
        suspended(store, "s", asked("a", response_schema=NUMBER), asked("b", response_schema=NUMBER))
        assert entry(store)["response_schema"] == NUMBER
        for result in (None, {}, {"n": "1"}, {"n": 1.5}, [{"n": 1}]):
            refused(store, SubmissionMismatch, result=result)
        assert store.submit_tool_result("s", "a", result={"n": 1}).outcome == "accepted"
        assert store.submit_tool_result("s", "b", error="cannot").outcome == "accepted"

    def test_in_a_sub_session_too(self, store: SessionStore) -> None:
        store.begin_turn("s")
        child(store, "s", "c", "call")
        suspend(store, "c", asked("a", response_schema=NUMBER))
        refused(store, SubmissionMismatch, result={"n": "1"})
        assert store.submit_tool_result("s", "a", result={"n": 1}).owner_session_id == "c"

    BAD: list[Any] = [
        *([], "x", 1, {"type": "nope"}, {"required": 1}, {"pattern": "("}),
        *({"$ref": "https://example.com/s"}, {"$ref": "#/$defs/none"}, {"$ref": "other.json"}),
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"$schema": "https://example.com/mine"},
        {"enum": ["x" * 40_000]},
        {"pattern": "^(?=a)"},
        {
            "$ref": "#/$defs/a0",
            "$defs": {
                **{f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)},
                "a40": {},
            },
        },
    ]
    """No schemas, and those whose cost has no bound."""

    def test_a_bad_one_is_refused_when_it_is_given(self, store: SessionStore) -> None:
        store.begin_turn("s", run_id="r")
        state = store.load_state("s")
        for schema in self.BAD:
            with pytest.raises(InvalidInput):
                ToolOptions(response_schema=schema)
            with pytest.raises(InvalidInput):
                store.suspend(
                    "s",
                    "client_tool",
                    state=state,
                    run_id="r",
                    pending_calls=[asked("a", response_schema=schema)],
                )
        assert store.load_state("s") == state

    def test_without_the_extra_the_error_names_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(response_schemas, "jsonschema_rs", None)
        with pytest.raises(NotConfigured, match="response-schemas"):
            ToolOptions(response_schema=NUMBER)

    def test_a_pattern_takes_linear_time(self, store: SessionStore) -> None:
        """A backtracking engine would not come back."""
        evil = {"type": "string", "pattern": "^(a+)+$"}
        suspended(store, "s", asked("a", response_schema=evil))
        refused(store, SubmissionMismatch, result="a" * 5_000 + "!")


class TestRemembering:
    @pytest.fixture
    def owner(self, django_user_model: Any) -> Any:
        return django_user_model.objects.create_user("ada")

    @each(("scope", "selectors"), [("session", {"session_id": "s"}), ("owner", {"owner_id": 0})])
    def test_an_accepted_approval_makes_the_rule(
        self, store: SessionStore, owner: Any, scope: str, selectors: dict[str, Any]
    ) -> None:
        store.create_session("s", agent_type="shop", owner=owner)
        suspended(store, "s", approval("a"), approval("b"))
        store.submit_tool_result("s", "a", approved=True, remember=scope, by={"kind": "user", "id": "7"})
        [rule] = store.list_tool_rules()
        wanted = {"session_id": None, "owner_id": None, **selectors}
        if scope == "owner":
            wanted["owner_id"] = owner.pk
        assert (rule.session_id, rule.owner_id) == (wanted["session_id"], wanted["owner_id"])
        assert (rule.tool, rule.decision, rule.agent_type, rule.arguments) == ("tool_a", "allow", None, None)
        [told] = store.get_events("s", types=["tool_rule_set"])
        by = {"kind": "user", "id": "7"}
        said = {"tool": "tool_a", "decision": "allow", "scope": scope, "rule_id": rule.rule_id, "by": by}
        assert told.data == said
        store.delete_tool_rule(rule.rule_id)
        store.submit_tool_result("s", "a", approved=True, remember=scope)
        assert store.list_tool_rules() == [], "an answer that is not accepted makes no rule"
        assert_invariants("s")

    def test_a_rule_that_asked_is_replaced(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"))
        store.set_tool_rule("tool_a", "ask", session_id="s")
        store.submit_tool_result("s", "a", approved=True, remember="session")
        assert [rule.decision for rule in store.list_tool_rules()] == ["allow"]

    def test_nothing_else_is_remembered(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"), asked("b"))
        refused(store, InvalidInput, approved=True, remember="forever")
        refused(store, InvalidInput, approved=True, remember=True)
        refused(store, SubmissionMismatch, approved=False, remember="session")
        refused(store, SubmissionMismatch, error="no", remember="session")
        refused(store, SubmissionMismatch, "b", result=1, remember="session")
        refused(store, SubmissionMismatch, "b", approved=True, remember="session")
        refused(store, InvalidInput, approved=True, remember="owner")  # the session has none

    def test_a_name_that_is_a_pattern_is_not_remembered(self, store: SessionStore) -> None:
        """A model that calls `*` gets no rule for every tool."""
        suspended(store, "s", PendingCall(tool_call_id="a", tool_name="*", arguments={}, kind="approval"))
        refused(store, InvalidInput, approved=True, remember="session")
        assert store.submit_tool_result("s", "a", approved=True).outcome == "accepted"


def test_participants_decide_where_the_tool_leaves_it_to_them(
    store: SessionStore, django_user_model: Any
) -> None:
    store.create_session("s", agent_type="a", owner=django_user_model.objects.create_user("pat"))
    theirs = [approval(name, approver="participant") for name in ("mine", "too")]
    suspended(store, "s", approval("a"), asked("b"), *theirs)
    assert (entry(store).get("approver"), entry(store, "mine")["approver"]) == (None, "participant")
    for answer in ({"approved": True}, {"approved": False}, {"error": "no"}):
        refused(store, AnswerForbidden, as_participant=True, **answer)
    refused(store, AnswerForbidden, as_participant=True, approved=True, remember="session")
    refused(store, AnswerForbidden, "mine", as_participant=True, approved=True, remember="owner")
    refused(store, AnswerForbidden, "b", as_participant=True, approved=True, remember="session")
    answers: dict[str, dict[str, Any]] = {
        "b": {"result": 1},
        "mine": {"approved": True, "remember": "session", "arguments": {"of": "me"}},
        "too": {"approved": False},
    }
    for name, answer in answers.items():
        assert store.submit_tool_result("s", name, as_participant=True, **answer).outcome == "accepted"
    assert [rule.tool for rule in store.list_tool_rules()] == ["tool_mine"]


def test_the_async_store_takes_the_same(store: SessionStore, astore: AsyncSessionStore) -> None:
    suspended(store, "s", approval("a"))
    digest = entry(store)["arguments_digest"]
    submit = async_to_sync(astore.submit_tool_result)
    submit("s", "a", approved=True, arguments={"n": 1}, arguments_digest=digest, remember="session")
    assert store.resume("s").approved[0]["arguments"] == {"n": 1}
    assert [rule.session_id for rule in store.list_tool_rules()] == ["s"]


class TestLinks:
    def test_show_the_digest_and_the_schema(self, store: SessionStore) -> None:
        suspended(store, "s", asked("a", response_schema=NUMBER))
        link = store.create_answer_link("s", "a")
        shown = store.read_answer_link(link.token)
        assert (shown.response_schema, shown.may_edit) == (NUMBER, False)
        assert shown.arguments_digest == entry(store)["arguments_digest"]
        with pytest.raises(SubmissionMismatch):
            store.submit_by_answer_link(link.token, result={"n": "1"})
        with pytest.raises(SubmissionMismatch):
            store.submit_by_answer_link(link.token, result={"n": 1}, arguments_digest="other")
        digest = shown.arguments_digest
        done = store.submit_by_answer_link(link.token, result={"n": 1}, arguments_digest=digest)
        assert done.outcome == "accepted"

    def test_let_their_holder_edit_only_if_they_say_so(self, store: SessionStore) -> None:
        suspended(store, "s", approval("a"))
        plain, editing = store.create_answer_link("s", "a"), store.create_answer_link("s", "a", may_edit=True)
        before = dump()
        with pytest.raises(AnswerForbidden):
            store.submit_by_answer_link(plain.token, approved=True, arguments={"of": "me"})
        assert dump() == before
        assert store.read_answer_link(editing.token).may_edit
        store.submit_by_answer_link(editing.token, approved=True, arguments={"of": "me"})
        [told] = store.get_events("s", types=["tool_result_submitted"])
        assert (told.data["by"], told.data["arguments"]) == ({"kind": "link", "id": None}, {"of": "me"})
