"""Links: whoever has one answers one call, for a time, and does nothing else."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.core import signing

from helix_sessions.exceptions import (
    InvalidAnswerLink,
    InvalidDocument,
    InvalidInput,
    SessionNotFound,
    SubmissionMismatch,
    UnknownToolCall,
)
from helix_sessions.store.calls import answer_links
from tests.contract.suspended import approval, asked, child, suspend, suspended
from tests.rows import each

pytestmark = pytest.mark.django_db

WEEK = 7 * 24 * 60 * 60


@pytest.fixture
def later(monkeypatch):
    """Let time pass, as far as links know."""

    def passed(seconds):
        then = time.time() + seconds
        monkeypatch.setattr(time, "time", lambda: then)

    return passed


def is_refused(store, token):
    """Reading and answering are refused, in words that tell nothing."""
    for use in (store.read_answer_link, lambda t: store.submit_by_answer_link(t, approved=True)):
        with pytest.raises(InvalidAnswerLink) as refusal:
            use(token)
        assert str(refusal.value) == InvalidAnswerLink.__doc__


class TestUse:
    def test_what_is_asked_is_shown_and_nothing_else(self, store):
        deadline = datetime(2040, 1, 1, tzinfo=UTC)
        suspended(store, "s", approval("a", deadline=deadline), asked("b"))
        link = store.create_answer_link("s", "a")
        shown = store.read_answer_link(link.token)
        assert (shown.tool_name, shown.arguments, shown.kind) == ("tool_a", {"of": "a"}, "approval")
        assert (shown.deadline, shown.is_answered, shown.expires_at) == (deadline, False, link.expires_at)
        requested_at = store.load_state("s").pending_client_tool_calls["a"]["requested_at"]
        assert shown.requested_at == datetime.fromisoformat(requested_at)

    def test_one_answer(self, store):
        suspended(store, "s", approval("a", approval_id="yes?"))
        token = store.create_answer_link("s", "a").token
        first = store.submit_by_answer_link(token, approved=False, reason="no")
        assert (first.outcome, first.owner_session_id, first.remaining) == ("accepted", "s", 0)
        before = store.load_state("s")
        assert store.submit_by_answer_link(token, approved=True).outcome == "already_completed"
        assert store.load_state("s") == before
        assert store.read_answer_link(token).is_answered
        [event] = store.get_events("s", types=["tool_result_submitted"])
        assert event.data == {"tool_call_id": "a", "answer": "denied", "by": {"kind": "link", "id": None}}
        [message] = store.resume("s").tool_messages
        assert (message["content"], message["is_error"]) == ("no", True)

    def test_after_the_resume(self, store):
        suspended(store, "s", asked("a"))
        token = store.create_answer_link("s", "a").token
        store.submit_by_answer_link(token, result=1)
        store.resume("s")
        assert store.submit_by_answer_link(token, result=2).outcome == "already_completed"
        with pytest.raises(InvalidAnswerLink):
            store.read_answer_link(token)

    def test_after_the_deadline(self, store):
        suspended(store, "s", asked("a", deadline=datetime(2020, 1, 1, tzinfo=UTC)))
        token = store.create_answer_link("s", "a").token
        store.settle_expired_calls()
        assert not store.read_answer_link(token).is_answered
        store.resume("s")
        assert store.submit_by_answer_link(token, result=1).outcome == "late"

    def test_a_call_of_the_tree_is_found_at_the_root(self, store):
        store.begin_turn("root", run_id="first")
        child(store, "root", "below", "c")
        suspend(store, "below", asked("a"))
        token = store.create_answer_link("root", "a").token
        assert store.submit_by_answer_link(token, result=1).owner_session_id == "below"

    def test_making_one_changes_nothing(self, store):
        suspended(store, "s", asked("a"))
        before = store.load_state("s")
        store.create_answer_link("s", "a")
        assert store.load_state("s") == before

    def test_the_answer_must_fit(self, store):
        suspended(store, "s", approval("a"))
        token = store.create_answer_link("s", "a").token
        for wrong in ({}, {"result": 1}, {"approved": True, "error": "e"}):
            with pytest.raises(SubmissionMismatch):
                store.submit_by_answer_link(token, **wrong)
        with pytest.raises(InvalidDocument):
            store.submit_by_answer_link(token, error="e" * 8193)
        assert not store.read_answer_link(token).is_answered


class TestMaking:
    def test_only_what_is_pending(self, store):
        suspended(store, "s", asked("a"))
        with pytest.raises(UnknownToolCall):
            store.create_answer_link("s", "b")
        with pytest.raises(SessionNotFound):
            store.create_answer_link("u", "a")
        with pytest.raises(InvalidDocument):
            store.create_answer_link("s", "a" * 257)
        store.submit_tool_result("s", "a", result=1)
        store.resume("s")
        with pytest.raises(UnknownToolCall):
            store.create_answer_link("s", "a")

    def test_how_long_it_is_good(self, store, settings):
        suspended(store, "s", asked("a"))
        now = time.time()
        assert store.create_answer_link("s", "a").expires_at.timestamp() == pytest.approx(now + WEEK, abs=5)
        hour = store.create_answer_link("s", "a", lifetime=timedelta(hours=1))
        assert hour.expires_at.timestamp() == pytest.approx(now + 3600, abs=5)
        for wrong in (timedelta(seconds=WEEK + 1), timedelta(0), timedelta(seconds=-1), 60):
            with pytest.raises(InvalidInput):
                store.create_answer_link("s", "a", lifetime=wrong)

    def test_the_longest_ids_fit(self, store):
        store.begin_turn("s" * 255, run_id="r")
        suspend(store, "s" * 255, asked("c" * 256))
        token = store.create_answer_link("s" * 255, "c" * 256).token
        assert store.submit_by_answer_link(token, result=1).outcome == "accepted"


class TestRefusal:
    @pytest.fixture
    def token(self, store):
        suspended(store, "s", approval("a"))
        return store.create_answer_link("s", "a").token

    def test_any_change_of_a_letter(self, store, token):
        for place in range(0, len(token), 7):
            changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
            is_refused(store, changed)
        assert store.read_answer_link(token).is_answered is False

    @each("junk", ["", "x", ":", "a:b:c", "é:ü:ö", "\x00", "x" * 100_000, None, 7, b"x"])
    def test_what_is_none(self, store, junk):
        is_refused(store, junk)

    def test_what_was_signed_for_something_else(self, store, token):
        grant = ["s", "a", store.load_state("s").pending_client_tool_calls["a"]["requested_at"], 2**40]
        is_refused(store, signing.dumps(grant))
        is_refused(store, signing.dumps(grant, salt="helix_sessions.answer_links.other"))
        is_refused(store, signing.dumps("s", salt="helix_sessions.answer_links.default"))

    def test_too_old(self, store, token, later):
        later(WEEK + 1)
        is_refused(store, token)

    def test_older_than_it_was_made_for(self, store, later):
        suspended(store, "t", approval("a"))
        token = store.create_answer_link("t", "a", lifetime=timedelta(minutes=1)).token
        later(50)
        assert store.read_answer_link(token).kind == "approval"
        later(11)
        is_refused(store, token)

    def test_older_than_the_setting_allows_now(self, store, token, later, settings):
        later(100)
        settings.HELIX_SESSIONS = {"ANSWER_LINK_SECONDS": 60}
        is_refused(store, token)

    def test_another_secret(self, store, token, settings):
        settings.SECRET_KEY, before = "another", settings.SECRET_KEY
        is_refused(store, token)
        settings.SECRET_KEY_FALLBACKS = [before]
        assert store.read_answer_link(token).kind == "approval"

    def test_the_session_is_gone_or_another_by_its_name(self, store, token):
        store.delete_session("s")
        is_refused(store, token)
        suspended(store, "s", approval("a"))
        is_refused(store, token)
        assert store.load_state("s").pending_client_tool_calls["a"]["submitted_at"] is None

    def test_the_same_call_of_a_later_turn_is_another(self, store, token):
        store.submit_by_answer_link(token, approved=False)
        store.resume("s", run_id="again")
        suspend(store, "s", approval("a"))
        is_refused(store, token)
        assert store.load_state("s").pending_client_tool_calls["a"]["submitted_at"] is None

    def test_the_same_call_of_a_child_is_another(self, store, token):
        store.submit_by_answer_link(token, approved=False)
        store.resume("s", run_id="again")
        child(store, "s", "below", "c")
        suspend(store, "below", approval("a"))
        assert store.submit_by_answer_link(token, approved=True).outcome == "already_completed"
        assert store.load_state("below").pending_client_tool_calls["a"]["submitted_at"] is None

    def test_one_of_an_earlier_release_is_of_one_database(self, store, token):
        said = signing.loads(token, salt=answer_links.SALT)
        older = [signing.dumps(said, salt=f"{answer_links.SALT}.{alias}") for alias in ("default", "other")]
        assert store.read_answer_link(older[0]).kind == "approval"
        is_refused(store, older[1])


def test_a_saved_map_makes_no_link_to_another_tree(store):
    suspended(store, "theirs", asked("a"))
    store.create_session("mine", agent_type="a")
    forged = replace(store.load_state("mine"), client_tool_call_ownership={"a": "theirs"})
    store.save_state("mine", forged)
    with pytest.raises(UnknownToolCall):
        store.create_answer_link("mine", "a")
