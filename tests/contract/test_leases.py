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
from tests.contract.calls import KEEPING, MESSAGE_EVENT, RAISING, Call
from tests.invariants import dump

pytestmark = pytest.mark.django_db

NEEDS_NO_LEASE = {"admit_input", "submit_tool_result", "set_interrupt_flag"}
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

    @pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), "30", None, True, 1e20])
    def test_a_time(self, store: SessionStore, session: str, ttl: Any) -> None:
        with pytest.raises(InvalidInput):
            store.acquire_lease(session, "a", ttl)

    @pytest.mark.parametrize("owner", ["", None, 1, "a\n", "x" * 256])
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

    @pytest.mark.parametrize("lease", [None, "lease", {}, {"session_id": "s"}])
    def test_what_is_no_lease(self, store: SessionStore, session: str, lease: Any) -> None:
        for call in (store.fenced, store.release_lease, lambda lease: store.renew_lease(lease, 1)):
            with pytest.raises(InvalidInput):
                call(lease)


class TestFence:
    @pytest.mark.parametrize("call", WRITES, ids=str)
    @pytest.mark.parametrize("over", ["taken", "given back"])
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

    @pytest.mark.parametrize("call", WRITES, ids=str)
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
