"""Decisions from outside hold: the run ends with the reason, and its driver writes nothing more."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import Fenced, RunEnded
from helix_sessions.models import Run as RunRow
from helix_sessions.models import Session
from helix_sessions.runtime import SessionRuntime, SuspendSession
from helix_sessions.store import SessionStore
from helix_sessions.store.driving import claims
from helix_sessions.types import Lease, SubSessionRef
from tests.contract.suspended import asked, calling, child, suspend, suspended, wait_for
from tests.invariants import assert_healthy, assert_invariants, dump

pytestmark = pytest.mark.django_db(transaction=True)


def driven(store: SessionStore) -> tuple[Lease, str]:
    """A session that somebody drives: under which lease, and its run."""
    store.delete_session("s")
    store.create_session("s", agent_type="a")
    store.create_checkpoint("s")
    lease = store.acquire_lease("s", "driver", 300)
    turn = store.fenced(lease).begin_turn("s", message="hello")
    return lease, turn.run.run_id


def _expire(store: SessionStore) -> None:
    store.set_expiry("s", timezone.now() - timedelta(hours=1))
    assert store.expired_session_cleanup(rest=0).marked == 1


def _suspend(store: SessionStore) -> None:
    SessionRuntime(store).execute("s", SuspendSession())


DECISIONS: dict[str, tuple[Callable[[SessionStore], Any], str, str | None, str]] = {
    "failed": (lambda s: s.update_status("s", "failed", error="no"), "failed", "session_failed", "failed"),
    "failed, with a reason": (
        lambda s: s.compare_and_set_status("s", ["active"], "failed", failure_reason="tired"),
        *("failed", "tired", "failed"),
    ),
    "completed": (lambda s: s.update_status("s", "completed"), "completed", "session_completed", "completed"),
    "paused": (lambda s: s.update_status("s", "paused"), "interrupted", "session_paused", "paused"),
    "interrupted": (
        lambda s: s.update_status("s", "interrupted"),
        *("interrupted", "session_interrupted", "interrupted"),
    ),
    "suspended by an action": (_suspend, "interrupted", "session_paused", "paused"),
    "expired": (_expire, "failed", "session_expired", "failed"),
    "settled": (lambda s: s.settle_child("s", "failed"), "failed", "session_failed", "failed"),
    "moved": (lambda s: s.move_session("s", "there"), "interrupted", "session_moved", "active"),
    "rewound": (lambda s: s.rewind("s"), "interrupted", "session_rewound", "active"),
    "woken": (lambda s: s.wake("s"), "interrupted", "session_woken", "active"),
}


def test_the_run_ends_and_the_driver_is_fenced(store: SessionStore) -> None:
    for name, (decide, run_status, reason, status) in DECISIONS.items():
        lease, run_id = driven(store)
        decide(store)
        run = store.get_run("s", run_id)
        assert (run.status, run.ended_at is not None) == (run_status, True), name
        assert store.load_state("s").status == status, name
        [event] = store.get_events("s", types=["run_finished"])
        assert event.data.get("reason") == reason, name
        assert (store.get_lease("s"), Session.objects.get().fence) == (None, lease.fence + 1), name
        rows, owned = dump(), store.fenced(lease)
        for write in (
            lambda owned=owned: owned.append_messages("s", [{"role": "assistant", "content": "late"}]),
            lambda owned=owned, run_id=run_id: owned.end_run("s", run_id, "completed", output=1),
            lambda owned=owned: owned.save_state("s", store.load_state("s")),
            lambda owned=owned: owned.update_status("s", "completed"),
            lambda owned=owned: owned.add_sub_session_refs("s", []),
            lambda lease=lease: store.renew_lease(lease, 30),
        ):
            with pytest.raises(Fenced):
                write()
        with pytest.raises(RunEnded):
            store.update_run_status("s", run_id, "completed")
        assert dump() == rows, name
        assert_healthy("s")


def test_drivers_that_died_are_counted_and_no_others(store: SessionStore) -> None:
    """A crash loop is drivers whose leases ran out. One that a decision stops was alive."""
    for name, (decide, _, _, status) in DECISIONS.items():
        for ttl, counted in ((300, 3), (0, 4)):
            store.delete_session("s")
            store.create_session("s", agent_type="a")
            store.create_checkpoint("s")
            for seconds in (0, 0, 0, ttl):
                driver = claims.claim_session(store, "s", "driver", seconds, forced=True)
            assert driver is not None
            driver.load(to_run=False)
            driver.begin(forced=True, turn=None)
            assert Session.objects.get().attempts == 4
            decide(store)
            anew = status == "completed"
            assert Session.objects.get().attempts == (0 if anew else counted), (name, ttl)


def test_a_driver_decides_for_itself(store: SessionStore) -> None:
    lease, run_id = driven(store)
    owned = store.fenced(lease)
    owned.update_status("s", "completed", output=1)
    assert store.get_lease("s") is not None
    assert owned.update_run_status("s", run_id, "completed").status == "completed"
    assert store.load_state("s").runnable_at is None


def test_a_driver_that_has_not_begun_yet_is_fenced_too(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    lease = store.acquire_lease("s", "driver", 300)
    store.update_status("s", "paused")
    with pytest.raises(Fenced):
        store.fenced(lease).begin_turn("s")
    assert store.load_state("s").status == "paused"


def test_who_ends_the_run_of_another_takes_its_lease(store: SessionStore) -> None:
    lease, run_id = driven(store)
    store.update_run_status("s", run_id, "running", usage={"tokens": 1})
    assert store.get_lease("s") is not None
    store.update_run_status("s", run_id, "failed", error="enough")
    with pytest.raises(Fenced):
        store.fenced(lease).begin_turn("s")


def test_a_run_without_a_lease_ends_too(store: SessionStore) -> None:
    run = store.begin_turn("s").run
    store.update_status("s", "failed", error={"code": "x", "message": "y"})
    ended = store.get_run("s", run.run_id)
    assert (ended.status, ended.error) == ("failed", {"code": "x", "message": "y"})
    assert_invariants("s")


def test_an_ended_session_waits_for_nothing(store: SessionStore) -> None:
    for status in ("completed", "failed"):
        store.delete_session("s")
        suspended(store, "s", asked("a", deadline=timezone.now() + timedelta(hours=1)))
        link = store.create_answer_link("s", "a")
        store.set_interrupt_flag("s", "stop")
        store.update_status("s", status)
        state, row = store.load_state("s"), Session.objects.get()
        assert not state.pending_client_tool_calls
        assert (row.awaiting_client, row.next_deadline, row.waiting_since) == (False, None, None)
        assert store.peek_interrupt_flag("s") is None
        assert store.submit_tool_result("s", "a", result=1).outcome == "already_completed"
        assert store.settle_expired_calls(timezone.now() + timedelta(days=1)) == 0
        assert store.submit_by_answer_link(link.token, result=1).outcome == "already_completed"
        for name in ("waiting", "running", "awaiting_client", "interrupted_by_request"):
            assert not getattr(Session.objects, name)().exists(), name
        assert_invariants("s")
        turn = store.begin_turn("s", message="go on")
        assert (turn.state.status, turn.run.status) == ("active", "running")
        assert [message["role"] for message in store.get_messages("s").messages][-2:] == ["tool", "user"]


def test_ended_sessions_are_not_asked_to_stop_and_do_not_run(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    store.update_status("s", "completed")
    store.create_run("s")
    store.set_interrupt_flag("s", "stop")
    assert not Session.objects.running().exists()
    assert not Session.objects.interrupted_by_request().exists()
    assert not Session.objects.stuck(timezone.now() + timedelta(hours=1)).exists()


class TestFamilies:
    def tree(self, store: SessionStore) -> Lease:
        """A parent that waits for a child, which runs and waits for one of its own; and a companion."""
        store.begin_turn("s", message="hello")
        child(store, "s", "kid", "c1")
        child(store, "kid", "grandkid", "c2")
        child(store, "s", "companion", "c3", mode="persistent")
        lease = store.acquire_lease("grandkid", "driver", 300)
        for key, below, call in (("kid", "grandkid", "c2"), ("s", "kid", "c1")):
            suspend(
                *(store, key),
                kind="awaiting_children",
                append_messages=[calling(call)],
                awaiting_children=[wait_for(call, below)],
            )
        return lease

    @pytest.mark.parametrize("status", ["failed", "interrupted"])
    def test_who_fails_or_is_interrupted_interrupts_its_children(
        self, store: SessionStore, status: str
    ) -> None:
        lease = self.tree(store)
        store.update_status("s", status)
        states = {key: store.load_state(key) for key in ("s", "kid", "grandkid", "companion")}
        assert {key: state.status for key, state in states.items()} == {
            "s": status,
            "kid": "interrupted",
            "grandkid": "interrupted",
            "companion": "active",
        }
        assert states["kid"].failure_reason == f"parent_{status}"
        assert store.get_current_run("grandkid") is None
        with pytest.raises(Fenced):
            store.fenced(lease).append_messages("grandkid", [{"role": "assistant", "content": "late"}])
        refs = {ref.sub_session_id: ref.status for ref in store.get_sub_session_refs("s")}
        assert refs == {"kid": "interrupted", "companion": "active"}
        assert store.list_runnable() == []
        for key in states:
            assert_invariants(key)

    def test_nobody_waits_for_what_nobody_runs(self, store: SessionStore) -> None:
        self.tree(store)
        store.update_status("s", "interrupted")
        store.admit_input("s", "go on")
        assert [summary.session_id for summary in store.list_runnable()] == ["s"]
        [message] = store.resume("s").tool_messages
        assert (message["tool_call_id"], message["is_error"]) == ("c1", True)

    def test_pausing_or_completing_leaves_them(self, store: SessionStore) -> None:
        for status in ("paused", "completed"):
            store.delete_session("s")
            self.tree(store)
            store.update_status("s", status)
            assert store.load_state("kid").status == "active", status

    def test_a_failed_driver_takes_them_with_it(self, store: SessionStore) -> None:
        run = store.begin_turn("s", message="hello").run
        child(store, "s", "kid", "c1")
        store.end_run("s", run.run_id, "failed", error="broke")
        assert store.load_state("kid").status == "interrupted"

    def test_a_child_failed_by_a_suspension_stays_failed_and_comes_back(self, store: SessionStore) -> None:
        store.begin_turn("s", message="hello")
        child(store, "s", "kid", "c1")
        lease = store.acquire_lease("kid", "driver", 300)
        suspend(store, "s", asked("a"))
        run = store.list_runs("kid").items[0]
        assert (run.status, store.load_state("kid").failure_reason) == ("failed", "parent_suspended")
        with pytest.raises(Fenced):
            store.fenced(lease).end_run("kid", run.run_id, "completed", output="after all")
        store.settle_child("kid", "completed", output="after all")
        assert store.load_state("kid").status == "failed"
        store.submit_tool_result("s", "a", result=1)
        assert [ref.sub_session_id for ref in store.resume("s").respawn] == ["kid"]

    def test_a_session_of_another_owner_is_nobodys_child(self, store: SessionStore, users: Any) -> None:
        """Anybody can name any session in a reference."""
        mine, theirs = users
        store.create_session("s", agent_type="a", owner=mine)
        store.create_session("victim", agent_type="a", owner=theirs)
        store.begin_turn("victim", message="hello")
        ref = SubSessionRef(sub_session_id="victim", agent_type="a")
        SessionStore(owned_by=mine).add_sub_session_refs("s", [ref])
        before = store.load_state("victim")
        store.begin_turn("s")
        suspend(store, "s", asked("a"))
        store.update_status("s", "failed")
        assert store.load_state("victim") == before


@pytest.fixture
def users(django_user_model: Any) -> list[Any]:
    return [django_user_model.objects.create_user(username=name) for name in ("mine", "theirs")]


class TestErrors:
    def test_as_given(self, store: SessionStore) -> None:
        for error in ("it broke", {"code": "x", "message": "m", "more": [1]}, {}):
            run = store.begin_turn("s").run
            store.update_run_status("s", run.run_id, "failed", error=error)
            store.update_status("s", "failed", error=error)
            assert store.get_run("s", run.run_id).error == store.load_state("s").error == error
            saved = store.save_state("s", store.load_state("s"))
            assert saved.error == error

    def test_trouble_is_grouped_by_cause(self, store: SessionStore) -> None:
        same = [
            "Timeout after 30 s for request req_8f3a9b2c1d0e4f5a6b7c at 2026-01-02T03:04:05Z",
            "Timeout after 5.5 s for request req_0a1b2c3d4e5f6a7b8c9d at 2027-11-12T13:14:15Z",
        ]
        errors = [*same, {"message": same[0], "type": None}, "Refused", {"message": same[0], "type": "E"}]
        for number, error in enumerate(errors):
            store.create_session(f"s{number}", agent_type="a")
            run = store.create_run(f"s{number}")
            store.update_run_status(f"s{number}", run.run_id, "failed", error=error)
            store.update_status(f"s{number}", "failed", error=error)
        found = list(Session.objects.order_by("session_id").values_list("error_fingerprint", flat=True))
        assert found[0] == found[1] == found[2]
        assert len(set(found)) == 3
        assert (
            list(RunRow.objects.order_by("session_id").values_list("error_fingerprint", flat=True)) == found
        )
        store.update_status("s0", "active")
        assert Session.objects.get(session_id="s0").error_fingerprint is None


class TestUsage:
    def test_six_fields_of_a_session_and_its_tree(self, store: SessionStore) -> None:
        nothing = dict.fromkeys(
            ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"),
            0,
        )
        run = store.begin_turn("s", message="hello").run
        assert store.get_usage("s") == {**nothing, "cost": 0}
        report = {"input_tokens": 10, "output_tokens": 4, "cache_read_tokens": 6, "cost": 0.5}
        store.update_run_status("s", run.run_id, "running", usage={"input_tokens": 3})
        store.update_run_status("s", run.run_id, "completed", usage=report)
        child(store, "s", "kid", "c")
        child(store, "kid", "grandkid", "c")
        for key in ("kid", "grandkid"):
            [below] = store.list_runs(key).items
            details = {"reasoning_tokens": 2}
            usage = {"prompt_tokens": 1, "completion_tokens": 3, "completion_tokens_details": details}
            store.update_run_status(key, below.run_id, "completed", usage=usage)
        assert store.get_usage("s") == {**nothing, **report}
        whole = store.get_usage("s", tree=True)
        assert (whole.input_tokens, whole["output_tokens"], whole.reasoning_tokens) == (12, 10, 4)
        assert (whole.cache_read_tokens, whole.cost) == (6, 0.5)
        assert store.get_usage("kid", tree=True).input_tokens == 2

    def test_only_of_ones_own(self, store: SessionStore, users: Any) -> None:
        mine, theirs = users
        store.create_session("s", agent_type="a", owner=mine)
        store.create_session("kid", agent_type="a", owner=theirs, parent_session_id="s")
        for key in ("s", "kid"):
            run = store.create_run(key)
            store.update_run_status(key, run.run_id, "completed", usage={"input_tokens": 1})
        assert SessionStore(owned_by=mine).get_usage("s", tree=True).input_tokens == 1
        assert store.get_usage("s", tree=True).input_tokens == 2


def test_the_events_of_a_turn(store: SessionStore) -> None:
    store.create_session("s", agent_type="a")
    store.create_run("s", run_id="r")
    for number in range(6):
        store.emit_event("s", "tool_called" if number % 2 else "turn_started", turn_id=f"t{number // 3}")
    assert [event.seq for event in store.get_events("s", turn_id="t1")] == [6, 7, 8]
    both = store.get_events("s", types=["tool_called"], run_id="r", turn_id="t1")
    assert [event.seq for event in both] == [6, 8]
    assert store.get_events("s", turn_id="none") == []
    page = store.get_event_texts("s", turn_id="t0", limit=2)
    assert (len(page.texts), page.next_cursor is not None) == (2, True)
