"""Pages of every list: nothing twice, nothing left out, and no cursor after the last item."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from helix_sessions.models import Session
from helix_sessions.store import SessionStore
from tests.rows import each

pytestmark = pytest.mark.django_db

COUNT = 4

Pager = Callable[[SessionStore, int, str | None], tuple[list[Any], str | None]]


def _page(name: str, key: Callable[[Any], Any], *args: Any) -> Pager:
    def page(store: SessionStore, limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
        found = getattr(store, name)(*args, limit=limit, cursor=cursor)
        return [key(item) for item in found.items], found.next_cursor

    return page


def _texts(name: str, **options: Any) -> Pager:
    def page(store: SessionStore, limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
        found = getattr(store, name)("s", limit=limit, cursor=cursor, **options)
        return list(found.texts), found.next_cursor

    return page


def _inputs(store: SessionStore) -> None:
    for n in range(COUNT):
        store.admit_input("s", f"{n}")


def _runs(store: SessionStore) -> None:
    for n in range(COUNT):
        store.create_run("s", run_id=f"r{n}")
        store.update_run_status("s", f"r{n}", "completed")


def _sessions(store: SessionStore) -> None:
    """Created at one moment, as by a busy machine."""
    for n in range(COUNT - 1):
        store.create_session(f"s{n}", agent_type="a")
    Session.objects.update(created_at=timezone.now())


LISTS: dict[str, tuple[Callable[[SessionStore], Any], Pager]] = {
    "sessions": (_sessions, _page("list_sessions", lambda item: item.session_id)),
    "runs": (_runs, _page("list_runs", lambda item: item.run_id, "s")),
    "checkpoints": (
        lambda store: [store.create_checkpoint("s") for _ in range(COUNT)],
        _page("list_checkpoints", lambda item: item.checkpoint_id, "s"),
    ),
    "sub-sessions": (
        lambda store: store.add_sub_session_refs(
            "s", [{"sub_session_id": f"k{n}", "agent_type": "a"} for n in range(COUNT)]
        ),
        _page("list_sub_session_refs", lambda item: item.sub_session_id, "s"),
    ),
    "staged changes": (
        lambda store: [store.stage_changes("s", "step", f"c{n}", []) for n in range(COUNT)],
        _page("list_staged_changes", lambda item: item.tool_call_id, "s"),
    ),
    "inputs": (_inputs, _page("page_of_inputs", lambda item: item.input_id, "s")),
    "events": (
        lambda store: [store.emit_event("s", "ticked", n) for n in range(COUNT - 1)],
        _texts("get_event_texts"),
    ),
    "messages": (
        lambda store: store.append_messages("s", [{"role": "user", "content": n} for n in range(COUNT)]),
        _texts("get_message_texts"),
    ),
    "messages, newest first": (
        lambda store: store.append_messages("s", [{"role": "user", "content": n} for n in range(COUNT)]),
        _texts("get_message_texts", newest_first=True),
    ),
}


@each("name", LISTS)
def test_every_item_once(store: SessionStore, name: str) -> None:
    store.create_session("s", agent_type="a")
    fill, page = LISTS[name]
    fill(store)
    everything, end = page(store, 100, None)
    assert len(set(everything)) == COUNT
    assert end is None
    for limit in range(1, COUNT + 2):
        found: list[Any] = []
        sizes: list[int] = []
        cursor = None
        while not sizes or cursor is not None:
            items, cursor = page(store, limit, cursor)
            found += items
            sizes.append(len(items))
        assert found == everything, f"in pages of {limit}"
        assert all(sizes), f"an empty page of {limit}"
