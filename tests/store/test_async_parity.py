"""The awaitable store: the same calls, one implementation."""

import inspect
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from helix_sessions.exceptions import SessionNotFound, StaleState
from helix_sessions.store import AsyncSessionStore, SessionStore
from helix_sessions.store.aio import AsyncFencedStore
from helix_sessions.types import CasOk
from tests.rows import each

NAMES = [name for name in dir(SessionStore) if not name.startswith("_")]


def test_both_stores_have_the_same_names() -> None:
    assert [name for name in dir(AsyncSessionStore) if not name.startswith("_") and name != "using"] == NAMES


def arguments_of(call: Any) -> list[inspect.Parameter]:
    """All but the store itself."""
    given = list(inspect.signature(call).parameters.values())
    return given[given[0].name in ("self", "store") :]


@each("name", NAMES)
def test_a_call_has_the_same_signature_and_words(name: str) -> None:
    call, awaitable = getattr(SessionStore, name), getattr(AsyncSessionStore, name)
    assert arguments_of(awaitable) == arguments_of(call)
    if name not in ("subscribe", "fenced"):  # an iterator and a store there, async ones here
        returned = [inspect.signature(each).return_annotation for each in (awaitable, call)]
        assert returned[0] == returned[1]
        assert inspect.getdoc(awaitable) == inspect.getdoc(call)
    assert inspect.getdoc(call), "a public call says what it does"


@each("name", NAMES)
def test_a_call_is_awaitable_unless_it_is_pure(name: str) -> None:
    if isinstance(inspect.getattr_static(SessionStore, name), staticmethod):
        assert getattr(AsyncSessionStore, name) is getattr(SessionStore, name)
    elif name == "fenced":  # nothing to wait for, so it may be used without
        assert "__await__" in dir(AsyncFencedStore)
    elif name == "subscribe":
        made = inspect.signature(AsyncSessionStore.subscribe).return_annotation.__origin__
        assert {"__await__", "__aiter__", "__anext__", "aclose"} <= set(dir(made))
    else:
        method = getattr(AsyncSessionStore, name)
        assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def test_the_projection_is_static_on_both() -> None:
    for store in (SessionStore, AsyncSessionStore):
        assert isinstance(inspect.getattr_static(store, "project_messages"), staticmethod)
        assert store.project_messages([]) == []


def test_both_know_their_database() -> None:
    assert SessionStore().using == AsyncSessionStore().using == "default"
    assert SessionStore(using="replica").using == AsyncSessionStore(using="replica").using == "replica"


@pytest.mark.django_db(transaction=True)
def test_awaited_calls_do_what_the_others_do(store: SessionStore, astore: AsyncSessionStore) -> None:
    @async_to_sync
    async def scenario() -> Any:
        state = await astore.create_session("s", agent_type="writer", custom_state={"n": 0})
        await astore.stage_changes("s", "step", "call", [{"op": "set", "path": ["n"], "value": 1}])
        result = await astore.save_state_and_promote_staging(
            "s", replace(state, step_count=1), [{"role": "user", "content": "hi"}], expected_version=1
        )
        assert await astore.compare_and_set_status("s", ["active"], "paused") == CasOk(new_version=3)
        events = await astore.get_events("s")
        assert [message.content for message in astore.project_messages(events)] == ["hi"]
        return result

    result = scenario()
    state = store.load_state("s")
    assert (state.custom_state, state.step_count, state.status) == ({"n": 1}, 1, "paused")
    assert (result.version, result.checkpoint_id) == (2, state.checkpoint_id)


@pytest.mark.django_db(transaction=True)
def test_errors_are_the_same(astore: AsyncSessionStore) -> None:
    with pytest.raises(SessionNotFound):
        async_to_sync(astore.load_state)("unknown")
    async_to_sync(astore.create_session)("s", agent_type="writer")
    with pytest.raises(StaleState) as caught:
        async_to_sync(astore.update_status)("s", "paused", expected_version=9)
    assert caught.value.current_version == 1
