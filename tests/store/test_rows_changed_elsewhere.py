"""Whatever happens to a session between two writes of a connection that remembers its row, the second is made
on what is there."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from helix_sessions.exceptions import SessionNotFound
from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from helix_sessions.store.engine import remembered_rows
from tests.contract.calls import KEEPING, MESSAGE_EVENT, RAISING
from tests.encryption.conftest import encrypted  # noqa: F401
from tests.maintenance.conftest import archive_storage  # noqa: F401
from tests.parallel import run_threads
from tests.store.statements import MESSAGE, assert_gapless, needs_memory

pytestmark = pytest.mark.django_db(transaction=True)

WRITES = [*RAISING, MESSAGE_EVENT, *KEEPING]


def here(act: Callable[[], Any]) -> None:
    act()


def elsewhere(act: Callable[[], Any]) -> None:
    [outcome] = run_threads(1, lambda _: act())
    if isinstance(outcome, Exception):
        raise outcome


def remembered(store: SessionStore, key: str) -> None:
    """Let this connection have written the row last."""
    needs_memory()
    store.emit_event(key, "note")
    assert remembered_rows.recall(connections["default"], key) is not None


def test_every_call(store: SessionStore):
    for where in (here, elsewhere):
        for number, call in enumerate(WRITES):
            key = f"{where.__name__} {number} {call}"
            store.create_session(key, agent_type="agent")
            call.arrange(store, key)
            remembered(store, key)
            where(partial(call.act, store, key))
            before = store.load_state(key)
            store.save_state_and_promote_staging(key, replace(before, step_count=7), [MESSAGE])
            after = store.load_state(key)
            assert after.version == before.version + 1, key
            assert after.message_count == before.message_count + 1, key
            assert not store.has_staged_changes(key), key
            assert_gapless(store, key)


def test_deletion_and_a_new_session_under_the_id(store: SessionStore):
    def anew(agent_type: str) -> None:
        store.delete_session("s")
        store.create_session("s", agent_type=agent_type)

    store.create_session("s", agent_type="first")
    for where in (here, elsewhere):
        remembered(store, "s")
        where(partial(anew, where.__name__))
        store.append_messages("s", [MESSAGE])
        assert (store.get_message_count("s"), store.load_state("s").agent_type) == (1, where.__name__)
        assert_gapless(store)
        where(lambda: store.delete_session("s"))
        with pytest.raises(SessionNotFound):
            store.append_messages("s", [MESSAGE])
        store.create_session("s", agent_type="next")


def test_erasure(store: SessionStore):
    for where in (here, elsewhere):
        store.create_session("s", agent_type="agent", user_id="ann")
        remembered(store, "s")
        where(lambda: store.erase_user(user_id="ann"))
        with pytest.raises(SessionNotFound):
            store.append_messages("s", [MESSAGE])


def test_archiving(store: SessionStore, archive_storage: Any):  # noqa: F811
    store.create_session("s", agent_type="agent")
    for where in (here, elsewhere):
        store.append_messages("s", [MESSAGE] * 10)
        remembered(store, "s")
        where(lambda: store.archive_events("s", keep=2))
        head = store.load_state("s").head_seq
        store.append_messages("s", [MESSAGE])
        assert [event.seq for event in store.get_events("s", head - 1)] == [head - 1, head, head + 1]
        assert Session.objects.get().first_seq == head - 1
        assert not store.examine_sessions(deep=True)


def test_rotation(store: SessionStore, encrypted: Any):  # noqa: F811
    """What the row holds is sealed under the new key, also where the write goes without reading it."""
    store.create_session("s", agent_type="agent")
    store.update_status("s", "failed", error="first")
    for where, old, new in ((here, "old", "new"), (elsewhere, "new", "old")):
        encrypted(old, active=old)
        remembered(store, "s")
        encrypted(old, new, active=new)
        where(store.rotate_encryption)
        encrypted(new, active=new)
        store.append_messages("s", [MESSAGE])
        assert store.load_state("s").error == "first"
        store.save_state_and_promote_staging("s", store.load_state("s"))
        assert_gapless(store)
        assert store.rotate_encryption().rows == 0


def test_what_an_operator_does_past_the_store(store: SessionStore):
    def by_hand() -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE helix_sessions_session SET fence = fence + 1, step_count = step_count + 5")

    def by_queryset() -> None:
        Session.objects.filter(session_id="s").update(metadata={"by": "hand"}, step_count=1)

    store.create_session("s", agent_type="agent")
    for where in (here, elsewhere):
        remembered(store, "s")
        where(by_hand)
        steps = store.load_state("s").step_count
        assert store.increment_step_count("s") == steps + 1
        remembered(store, "s")
        where(by_queryset)
        store.save_state_and_promote_staging("s", store.load_state("s"), [MESSAGE])
        assert store.load_state("s").metadata == {"by": "hand"}
        assert store.increment_step_count("s") == 2
        assert_gapless(store)
