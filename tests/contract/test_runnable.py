"""When a session wants to run: one fact, set by whatever causes it, in the same transaction."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.utils import timezone

from helix_sessions.exceptions import InvalidInput, StaleState
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.state import runner_notices
from helix_sessions.stream.hub import hub
from helix_sessions.types import RetentionPolicy
from tests.contract.suspended import asked, calling, child, suspend, suspended, wait_for
from tests.invariants import assert_invariants, dump
from tests.parallel import run_threads

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timedelta(hours=1)
told: list[str] = []


def waker(session_id: str, *, agent_type: str, using: str) -> None:
    assert not connection.in_atomic_block, "runners are told after the commit"
    told.append(session_id)


@pytest.fixture(autouse=True)
def runners(settings: Any) -> list[str]:
    """The sessions of which runners were told."""
    settings.HELIX_SESSIONS = {"WAKER": "tests.contract.test_runnable.waker"}
    told.clear()
    return told


def runnable(store: SessionStore) -> list[str]:
    return [summary.session_id for summary in store.list_runnable()]


def is_due(store: SessionStore, session_id: str = "s") -> bool:
    at = store.load_state(session_id).runnable_at
    return at is not None and at <= timezone.now()


class TestInputs:
    def test_an_input_asks_unless_it_is_only_admitted(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "one", input_id="i", resume=False)
        assert (store.load_state(session).runnable_at, told) == (None, [])
        store.admit_input(session, "one", input_id="i")
        assert is_due(store), "the same admission again"
        assert told == [session]
        assert_invariants(session)

    def test_what_is_only_admitted_waits_whatever_else_happens(self, store: SessionStore) -> None:
        """Until somebody wakes, asks or admits again: a decision about the session is neither."""
        happens: dict[str, Callable[[str], object]] = {
            "completed": lambda key: store.update_status(key, "completed"),
            "completed and active": lambda key: [
                store.update_status(key, status) for status in ("completed", "active")
            ],
            "saved": lambda key: store.save_state(
                key, replace(store.load_state(key), status="completed"), expected_version=None
            ),
            "rewound": lambda key: [
                store.save_state_and_promote_staging(key, store.load_state(key)),
                store.rewind(key),
            ],
            "leased": lambda key: store.release_lease(store.acquire_lease(key, "owner", 60)),
            "moved": lambda key: store.move_session(key, "elsewhere"),
            "interrupted": lambda key: store.set_interrupt_flag(key, "enough"),
            "cancelled another": lambda key: [
                store.admit_input(key, "two", input_id=f"{key} 2", resume=False),
                store.cancel_input(key, f"{key} 2"),
            ],
        }
        for what, happen in happens.items():
            store.create_session(what, agent_type="a")
            store.admit_input(what, "one", input_id=what, resume=False)
            happen(what)
            assert store.load_state(what).runnable_at is None, what
            assert_invariants(what)
            store.request_run(what)
            assert is_due(store, what), what

    def test_what_a_stopped_session_does_with_its_inbox(self, store: SessionStore) -> None:
        wakes = {"active": True, "completed": True, "failed": True, "interrupted": True, "paused": False}
        for status, runs in wakes.items():
            store.create_session(status, agent_type="a")
            store.admit_input(status, "before")
            store.update_status(status, status)
            assert is_due(store, status) is (status in ("active", "completed")), status
            store.admit_input(status, "after")
            assert is_due(store, status) is runs, status
        store.update_status("paused", "active")
        assert is_due(store, "paused")

    def test_one_that_is_due_keeps_its_place_in_the_queue(self, store: SessionStore, session: str) -> None:
        store.admit_input(session, "first")
        since = store.load_state(session).runnable_at
        store.create_session("later", agent_type="a")
        store.admit_input("later", "second")
        store.update_status(session, "completed")
        assert store.load_state(session).runnable_at == since
        assert runnable(store) == [session, "later"]

    def test_a_run_that_ends_leaves_what_it_did_not_take_to_the_next(
        self, store: SessionStore, session: str
    ) -> None:
        for status, left in (("completed", True), ("failed", False), ("interrupted", False)):
            run = store.begin_turn(session).run
            name = store.admit_input(session, "meanwhile").input_id
            assert not is_due(store), "the run under way sees it"
            store.end_run(session, run.run_id, status)
            assert is_due(store) is left, status
            store.cancel_input(session, name)
            assert store.load_state(session).runnable_at is None

    def test_while_it_waits_for_answers_it_waits(self, store: SessionStore) -> None:
        suspended(store, "s", asked("a"))
        store.admit_input("s", "and then?")
        assert runnable(store) == []
        store.submit_tool_result("s", "a", result=1)
        assert runnable(store) == ["s"]


class TestAnswers:
    def test_the_last_answer_makes_it_runnable(self, store: SessionStore) -> None:
        ways: dict[str, Callable[[], Any]] = {
            "submitted": lambda: store.submit_tool_result("s", "b", result=1),
            "by link": lambda: store.submit_by_answer_link(
                store.create_answer_link("s", "b").token, result=1
            ),
            "by deadline": lambda: store.settle_expired_calls(timezone.now() + 2 * LATER),
        }
        for way, answer in ways.items():
            told.clear()
            store.delete_session("s")
            suspended(store, "s", asked("a"), asked("b", deadline=timezone.now() + LATER))
            assert store.submit_tool_result("s", "a", result=1).remaining == 1
            assert (runnable(store), told) == ([], []), way
            answer()
            assert (runnable(store), told) == (["s"], ["s"]), way
            assert store.resume("s").run.status == "running"
            assert_invariants("s")

    def test_in_the_transaction_of_the_answer(self, store: SessionStore) -> None:
        suspended(store, "s", asked("a"))
        with transaction.atomic():
            store.submit_tool_result("s", "a", result=1)
            assert (is_due(store), told) == (True, [])
            transaction.set_rollback(True)
        assert (runnable(store), told) == ([], [])

    def test_who_answered_is_logged(self, store: SessionStore) -> None:
        deadline = timezone.now() + LATER
        suspended(store, "s", *(asked(name, deadline=deadline) for name in "abcd"))
        store.submit_tool_result("s", "a", result=1, by={"kind": "operator", "id": "7"})
        store.submit_tool_result("s", "b", result=1)
        store.submit_by_answer_link(store.create_answer_link("s", "c").token, result=1)
        store.settle_expired_calls(deadline + LATER)
        answers = store.get_events("s", types=["tool_result_submitted"])
        assert [(event.data["tool_call_id"], event.data["by"]) for event in answers] == [
            ("a", {"kind": "operator", "id": "7"}),
            ("b", {"kind": "code", "id": None}),
            ("c", {"kind": "link", "id": None}),
            ("d", {"kind": "deadline", "id": None}),
        ]
        for wrong in ("me", {"kind": "me"}, {"kind": "user", "name": "x"}, {"kind": "user", "id": 7}, {}):
            with pytest.raises(InvalidInput):
                store.submit_tool_result("s", "a", result=1, by=wrong)  # type: ignore[arg-type]

    def test_a_stopped_session_stays_stopped(self, store: SessionStore) -> None:
        for status in ("paused", "interrupted"):
            store.delete_session("s")
            suspended(store, "s", asked("a"))
            store.update_status("s", status)
            store.submit_tool_result("s", "a", result=1)
            assert runnable(store) == [], status
            store.update_status("s", "active")
            assert runnable(store) == ["s"], status

    def test_the_last_child_makes_its_parent_runnable(self, store: SessionStore) -> None:
        ways: dict[str, Callable[[], Any]] = {
            "settled": lambda: store.settle_child("two", "completed", output=2),
            "ended": lambda: store.end_run("two", _run(store, "two"), "completed", output=2),
            "failed by an operator": lambda: store.update_status("two", "failed", error="enough"),
            "expired": lambda: _expire(store, "two"),
            "deleted": lambda: store.delete_session("two"),
            "erased": lambda: _erase(store, "two"),
        }
        for way, end in ways.items():
            store.delete_session("s")
            store.begin_turn("s", message="hello")
            child(store, "s", "one", "c1")
            child(store, "s", "two", "c2")
            waits = [wait_for("c1", "one"), wait_for("c2", "two")]
            suspend(
                *(store, "s"),
                kind="awaiting_children",
                append_messages=[calling("c1", "c2")],
                awaiting_children=waits,
            )
            store.settle_child("one", "completed", output=1)
            assert not is_due(store), way
            end()
            assert is_due(store), way
            results = store.resume("s").tool_messages
            assert results[0]["content"] == 1
            assert bool(results[1].get("is_error")) is (way not in ("settled", "ended")), way
            assert_invariants("s")

    def test_a_deleted_child_is_settled_in_the_transaction_of_its_deletion(self, store: SessionStore) -> None:
        _waiting_parent(store)
        with transaction.atomic():
            store.delete_session("one")
            assert (is_due(store), told) == (True, [])
            transaction.set_rollback(True)
        assert (is_due(store), told) == (False, [])
        store.delete_session("one")
        assert (runnable(store), told) == (["s"], ["s"])
        [told_of] = store.get_events("s", types=["subagent_result"])
        assert told_of.data["status"] == "failed"
        assert told_of.data["failure_reason"] == "deleted"
        assert _wait(store)["status"] == "failed"

    def test_what_is_deleted_with_the_child_of_another(self, store: SessionStore) -> None:
        """A reference of another session takes the child along; its parent is told all the same."""
        _waiting_parent(store)
        store.create_session("other", agent_type="a")
        store.add_sub_session_refs("other", [{"sub_session_id": "one", "agent_type": "helper"}])
        store.delete_session("other")
        assert is_due(store)
        assert_invariants("s")

    def test_a_child_that_is_deleted_with_its_parent(self, store: SessionStore) -> None:
        _waiting_parent(store)
        store.add_sub_session_refs("one", [{"sub_session_id": "s", "agent_type": "a"}])
        store.delete_session("one")
        assert not Session.objects.exists()
        assert told == []

    def test_an_erased_tree_is_not_woken_on_the_way(self, store: SessionStore) -> None:
        _waiting_parent(store)
        Session.objects.update(user_id="me")
        assert store.erase_user(user_id="me").sessions == 2
        assert (told, Session.objects.count()) == ([], 0)

    def test_a_pruned_child(self, store: SessionStore) -> None:
        """Its parent began to wait, in a state of its own making, for what had ended."""
        store.create_session("s", agent_type="a")
        child(store, "s", "one", "c1")
        store.end_run("one", _run(store, "one"), "completed", output=1)
        wait = {"c1": {"parent_tool_call_id": "c1", "sub_session_id": "one", "agent_type": "helper"}}
        store.save_state("s", replace(store.load_state("s"), suspended_awaiting_children=wait))
        assert not is_due(store)
        policy = RetentionPolicy(terminal_for=timedelta(0), agent_types=("helper",))
        assert store.prune_sessions(policy).sessions == 1
        assert is_due(store)
        assert _wait(store)["output"] == 1

    def test_a_child_that_had_ended_before(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        child(store, "s", "one", "c1")
        store.end_run("one", _run(store, "one"), "completed", output=1)
        suspend(
            *(store, "s"),
            kind="awaiting_children",
            append_messages=[calling("c1")],
            awaiting_children=[wait_for("c1", "one")],
        )
        assert is_due(store)


class TestRequests:
    def test_twice_is_one(self, store: SessionStore, session: str) -> None:
        before = store.load_state(session)
        state = store.request_run(session)
        assert state == store.load_state(session)
        assert (state.version, is_due(store)) == (before.version + 1, True)
        rows = dump()
        assert store.request_run(session) == state
        assert store.request_run(session, at=timezone.now() + LATER) == state
        assert dump() == rows
        assert [event.data for event in store.get_events(session, types=["run_requested"])] == [{}]
        assert told == [session] * 3, "runners are told again"

    def test_not_before_its_time(self, store: SessionStore, session: str) -> None:
        at = timezone.now() + LATER
        assert store.request_run(session, at=at).runnable_at == at
        assert (runnable(store), told) == ([], [])
        assert [row.session_id for row in Session.objects.runnable(at)] == [session]
        assert store.request_run(session, at=at + LATER).runnable_at == at, "the earlier stands"
        store.request_run(session)
        assert runnable(store) == [session]

    def test_of_any_status(self, store: SessionStore) -> None:
        for status in ("active", "completed", "failed", "interrupted", "paused"):
            store.create_session(status, agent_type="a")
            store.update_status(status, status)
            assert not is_due(store, status)
            store.request_run(status)
            assert is_due(store, status), status
            assert store.load_state(status).status == status
            store.begin_turn(status)
            assert not is_due(store, status), "it has its run"

    def test_while_a_run_is_under_way_another_follows_it(self, store: SessionStore, session: str) -> None:
        later = timezone.now() + LATER
        for at, due in ((None, True), (later, False)):
            run = store.begin_turn(session).run
            store.request_run(session, at=at)
            assert not is_due(store)
            store.end_run(session, run.run_id, "completed")
            assert is_due(store) is due
            assert at in (None, store.load_state(session).runnable_at)

    def test_while_it_waits_it_follows_the_answers(self, store: SessionStore) -> None:
        suspended(store, "s", asked("a"))
        assert store.request_run("s").runnable_at is None
        store.submit_tool_result("s", "a", result=1)
        assert is_due(store)
        store.resume("s")
        assert not Session.objects.get().run_requested

    def test_a_stopped_one_that_waits_follows_the_answers_if_it_was_asked(self, store: SessionStore) -> None:
        ways: dict[str, Callable[[], Any]] = {
            "a request": lambda: store.request_run("s"),
            "a retry": lambda: store.retry_run("s"),
            "an input": lambda: store.admit_input("s", "go on"),
        }
        for status in ("paused", "interrupted"):
            for way, ask in ways.items():
                store.delete_session("s")
                suspended(store, "s", asked("a"))
                store.update_status("s", status)
                ask()
                assert runnable(store) == [], (status, way)
                store.submit_tool_result("s", "a", result=1)
                keeps = (status, way) == ("paused", "an input")
                assert runnable(store) == ([] if keeps else ["s"]), (status, way)
                assert_invariants("s")

    def test_a_retry_counts_from_the_beginning(self, store: SessionStore, session: str) -> None:
        for call, counts in ((store.request_run, (3, 2)), (store.retry_run, (0, 0))):
            Session.objects.update(attempts=3, retry_attempt=2, runnable_at=timezone.now() + LATER)
            call(session)
            row = Session.objects.get()
            assert (row.attempts, row.retry_attempt) == counts
            assert is_due(store), "it is brought forward"
            store.update_status(session, "failed")
        assert store.get_events(session, types=["run_requested"])[-1].data == {"retry": True}

    def test_a_run_that_waits_for_its_retry_is_brought_forward(
        self, store: SessionStore, session: str
    ) -> None:
        store.begin_turn(session)
        Session.objects.update(retry_attempt=2, runnable_at=timezone.now() + LATER)
        store.request_run(session)
        assert is_due(store)
        assert not Session.objects.get().run_requested, "the retry is the run"

    def test_a_stop_forgets_what_was_asked_for(self, store: SessionStore, session: str) -> None:
        for status in ("failed", "interrupted", "paused"):
            store.request_run(session)
            store.update_status(session, status)
            assert store.load_state(session).runnable_at is None, status
            store.update_status(session, "active")
            assert store.load_state(session).runnable_at is None, status

    def test_bad_arguments(self, store: SessionStore, session: str) -> None:
        for at in ("soon", datetime(2030, 1, 1), 5):
            with pytest.raises(InvalidInput):
                store.request_run(session, at=at)  # type: ignore[arg-type]
        with pytest.raises(StaleState):
            store.request_run(session, expected_version=9)
        with pytest.raises(StaleState):
            store.retry_run(session, expected_version=9)
        assert store.request_run(session, at=datetime(2000, 1, 1, tzinfo=UTC)).runnable_at > (  # type: ignore[operator]
            timezone.now() - LATER
        ), "nobody jumps the queue"

    def test_many_ask_at_once(self, store: SessionStore, session: str) -> None:
        run_threads(6, lambda number: SessionStore().request_run(session))
        assert len(store.get_events(session, types=["run_requested"])) == 1


class TestOwners:
    def test_a_lease_says_until_when_the_owner_is_trusted(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "w", 30)
        assert store.load_state(session).runnable_at is None, "nothing runs yet"
        owned = store.fenced(lease)
        owned.begin_turn(session)
        assert store.load_state(session).runnable_at == lease.expires_at
        lease = store.renew_lease(lease, 60)
        assert store.load_state(session).runnable_at == lease.expires_at
        assert runnable(store) == []
        lease = store.renew_lease(lease, 0)
        assert runnable(store) == [session], "the owner is gone"
        store.acquire_lease(session, "another", 30)
        assert runnable(store) == []

    def test_a_run_without_a_lease_has_so_long_to_give_a_sign(
        self, store: SessionStore, session: str, settings: Any
    ) -> None:
        settings.HELIX_SESSIONS = {"RUN_OWNER_TIMEOUT": 600}
        store.begin_turn(session)
        left = store.load_state(session).runnable_at - timezone.now()  # type: ignore[operator]
        assert timedelta(seconds=590) < left <= timedelta(seconds=600)
        lease = store.acquire_lease(session, "w", 5)
        store.release_lease(lease)
        left = store.load_state(session).runnable_at - timezone.now()  # type: ignore[operator]
        assert timedelta(seconds=590) < left <= timedelta(seconds=600)
        store.update_run_status(session, _run(store, session), "completed")
        assert store.load_state(session).runnable_at is None

    def test_what_a_crash_or_a_move_stopped_is_to_run_again(self, store: SessionStore) -> None:
        for stop in (lambda: store.wake("s"), lambda: store.move_session("s", "elsewhere")):
            store.delete_session("s")
            store.begin_turn("s", message="hello")
            stop()
            assert runnable(store) == ["s"]
            assert store.get_current_run("s") is None
            assert_invariants("s")

    def test_the_agents_last_sign(self, store: SessionStore, session: str) -> None:
        def sign() -> Any:
            return store.load_state(session).last_agent_activity_at

        assert sign() is None
        run = store.begin_turn(session).run
        before = sign()
        assert before is not None
        for operator in (
            lambda: store.patch_metadata(session, {"a": 1}),
            lambda: store.set_interrupt_flag(session, "stop"),
            lambda: store.admit_input(session, "hello"),
            lambda: store.set_expiry(session, None),
            lambda: store.request_run(session),
            lambda: store.append_messages(session, [{"role": "user", "content": "hello"}]),
        ):
            operator()
            assert sign() == before, "an operator is no agent"
        for agent in (
            lambda: store.append_messages(session, [{"role": "assistant", "content": "hello"}]),
            lambda: store.emit_event(session, "progress"),
            lambda: store.save_state(session, store.load_state(session)),
            lambda: store.update_run_status(session, run.run_id, "running", usage={"tokens": 1}),
            lambda: store.acquire_lease(session, "w", 30),
            lambda: store.fenced(store.get_lease(session)).patch_metadata(session, {"b": 1}),  # type: ignore[arg-type]
        ):
            agent()
            assert sign() > before
            before = sign()
        assert list(Session.objects.stuck(timezone.now())) == [Session.objects.get()]
        assert not Session.objects.stuck(before).exists()


class TestFinding:
    def test_one_index_probe_whatever_the_number(self, store: SessionStore) -> None:
        for number in range(200):
            store.create_session(f"s{number}", agent_type=f"type{number % 4}")
        store.request_run("s5")
        found = store.list_runnable(agent_types=["type1", "type2"], limit=1)
        assert [summary.session_id for summary in found] == ["s5"]
        assert store.list_runnable(agent_types=["type0"]) == store.list_runnable(agent_types=[]) == []
        rows = Session.objects.runnable().filter(agent_type="type1")[:1]
        if "postgresql" in django_settings.DATABASES["default"]["ENGINE"]:
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE helix_sessions_session")
                cursor.execute("SET enable_seqscan = off")
            plan = rows.explain()
            with connection.cursor() as cursor:
                cursor.execute("RESET enable_seqscan")
        else:
            plan = rows.explain()
        assert "helix_session_runnable_idx" in plan, plan

    def test_the_longest_waiting_first(self, store: SessionStore) -> None:
        for name in ("b", "a", "c"):
            store.create_session(name, agent_type="x")
            store.request_run(name)
        assert runnable(store) == ["b", "a", "c"]

    def test_workers_of_this_process_are_poked(
        self, store: SessionStore, session: str, settings: Any
    ) -> None:
        settings.HELIX_SESSIONS = {"WAKER": "", "STREAM_NOTIFY": False}  # LISTEN pokes every watcher once
        poked = threading.Event()

        class Worker:
            def poke(self, first_seq: int | None) -> None:
                poked.set()

            def offer(self, fragment: Any) -> None: ...

            def detach(self) -> None: ...

        worker, key = Worker(), (store.using, runner_notices.RUNNERS)
        hub.watch(key, worker)
        try:
            store.request_run(session, at=timezone.now() + LATER)
            assert not poked.is_set()
            with transaction.atomic():
                store.request_run(session)
                assert not poked.is_set()
            assert poked.is_set()
        finally:
            hub.unwatch(key, worker)


def _run(store: SessionStore, session_id: str) -> str:
    run = store.get_current_run(session_id)
    assert run is not None
    return run.run_id


def _expire(store: SessionStore, session_id: str) -> None:
    store.set_expiry(session_id, timezone.now() - LATER)
    assert store.expired_session_cleanup(rest=0).marked == 1


def _erase(store: SessionStore, session_id: str) -> None:
    Session.objects.filter(session_id=session_id).update(user_id="erased")
    assert store.erase_user(user_id="erased").sessions == 1


def _waiting_parent(store: SessionStore) -> None:
    """The session `s` waits for its child `one`."""
    store.begin_turn("s", message="hello")
    child(store, "s", "one", "c1")
    suspend(
        *(store, "s"),
        kind="awaiting_children",
        append_messages=[calling("c1")],
        awaiting_children=[wait_for("c1", "one")],
    )
    told.clear()


def _wait(store: SessionStore) -> Any:
    """What `s` knows of the child it waits for."""
    return (store.load_state("s").suspended_awaiting_children or {})["c1"]
