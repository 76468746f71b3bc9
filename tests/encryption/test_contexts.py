"""What the model sees is content: sealed where it lies, and the same when it is read."""

import pytest
from django.db import connection

from helix_sessions.store import SessionStore
from helix_sessions.types import CompactionPolicy
from tests.contract.sources import Said

pytestmark = pytest.mark.django_db


def test_nothing_of_it_is_stored_plain(store: SessionStore, session: str) -> None:
    store.reconcile_context(session, [Said("place", "secret-baseline")])
    store.reconcile_context(session, [Said("place", "secret-update")])
    store.append_messages(session, [{"role": "assistant", "content": "said"}])
    store.compact(session, lambda request: "secret-summary", CompactionPolicy(None, keep_recent=0))
    with connection.cursor() as cursor:
        for name in ("contextepoch", "contextupdate", "compaction", "event", "message"):
            cursor.execute(f"SELECT * FROM helix_sessions_{name}")
            assert "secret-" not in str(cursor.fetchall()), name
    assert store.list_compactions(session)[0].summary == "secret-summary"
    assert store.get_context(session).baseline == "place is secret-baseline."


def test_what_was_told_by_a_message_that_is_gone_is_told_again(store: SessionStore, session: str) -> None:
    store.reconcile_context(session, [Said("day", 1)])
    store.reconcile_context(session, [Said("day", 2)])
    told = store.get_messages(session).messages[-1]
    store.truncate_messages(session, store.get_message_count(session) - 1)
    epoch = store.get_context_epoch(session)
    assert epoch is not None
    assert epoch.snapshot == {"day": 1}

    assert store.reconcile_context(session, [Said("day", 2)]).kind == "updated"
    assert store.get_messages(session).messages[-1] == told
