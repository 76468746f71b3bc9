"""One owner at a time, and no row written by one that was."""

import pickle
import time
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.exceptions import Fenced, InvalidInput, LeaseHeld, SessionNotFound
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.runs import leases
from tests.contract.calls import ASSISTANT, KEEPING, MESSAGE_EVENT, RAISING, Call
from tests.contract.suspended import asked, suspend
from tests.invariants import dump
from tests.rows import each

pytestmark = pytest.mark.django_db

NEEDS_NO_LEASE = {"admit_input", "submit_tool_result", "set_interrupt_flag", "request_run", "retry_run"}
OWNERSHIP = {"acquire_lease", "renew_lease", "release_lease"}
WRITES = [*RAISING, MESSAGE_EVENT, *(call for call in KEEPING if call.name not in OWNERSHIP)]


class TestAcquire:
    def test_the_lease(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        assert (lease.session_id, lease.owner, lease.fence) == (session, "a", 1)
        left = lease.expires_at - timezone.now()
        assert timedelta(seconds=25) < left < timedelta(seconds=35)
        assert store.get_lease(session) == lease

    def test_another_owners_is_held_while_it_is_live(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        with pytest.raises(LeaseHeld) as caught:
            store.acquire_lease(session, "b", 30)
        assert (caught.value.owner, caught.value.expires_at) == ("a", lease.expires_at)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (copy.owner, copy.expires_at, str(copy)) == ("a", lease.expires_at, str(caught.value))
        assert store.get_lease(session) == lease

    def test_the_same_owner_gets_it_extended_with_the_same_fence(
        self, store: SessionStore, session: str
    ) -> None:
        first = store.acquire_lease(session, "a", 1)
        second = store.acquire_lease(session, "a", 60)
        assert second.fence == first.fence
        assert second.expires_at > first.expires_at

    def test_once_its_time_is_over_another_takes_it(self, store: SessionStore, session: str) -> None:
        store.acquire_lease(session, "a", 0.02)
        time.sleep(0.05)
        assert store.acquire_lease(session, "b", 30).fence == 2

    def test_once_it_was_given_back_another_takes_it(self, store: SessionStore, session: str) -> None:
        store.release_lease(store.acquire_lease(session, "a", 30))
        assert store.get_lease(session) is None
        assert store.acquire_lease(session, "b", 30).fence == 2

    def test_given_back_it_is_a_new_one_for_its_owner_too(self, store: SessionStore, session: str) -> None:
        store.release_lease(store.acquire_lease(session, "a", 30))
        assert store.acquire_lease(session, "a", 30).fence == 2

    @each("ttl", [-1, float("nan"), float("inf"), "30", None, True, 1e20])
    def test_a_time(self, store: SessionStore, session: str, ttl: Any) -> None:
        with pytest.raises(InvalidInput):
            store.acquire_lease(session, "a", ttl)

    @each("owner", ["", None, 1, "a\n", "x" * 256])
    def test_an_owner(self, store: SessionStore, session: str, owner: Any) -> None:
        with pytest.raises(InvalidInput):
            store.acquire_lease(session, owner, 30)

    def test_an_unknown_session(self, store: SessionStore) -> None:
        with pytest.raises(SessionNotFound):
            store.acquire_lease("u", "a", 30)


class TestRenewAndRelease:
    def test_renewing(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 1)
        renewed = store.renew_lease(lease, 60)
        assert (renewed.fence, renewed.owner) == (lease.fence, "a")
        assert renewed.expires_at > lease.expires_at
        assert store.get_lease(session) == renewed

    def test_a_lease_nobody_took_is_renewed_late(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 0)
        assert store.renew_lease(lease, 60).fence == 1

    def test_a_dict_does_as_well(self, store: SessionStore, session: str) -> None:
        lease = asdict(store.acquire_lease(session, "a", 30))
        store.renew_lease(lease, 30)  # type: ignore[arg-type]
        store.fenced(lease).increment_step_count(session)  # type: ignore[arg-type]
        store.release_lease(lease)  # type: ignore[arg-type]

    def test_an_older_one_is_fenced(self, store: SessionStore, session: str) -> None:
        old = store.acquire_lease(session, "a", 0)
        new = store.acquire_lease(session, "b", 30)
        with pytest.raises(Fenced):
            store.renew_lease(old, 30)
        with pytest.raises(Fenced):
            store.release_lease(old)
        assert store.get_lease(session) == new

    def test_one_that_was_given_back_is_fenced(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        store.release_lease(lease)
        for call in (lambda: store.renew_lease(lease, 30), lambda: store.release_lease(lease)):
            with pytest.raises(Fenced):
                call()

    @each("lease", [None, "lease", {}, {"session_id": "s"}])
    def test_what_is_no_lease(self, store: SessionStore, session: str, lease: Any) -> None:
        for call in (store.fenced, store.release_lease, lambda lease: store.renew_lease(lease, 1)):
            with pytest.raises(InvalidInput):
                call(lease)


class TestFence:
    @each("call", WRITES, ids=str)
    @each("over", ["taken", "given back"])
    def test_a_stale_owner_writes_nothing(
        self, store: SessionStore, session: str, call: Call, over: str
    ) -> None:
        call.arrange(store, session)
        lease = store.acquire_lease(session, "a", 0)
        if over == "taken":
            store.acquire_lease(session, "b", 30)
        else:
            store.release_lease(lease)
        if call.name in NEEDS_NO_LEASE:
            call.act(store.fenced(lease), session)
            return
        before = dump()
        if call.name == "cleanup_orphaned_staging":
            return
        with pytest.raises(Fenced):
            call.act(store.fenced(lease), session)
        assert dump() == before

    @each("call", WRITES, ids=str)
    def test_the_newest_owner_writes(self, store: SessionStore, session: str, call: Call) -> None:
        call.arrange(store, session)
        lease = store.acquire_lease(session, "a", 30)
        call.act(store.fenced(lease), session)

    def test_an_expired_lease_that_nobody_took_still_writes(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 0)
        assert store.fenced(lease).increment_step_count(session) == 1

    def test_a_plain_store_needs_no_lease(self, store: SessionStore, session: str) -> None:
        store.acquire_lease(session, "a", 30)
        assert store.increment_step_count(session) == 1

    def test_other_sessions_are_not_fenced(self, store: SessionStore, session: str) -> None:
        store.create_session("t", agent_type="writer")
        lease = store.acquire_lease(session, "a", 30)
        store.release_lease(lease)
        assert store.fenced(lease).increment_step_count("t") == 1

    def test_a_stale_owner_neither_deletes_nor_recreates(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        stale = store.fenced(lease)
        store.release_lease(lease)
        with pytest.raises(Fenced):
            stale.delete_session(session)
        store.delete_session(session)
        for call in (
            lambda: stale.create_session(session, agent_type="writer"),
            lambda: stale.begin_turn(session),
            lambda: stale.attach(session),
            lambda: stale.ensure_session(session, agent_type="writer"),
        ):
            with pytest.raises(Fenced):
                call()
        store.create_session(session, agent_type="writer")
        with pytest.raises(Fenced):
            stale.increment_step_count(session)

    def test_the_fence_of_the_same_owner_counts(self, store: SessionStore, session: str) -> None:
        """An owner that gave its lease back and took another is not the one it was."""
        old = store.acquire_lease(session, "a", 30)
        store.release_lease(old)
        new = store.acquire_lease(session, "a", 30)
        for lease in (old, replace(old, token=None), replace(new, fence=new.fence + 1)):
            for call in (
                lambda lease=lease: store.fenced(lease).increment_step_count(session),
                lambda lease=lease: store.renew_lease(lease, 30),
                lambda lease=lease: store.release_lease(lease),
                lambda lease=lease: store.fenced(lease).delete_session(session),
            ):
                with pytest.raises(Fenced):
                    call()
        assert store.fenced(new).increment_step_count(session) == 1

    def test_it_is_the_same_store_otherwise(self, store: SessionStore, django_user_model: Any) -> None:
        ann = django_user_model.objects.create(username="ann")
        hers = SessionStore(owned_by=ann)
        hers.create_session("s", agent_type="writer")
        store.create_session("t", agent_type="writer")
        fenced = hers.fenced(hers.acquire_lease("s", "a", 30))
        assert isinstance(fenced, SessionStore)
        with pytest.raises(SessionNotFound):
            fenced.load_state("t")

    def test_moving_the_time_alone_fences_nobody(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        fenced = store.fenced(lease)
        store.renew_lease(lease, 60)
        assert fenced.increment_step_count(session) == 1


@pytest.mark.django_db(transaction=True)
def test_on_a_row_the_connection_remembers(store: SessionStore) -> None:
    """Outside a transaction writes may go without the lock; the fence holds there too."""
    store.create_session("s", agent_type="writer")
    lease = store.acquire_lease("s", "a", 0)
    fenced = store.fenced(lease)
    fenced.append_messages("s", [{"role": "user", "content": "hello"}])
    fenced.append_messages("s", [{"role": "user", "content": "hello"}])
    store.acquire_lease("s", "b", 30)
    before = dump()
    for call in (
        lambda: fenced.append_messages("s", [{"role": "user", "content": "late"}]),
        lambda: fenced.emit_event("s", "note"),
        lambda: fenced.save_state_and_promote_staging("s", store.load_state("s")),
    ):
        with pytest.raises(Fenced):
            call()
    assert dump() == before


@pytest.mark.django_db(transaction=True)
def test_awaited(astore: AsyncSessionStore) -> None:
    from asgiref.sync import async_to_sync

    async def scenario() -> None:
        await astore.create_session("s", agent_type="writer")
        lease = await astore.acquire_lease("s", "a", 30)
        assert await astore.fenced(lease).increment_step_count("s") == 1
        fenced = await astore.fenced(lease)
        assert await fenced.increment_step_count("s") == 2
        await astore.release_lease(lease)
        with pytest.raises(Fenced):
            await fenced.increment_step_count("s")

    async_to_sync(scenario)()


def test_a_lease_is_over_at_its_end(
    store: SessionStore, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At that very moment for everybody: its owner, who asks, and the next owner."""
    lease = store.acquire_lease(session, "a", 30)
    monkeypatch.setattr(leases, "clock", lambda connection: lease.expires_at)

    assert not store.is_lease_live(lease)
    assert store.get_occupancy(session).owner is None
    assert store.acquire_lease(session, "b", 30).fence == 2


def test_a_lease_runs_from_the_moment_it_was_asked_for_last(store: SessionStore, session: str) -> None:
    longer = store.acquire_lease(session, "a", 600)
    shorter = store.acquire_lease(session, "a", 30)

    assert shorter.expires_at < longer.expires_at
    assert (shorter.fence, shorter.token) == (longer.fence, longer.token)


def test_every_owner_has_a_token_of_its_own(store: SessionStore, session: str) -> None:
    tokens = []
    for owner in ("a", "b", "a"):
        lease = store.acquire_lease(session, owner, 0)
        tokens.append(lease.token)

    assert None not in tokens
    assert len(set(tokens)) == 3


@each(
    ("status", "waits", "idle"),
    [
        ("active", False, False),
        ("completed", False, False),
        ("interrupted", False, True),
        ("paused", False, True),
        ("active", True, True),
    ],
)
def test_whether_there_is_anything_to_wait_for(
    store: SessionStore, session: str, status: str, waits: bool, idle: bool
) -> None:
    """A pending input keeps a session from being idle, unless nobody would take it."""
    assert store.get_occupancy(session).idle
    if waits:
        store.begin_turn(session)
        suspend(store, session, asked("a"))
    store.admit_input(session, "hello")
    store.update_status(session, status)

    assert store.get_occupancy(session).idle == idle


def test_the_abandoned_come_in_the_order_their_leases_ran_out(store: SessionStore) -> None:
    for key in ("b", "c", "a"):
        store.begin_turn(key)
        store.acquire_lease(key, "worker", 0)

    assert [found.session_id for found in store.list_abandoned()] == ["b", "c", "a"]
    assert [found.session_id for found in store.list_abandoned(limit=2)] == ["b", "c"]


def test_a_lease_that_has_ended_is_seen_at_once(store: SessionStore, session: str) -> None:
    store.begin_turn(session)
    for _ in range(20):
        store.acquire_lease(session, "worker", 0)
        assert [found.session_id for found in store.list_abandoned()] == [session]


def _run(store: SessionStore, key: str) -> None:
    store.create_run(key, run_id="r")


DRIVING = [
    Call("open_step", lambda store, key: store.open_step(key, "step", ASSISTANT, run_id="r"), arrange=_run),
    Call("end_run", lambda store, key: store.end_run(key, "r", "completed"), arrange=_run),
    Call("recover_run", lambda store, key: store.recover_run(key), arrange=_run),
    *(call for call in WRITES if call.name not in {*NEEDS_NO_LEASE, "cleanup_orphaned_staging"}),
]


@each("call", DRIVING, ids=str)
def test_a_log_that_lost_what_was_written_under_the_lease_is_not_written_to(
    store: SessionStore, session: str, call: Call
) -> None:
    """The database was put back to a moment of the same lease: what its driver knows is not there."""
    call.arrange(store, session)
    fenced = store.fenced(store.acquire_lease(session, "a", 30))
    fenced._written._seq = store.load_state(session).head_seq + 1
    before = dump()
    with pytest.raises(Fenced, match="put back"):
        call.act(fenced, session)
    assert dump() == before
