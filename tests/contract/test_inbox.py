"""Prompts: admitted durably and once, changed while they are pending, promoted one transaction each."""

from typing import Any

import pytest

from helix_sessions.exceptions import (
    InboxFull,
    InputConflict,
    InputNotFound,
    InvalidDocument,
    InvalidInput,
    SessionNotFound,
    StaleState,
)
from helix_sessions.models import Input, InputClaim
from helix_sessions.store import AsyncSessionStore, SessionStore
from tests.invariants import assert_invariants
from tests.rows import each

pytestmark = pytest.mark.django_db


def ids(receipts: list[Any]) -> list[str]:
    return [receipt.input_id for receipt in receipts]


class TestEnsure:
    def test_an_absent_session_is_created_with_its_fields(self, store: SessionStore) -> None:
        state = store.ensure_session("s", agent_type="writer", user_id="u", custom_state={"a": 1})
        assert (state.agent_type, state.user_id, state.custom_state) == ("writer", "u", {"a": 1})
        assert state == store.load_state("s")

    def test_a_reused_id_returns_the_session_as_it_is_now(self, store: SessionStore, session: str) -> None:
        store.patch_metadata(session, {"a": 1})
        state = store.ensure_session(session, agent_type="other", user_id="u", tags="not a list")
        assert state == store.load_state(session)
        assert (state.agent_type, state.version, state.user_id) == ("writer", 2, None)

    def test_without_an_id_each_is_new(self, store: SessionStore) -> None:
        first, second = (store.ensure_session(agent_type="writer").session_id for _ in range(2))
        assert first != second

    def test_another_owners_session_is_unknown(self, store: SessionStore, django_user_model: Any) -> None:
        ann, eve = (django_user_model.objects.create(username=name) for name in ("ann", "eve"))
        store.create_session("s", agent_type="writer", owner=ann)
        with pytest.raises(SessionNotFound):
            SessionStore(owned_by=eve).ensure_session("s", agent_type="writer")


class TestAdmission:
    def test_the_receipt(self, store: SessionStore, session: str) -> None:
        receipt = store.admit_input(session, "hello", input_id="i")
        assert receipt.input_id == "i"
        assert (receipt.session_id, receipt.prompt, receipt.delivery) == (session, "hello", "steer")
        assert (receipt.admitted_seq, receipt.promoted_seq) == (2, None)
        [event] = store.get_events(session, 2)
        assert (event.type, event.data) == ("input_admitted", {"input_id": "i", "delivery": "steer"})
        assert receipt.created_at == event.created_at
        assert_invariants(session)

    def test_it_is_in_no_message_yet(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello")
        assert store.get_messages(session).messages == []
        assert store.list_inputs(session)[0].prompt == "hello"

    def test_an_id_is_made_where_none_is_given(self, store: SessionStore, session: str) -> None:
        assert len({store.admit_input(session, "hello").input_id for _ in range(3)}) == 3

    def test_the_same_again_is_the_same_receipt(self, store: SessionStore, session: str) -> None:
        first = store.admit_input(session, {"content": "hi", "n": 1}, input_id="i", delivery="queue")
        version = store.load_state(session).version
        again = store.admit_input(session, {"n": 1, "content": "hi"}, input_id="i", delivery="queue")
        assert again == first
        assert store.load_state(session).version == version

    def test_a_repeated_one_knows_where_it_was_promoted(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        [promoted] = store.promote_inputs(session, "steer")
        assert store.admit_input(session, "hello", input_id="i") == promoted

    @each(
        ("prompt", "options"),
        [
            ("other", {}),
            ("hello", {"delivery": "queue"}),
            ({"content": "hello"}, {}),
        ],
    )
    def test_anything_else_under_that_id_is_a_conflict(
        self, store: SessionStore, session: str, prompt: Any, options: dict[str, Any]
    ) -> None:
        store.admit_input(session, "hello", input_id="i")
        before = store.load_state(session)
        with pytest.raises(InputConflict):
            store.admit_input(session, prompt, input_id="i", **options)
        assert store.load_state(session) == before

    def test_one_and_true_are_different_prompts(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, {"content": 1}, input_id="i")
        for other in (True, 1.0, [1]):
            with pytest.raises(InputConflict):
                store.admit_input(session, {"content": other}, input_id="i")

    def test_an_id_of_another_session_is_a_conflict(self, store: SessionStore, session: str) -> None:
        store.create_session("t", agent_type="writer")
        store.admit_input(session, "hello", input_id="i")
        with pytest.raises(InputConflict):
            store.admit_input("t", "hello", input_id="i")
        assert store.load_state("t").version == 1
        assert InputClaim.objects.get().session_id == session

    def test_an_id_of_another_owner_is_free(self, store: SessionStore, django_user_model: Any) -> None:
        """So it tells nothing of what others have, and cannot be taken from them."""
        one, other = (django_user_model.objects.create_user(name) for name in ("one", "other"))
        scopes = {"mine": one, "theirs": other, "nobodys": None}
        for key, owner in scopes.items():
            store.create_session(key, agent_type="writer", owner=owner)
        receipts = {key: store.admit_input(key, f"of {key}", input_id="i") for key in scopes}
        for key, owner in scopes.items():
            assert store.admit_input(key, f"of {key}", input_id="i") == receipts[key], key
            store.create_session(f"{key} too", agent_type="writer", owner=owner)
            with pytest.raises(InputConflict):
                store.admit_input(f"{key} too", f"of {key}", input_id="i")
        store.delete_session("mine")
        store.admit_input("mine too", "again", input_id="i")
        one.delete()
        store.admit_input("mine too", "again", input_id="i")
        assert_invariants("mine too")

    def test_a_cancelled_one_is_a_conflict(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        store.cancel_input(session, "i")
        with pytest.raises(InputConflict):
            store.admit_input(session, "hello", input_id="i")

    def test_compared_is_the_delivery_as_admitted(self, store: SessionStore, session: str) -> None:
        first = store.admit_input(session, "hello", input_id="i", delivery="queue")
        store.set_delivery(session, "i", "steer")
        assert store.admit_input(session, "hello", input_id="i", delivery="queue") == first
        with pytest.raises(InputConflict):
            store.admit_input(session, "hello", input_id="i", delivery="steer")

    def test_a_refused_version_does_not_hide_that_it_was_admitted(
        self, store: SessionStore, session: str
    ) -> None:
        first = store.admit_input(session, "hello", input_id="i", expected_version=1)
        assert store.admit_input(session, "hello", input_id="i", expected_version=1) == first
        with pytest.raises(StaleState):
            store.admit_input(session, "hello", input_id="j", expected_version=1)

    def test_an_inbox_has_a_limit(self, store: SessionStore, session: str, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"INBOX_LIMIT": 2}
        first = store.admit_input(session, "one", input_id="1")
        store.admit_input(session, "two")
        with pytest.raises(InboxFull):
            store.admit_input(session, "three", input_id="3")
        assert store.admit_input(session, "one", input_id="1") == first
        assert not InputClaim.objects.filter(input_id="3").exists()
        store.promote_inputs(session, "steer")
        store.admit_input(session, "three", input_id="3")
        assert_invariants(session)

    def test_the_limit_is_a_thousand(self) -> None:
        from helix_sessions.conf import conf

        assert conf.INBOX_LIMIT == 1000

    def test_an_unknown_session(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            store.admit_input("u", "hello", input_id="i")
        assert not InputClaim.objects.exists()

    @each("prompt", [None, 1, True, ["hello"], b"hello", {"a": float("nan")}, "\ud800"])
    def test_a_prompt_is_a_string_or_an_object(self, store: SessionStore, session: str, prompt: Any) -> None:
        with pytest.raises(InvalidDocument):
            store.admit_input(session, prompt)

    @each("prompt", [{"role": "system"}, {"role": None}, {"id": "another"}])
    def test_an_object_cannot_pretend_to_be_another_message(
        self, store: SessionStore, session: str, prompt: Any
    ) -> None:
        with pytest.raises(InvalidDocument):
            store.admit_input(session, prompt, input_id="i")

    @each("options", [{"delivery": "later"}, {"delivery": None}, {"resume": 1}, {"input_id": ""}])
    def test_other_arguments(self, store: SessionStore, session: str, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput):
            store.admit_input(session, "hello", **options)

    def test_the_id_is_free_when_its_session_is_gone(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        store.delete_session(session)
        assert not InputClaim.objects.exists()
        store.create_session("t", agent_type="writer")
        assert store.admit_input("t", "other", input_id="i").session_id == "t"

    def test_a_branch_has_an_inbox_of_its_own(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello")
        store.clone_session(session, "branch")
        assert store.list_inputs("branch") == []
        assert_invariants("branch")

    def test_inside_a_transaction_that_is_rolled_back(self, store: SessionStore, session: str) -> None:
        from django.db import transaction

        store.admit_input(session, "hello", input_id="i")
        with transaction.atomic():
            with pytest.raises(InputConflict):
                store.admit_input(session, "other", input_id="i")
            store.admit_input(session, "third", input_id="j")
            transaction.set_rollback(True)
        assert ids(store.list_inputs(session)) == ["i"]


WOKEN: list[tuple[str, str, str]] = []


def waker(session_id: str, *, agent_type: str, using: str) -> None:
    WOKEN.append((session_id, agent_type, using))
    if session_id == "broken":
        raise RuntimeError("the queue is down")


@pytest.mark.django_db(transaction=True)
class TestWaking:
    @pytest.fixture(autouse=True)
    def _woken(self, settings: Any) -> None:
        settings.HELIX_SESSIONS = {"WAKER": "tests.contract.test_inbox.waker"}
        WOKEN.clear()

    def test_an_admission_wakes_and_so_does_the_same_again(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        for _ in range(2):
            store.admit_input("s", "hello", input_id="i")
        assert WOKEN == [("s", "writer", "default")] * 2

    def test_unless_it_is_not_to(self, store: SessionStore) -> None:
        store.create_session("s", agent_type="writer")
        for _ in range(2):
            store.admit_input("s", "hello", input_id="i", resume=False)
        assert WOKEN == []

    def test_after_the_commit_of_the_transaction_around_it(self, store: SessionStore) -> None:
        from django.db import transaction

        store.create_session("s", agent_type="writer")
        with transaction.atomic():
            store.admit_input("s", "hello")
            assert WOKEN == []
        assert len(WOKEN) == 1

    def test_a_waker_that_fails_loses_nothing(self, store: SessionStore) -> None:
        store.create_session("broken", agent_type="writer")
        assert store.admit_input("broken", "hello") == store.list_inputs("broken")[0]


class TestListing:
    def test_pending_or_all_in_the_order_of_admission(self, store: SessionStore, session: str) -> None:
        for name in "cab":
            store.admit_input(session, name, input_id=name, delivery="queue" if name == "a" else "steer")
        assert ids(store.list_inputs(session)) == ["c", "a", "b"]
        store.promote_inputs(session, "steer")
        assert ids(store.list_inputs(session)) == ["a"]
        everything = store.list_inputs(session, pending=False)
        assert ids(everything) == ["c", "a", "b"]
        assert [receipt.promoted_seq is not None for receipt in everything] == [True, False, True]


class TestChanges:
    def test_cancelling(self, store: SessionStore, session: str) -> None:
        receipt = store.admit_input(session, "hello", input_id="i")
        assert store.cancel_input(session, "i") == receipt
        assert store.list_inputs(session) == []
        assert store.promote_inputs(session, "queue") == []
        assert store.get_messages(session).messages == []
        assert_invariants(session)

    def test_delivery(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        assert store.set_delivery(session, "i", "queue").delivery == "queue"
        assert store.promote_inputs(session, "steer") == []
        assert ids(store.promote_inputs(session, "queue")) == ["i"]

    @each("over", ["promoted", "cancelled"])
    def test_only_while_it_is_pending(self, store: SessionStore, session: str, over: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        if over == "promoted":
            store.promote_inputs(session, "steer")
        else:
            store.cancel_input(session, "i")
        before = store.load_state(session)
        with pytest.raises(InputConflict):
            store.cancel_input(session, "i")
        with pytest.raises(InputConflict):
            store.set_delivery(session, "i", "queue")
        assert store.load_state(session) == before

    def test_unknown_ones(self, store: SessionStore, session: str) -> None:
        store.create_session("t", agent_type="writer")
        store.admit_input("t", "hello", input_id="of another")
        for name in ("unknown", "of another"):
            with pytest.raises(InputNotFound):
                store.cancel_input(session, name)
            with pytest.raises(InputNotFound):
                store.set_delivery(session, name, "queue")


class TestPromotion:
    def test_a_string_becomes_the_content_of_a_users_message(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "hello", input_id="i")
        [receipt] = store.promote_inputs(session, "steer")
        assert store.get_messages(session).messages == [{"role": "user", "id": "i", "content": "hello"}]
        [event] = store.get_events(session, receipt.promoted_seq)
        assert (event.type, event.data["id"]) == ("user_message", "i")
        assert store.list_inputs(session, pending=False) == [receipt]
        assert_invariants(session)

    def test_an_objects_keys_are_the_messages(self, store: SessionStore, session: str) -> None:
        prompt = {"content": [{"type": "text", "text": "\x00"}], "z": None, "a": 10**30}
        store.admit_input(session, prompt, input_id="i")
        store.promote_inputs(session, "steer")
        [message] = store.get_messages(session).messages
        assert message == {"role": "user", "id": "i", **prompt}
        assert list(message) == ["role", "id", "content", "z", "a"]

    def test_steers_in_the_order_of_their_admission(self, store: SessionStore, session: str) -> None:
        for name in "cab":
            store.admit_input(session, name, input_id=name)
        store.admit_input(session, "later", delivery="queue")
        assert ids(store.promote_inputs(session, "steer")) == ["c", "a", "b"]
        assert [message["id"] for message in store.get_messages(session).messages] == ["c", "a", "b"]

    def test_one_queued_input_then_the_steers(self, store: SessionStore, session: str) -> None:
        for name, delivery in (("s1", "steer"), ("q1", "queue"), ("q2", "queue"), ("s2", "steer")):
            store.admit_input(session, name, input_id=name, delivery=delivery)
        assert ids(store.promote_inputs(session, "queue")) == ["q1", "s1", "s2"]
        assert ids(store.promote_inputs(session, "queue")) == ["q2"]
        assert store.promote_inputs(session, "queue") == []

    def test_each_is_a_transaction_of_its_own(self, store: SessionStore, session: str) -> None:
        for name in "ab":
            store.admit_input(session, name)
        before = store.load_state(session)
        store.promote_inputs(session, "steer")
        after = store.load_state(session)
        assert (after.version, after.head_seq) == (before.version + 2, before.head_seq + 2)

    def test_a_mode(self, store: SessionStore, session: str) -> None:
        with pytest.raises(InvalidInput):
            store.promote_inputs(session, "all")
        with pytest.raises(SessionNotFound):
            store.promote_inputs("u", "steer")


@pytest.mark.django_db(transaction=True)
def test_awaited(astore: AsyncSessionStore) -> None:
    from asgiref.sync import async_to_sync

    async def scenario() -> list[Any]:
        await astore.ensure_session("s", agent_type="writer")
        await astore.admit_input("s", "hello", input_id="i")
        return await astore.promote_inputs("s", "steer")

    assert ids(async_to_sync(scenario)()) == ["i"]


def test_an_exported_inbox_is_imported(store: SessionStore, session: str) -> None:
    import io

    store.admit_input(session, "one", input_id="1")
    store.promote_inputs(session, "steer")
    store.admit_input(session, "two", input_id="2", delivery="queue")
    store.acquire_lease(session, "worker", 30)
    file = io.StringIO()
    store.export_sessions(file, session_ids=[session])
    before = store.list_inputs(session, pending=False)
    store.import_sessions(io.StringIO(file.getvalue()), on_collision="renew")
    [copy] = {summary.session_id for summary in store.list_sessions().items} - {session}
    assert store.get_lease(copy) is None
    assert ids(store.list_inputs(copy)) == ["2"]
    with pytest.raises(InputConflict):
        store.admit_input(copy, "two", input_id="2", delivery="queue")
    store.delete_session(copy)
    assert store.admit_input(session, "two", input_id="2", delivery="queue") == before[1]
    store.delete_session(session)
    store.import_sessions(io.StringIO(file.getvalue()))
    assert store.admit_input(session, "two", input_id="2", delivery="queue") == before[1]
    assert_invariants(session)


def test_the_doctor_counts(store: SessionStore, session: str) -> None:
    from helix_sessions.models import Session

    store.admit_input(session, "hello", input_id="i")
    Session.objects.update(pending_inputs=3)
    [finding] = store.examine_sessions(repair=True)
    assert (finding.code, finding.repaired) == ("pending_inputs", True)
    assert_invariants(session)
    Input.objects.update(promoted_seq=2)
    assert "input_without_message" in {finding.code for finding in store.examine_sessions()}


def test_an_expected_version_is_that_before_the_first_of_several(store: SessionStore, session: str) -> None:
    for n, delivery in enumerate(["queue", "steer", "steer"]):
        store.admit_input(session, "hello", input_id=f"i{n}", delivery=delivery)
    version = store.load_state(session).version

    promoted = store.promote_inputs(session, "queue", expected_version=version)
    assert ids(promoted) == ["i0", "i1", "i2"]
    with pytest.raises(StaleState):
        store.promote_inputs(session, "steer", expected_version=version)
    for n in (3, 4):
        store.admit_input(session, "hello", input_id=f"i{n}")
    version = store.load_state(session).version
    assert ids(store.promote_inputs(session, "steer", expected_version=version)) == ["i3", "i4"]


def test_the_unattended_come_in_the_order_they_wait(store: SessionStore) -> None:
    for key in ("b", "c", "a"):
        store.create_session(key, agent_type="writer")
        store.admit_input(key, "hello")
    store.admit_input("b", "again")

    with pytest.warns(DeprecationWarning, match="list_runnable") as warned:
        assert [found.session_id for found in store.list_unattended()] == ["b", "c", "a"]
    assert warned[0].filename == __file__, "the caller is named"
    assert [found.session_id for found in store.list_unattended(limit=2)] == ["b", "c"]
