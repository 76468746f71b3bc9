"""A lease is told from every other, also where fences begin anew: no write by whoever drove what is gone."""

import io
import pickle
from dataclasses import asdict, replace
from typing import Any

import pytest

from helix_sessions.exceptions import Fenced, InvalidInput
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Lease
from tests.invariants import dump

pytestmark = pytest.mark.django_db


def held(store: SessionStore, session_id: str) -> Lease:
    lease = store.get_lease(session_id)
    assert lease is not None
    return lease


@pytest.mark.django_db(transaction=True)
def test_a_zombie_of_a_session_that_was_deleted(store: SessionStore) -> None:
    """A session of the same id begins with the same fence, and its driver may have the same name."""
    note = lambda held: held.emit_event("s", "note")  # noqa: E731
    for remembered in (False, True):
        store.create_session("s", agent_type="writer")
        lease = store.acquire_lease("s", "worker", 30)
        note(store.fenced(lease))
        store.delete_session("s")
        store.create_session("s", agent_type="writer")
        with pytest.raises(Fenced):
            note(store.fenced(lease))
        newest = store.acquire_lease("s", "worker", 30)
        assert (newest.owner, newest.fence) == (lease.owner, lease.fence)
        assert newest != lease
        if remembered:
            note(store.fenced(newest))
            note(store.fenced(newest))
        before = dump()
        for zombie in (lease, asdict(lease), pickle.loads(pickle.dumps(lease))):
            for call in (
                lambda zombie=zombie: note(store.fenced(zombie)),
                lambda zombie=zombie: store.fenced(zombie).save_state("s", store.load_state("s")),
                lambda zombie=zombie: store.fenced(zombie).delete_session("s"),
                lambda zombie=zombie: store.renew_lease(zombie, 30),
                lambda zombie=zombie: store.release_lease(zombie),
            ):
                with pytest.raises(Fenced):
                    call()
        assert dump() == before
        note(store.fenced(newest))
        assert store.get_lease("s") == newest
        store.delete_session("s")


class TestToken:
    def test_it_stays_with_the_lease(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        assert lease.token
        tokens = {
            store.acquire_lease(session, "a", 30).token,
            store.renew_lease(lease, 30).token,
            held(store, session).token,
        }
        assert tokens == {lease.token}
        store.release_lease(lease)
        assert store.acquire_lease(session, "a", 30).token != lease.token

    def test_a_lease_without_one_is_known_by_fence_and_owner(self, store: SessionStore, session: str) -> None:
        """As one that was kept with the four fields it had before."""
        lease: Any = asdict(store.acquire_lease(session, "a", 30))
        del lease["token"]
        assert store.fenced(lease).increment_step_count(session) == 1
        assert store.renew_lease(lease, 30).fence == 1
        store.release_lease(lease)
        with pytest.raises(Fenced):
            store.fenced(lease).increment_step_count(session)

    def test_a_lease_taken_before_there_were_tokens(self, store: SessionStore, session: str) -> None:
        before = replace(store.acquire_lease(session, "a", 30), token=None)
        Session.objects.update(lease_token=None)
        assert held(store, session).token is None
        assert store.fenced(before).increment_step_count(session) == 1
        longer = store.acquire_lease(session, "a", 60)
        assert (longer.fence, longer.token is None) == (before.fence, False)
        assert store.fenced(before).increment_step_count(session) == 2
        assert store.fenced(longer).increment_step_count(session) == 3

    def test_what_is_none(self, store: SessionStore, session: str) -> None:
        lease = store.acquire_lease(session, "a", 30)
        wrong: list[Any] = ["", 1, "a\n", "x" * 256]
        for token in wrong:
            with pytest.raises(InvalidInput):
                store.fenced(replace(lease, token=token))

    def test_an_import_takes_no_lease_along(self, store: SessionStore, session: str) -> None:
        """Exported with a lease, set back by a deletion and an import, taken again under the same name."""
        file = io.StringIO()
        store.export_sessions(file)
        lease = store.acquire_lease(session, "a", 30)
        store.delete_session(session)
        store.import_sessions(file.getvalue().splitlines())
        assert store.acquire_lease(session, "a", 30).fence == lease.fence
        with pytest.raises(Fenced):
            store.fenced(lease).increment_step_count(session)
