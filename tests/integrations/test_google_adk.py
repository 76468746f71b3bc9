"""Google ADK on our sessions: its calls, three scopes of state, stale writers refused by version."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from helix_sessions.exceptions import InvalidInput, StoreUnavailable
from helix_sessions.integrations.google_adk import DjangoSessionService
from helix_sessions.store import SessionStore
from helix_sessions.store.state import states

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = {"app_name": "app", "user_id": "ada"}


def said(text: str, author: str = "user", **more: Any) -> Event:
    role = "user" if author == "user" else "model"
    return Event(author=author, content=Content(role=role, parts=[Part(text=text)]), **more)


def changing(**delta: Any) -> Event:
    scoped = {name.replace("__", ":"): value for name, value in delta.items()}
    return Event(author="agent", actions=EventActions(state_delta=scoped))


def parts(role: str, *some: Part) -> Event:
    return Event(author="agent", content=Content(role=role, parts=list(some)))


class Client:
    """The service's calls, for tests that are not async."""

    def __init__(self, service: Any = None) -> None:
        self.service = service or DjangoSessionService()

    def create(self, session_id: str | None = "s", **more: Any) -> Any:
        return async_to_sync(self.service.create_session)(**{**PLACE, "session_id": session_id, **more})

    def get(self, session_id: str = "s", **more: Any) -> Any:
        return async_to_sync(self.service.get_session)(**{**PLACE, "session_id": session_id, **more})

    def append(self, session: Session, event: Event) -> Any:
        return async_to_sync(self.service.append_event)(session, event)

    def list(self, **more: Any) -> Any:
        return async_to_sync(self.service.list_sessions)(**{"app_name": "app", **more}).sessions

    def delete(self, session_id: str = "s") -> None:
        async_to_sync(self.service.delete_session)(**PLACE, session_id=session_id)


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_session_comes_back(client: Client, store: SessionStore) -> None:
    made = client.create(state={"a": 1, "user:b": [2], "app:c": {"d": 3}, "temp:e": 4})
    events = [
        said("hi \u0000 é"),
        parts("model", Part(function_call=FunctionCall(id="c1", name="look", args={"q": 1}))),
        parts("user", Part(function_response=FunctionResponse(id="c1", name="look", response={"n": 1}))),
        said("found", "agent"),
    ]
    for event in events:
        client.append(made, event)

    found = client.get()
    assert made.state == found.state == {"a": 1, "user:b": [2], "app:c": {"d": 3}}
    assert found.events == made.events == events
    assert (found.id, found.app_name, found.user_id) == ("s", "app", "ada")
    state = store.load_state("app/ada/s")
    assert (state.agent_type, state.user_id, state.message_count) == ("google_adk", "ada", 4)
    roles = [message["role"] for message in store.get_messages("app/ada/s").messages]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_state_is_changed_in_three_scopes_as_in_adks_own_service() -> None:
    results = []
    for service in (DjangoSessionService(), InMemorySessionService()):
        client = Client(service)
        first, second = client.create("one"), client.create("two", state={"own": 0})
        client.append(first, changing(own=1, user__shared=1, app__all=1, temp__gone=1))
        second = client.get("two")
        client.append(second, changing(own=2, user__shared={"x": None}, user__more=2))
        client.create("three", user_id="bob", state={"user:his": 1})
        results.append(
            [
                first.state,
                second.state,
                client.get("one").state,
                client.get("two").state,
                client.get("three", user_id="bob").state,
                async_to_sync(service.get_user_state)(**PLACE),
                client.get("one").events[0].actions.state_delta,
            ]
        )
    assert results[0] == results[1]


def test_the_three_scopes_of_an_event_are_written_together_or_not_at_all(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.append(client.create(), changing(own=0, user__shared=0, app__all=0))
    merge = states.merge_custom_state

    def merge_all_but_the_app(store: SessionStore, session_id: str, *args: Any) -> Any:
        """The database is lost when it comes to what the app shares."""
        if session_id == "app":
            raise StoreUnavailable
        return merge(store, session_id, *args)

    with monkeypatch.context() as patched:
        patched.setattr(states, "merge_custom_state", merge_all_but_the_app)
        with pytest.raises(StoreUnavailable):
            client.append(client.get(), changing(own=1, user__shared=1, app__all=1))
        with pytest.raises(StoreUnavailable):
            client.create("another", state={"user:shared": 2, "app:all": 2})
    found = client.get()
    assert found.state == {"own": 0, "user:shared": 0, "app:all": 0}
    assert len(found.events) == 1
    assert client.get("another") is None


def test_sessions_share_at_once(client: Client, run_threads: Any) -> None:
    def talk(index: int) -> None:
        mine = Client()
        session = mine.create(f"s{index}", user_id=f"user-{index % 2}")
        for turn in range(5):
            shared = {f"user__{index}": turn, f"app__{index}": turn, "app__last": index}
            mine.append(session, changing(own=turn, **shared))

    assert run_threads(4, talk) == [None] * 4
    for index in range(4):
        found = client.get(f"s{index}", user_id=f"user-{index % 2}")
        assert (found.state["own"], len(found.events)) == (4, 5)
        assert {found.state[f"app:{other}"] for other in range(4)} == {4}
        assert {found.state[f"user:{other}"] for other in range(4) if other % 2 == index % 2} == {4}


def test_a_stale_writer_is_refused_by_version(client: Client, store: SessionStore) -> None:
    client.create()
    mine, theirs = client.get(), client.get()
    client.append(mine, said("first"))
    before = store.load_state("app/ada/s")
    for event in (said("second", timestamp=mine.last_update_time + 99), changing(a=1, user__b=1)):
        with pytest.raises(StaleSessionError):
            client.append(theirs, event)
    assert store.load_state("app/ada/s") == before
    assert async_to_sync(client.service.get_user_state)(**PLACE) == {}
    assert theirs.events == []
    client.append(mine, said("third"))
    client.append(client.get(), changing(a=2))
    assert [event.author for event in client.get().events] == ["user", "user", "agent"]


def test_an_event_that_is_delivered_again_is_not_stored_again(client: Client) -> None:
    session = client.create()
    event = said("once")
    client.append(session, event)
    client.append(session, event.model_copy(deep=True))
    assert len(client.get().events) == len(session.events) == 1


def test_a_partial_event_is_not_stored(client: Client) -> None:
    session = client.create()
    client.append(session, said("so f", partial=True))
    assert client.get().events == []


def test_branches_side_by_side_share_a_session(client: Client) -> None:
    session = client.create()

    @async_to_sync
    async def branches() -> None:
        await asyncio.gather(*(client.service.append_event(session, said(str(n))) for n in range(8)))

    branches()
    texts = [event.content.parts[0].text for event in client.get().events]
    assert sorted(texts) == [str(n) for n in range(8)]
    assert client.service._locks == {}


def test_some_of_the_events(client: Client) -> None:
    session = client.create()
    for number in range(6):
        client.append(session, said(str(number), timestamp=100.0 + number))

    def texts(**config: Any) -> list[str]:
        found = client.get(config=GetSessionConfig(**config)).events
        return [event.content.parts[0].text for event in found]

    assert texts(num_recent_events=2) == ["4", "5"]
    assert texts(num_recent_events=0) == []
    assert texts(after_timestamp=103.0) == ["3", "4", "5"]
    assert texts(after_timestamp=103.0, num_recent_events=5) == ["3", "4", "5"]
    assert texts() == ["0", "1", "2", "3", "4", "5"]
    latest = client.get(config=GetSessionConfig(num_recent_events=1))
    client.append(latest, said("6"))
    assert len(client.get().events) == 7


def test_sessions_are_listed_without_events_the_latest_last(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.append(client.create(name, state={"n": name}), said("hi"))
    client.create("d", user_id="bob")
    client.create("e", app_name="other")
    client.append(client.get("a"), said("again"))

    mine = client.list(user_id="ada")
    assert [session.id for session in mine] == ["b", "c", "a"]
    assert [session.state["n"] for session in mine] == ["b", "c", "a"]
    assert all(session.events == [] for session in mine)
    assert {(session.user_id, session.id) for session in client.list()} == {
        *(("ada", "a"), ("ada", "b"), ("ada", "c"), ("bob", "d"))
    }
    assert client.list(app_name="nothing") == []


def test_the_last_event_says_when_a_session_was_used(client: Client) -> None:
    made = client.create("made")
    assert client.get("made").last_update_time == made.last_update_time > 1e9
    for name, times in {"late": (100.0, 300.0), "early": (50.0, 60.5), "middle": (200.0,)}.items():
        session = client.create(name)
        for time in times:
            client.append(session, said("hi", timestamp=time))
        assert session.last_update_time == times[-1]
        for config in (None, *(GetSessionConfig(num_recent_events=number) for number in (0, 1))):
            assert client.get(name, config=config).last_update_time == times[-1], (name, config)

    listed = client.list(user_id="ada")
    assert [session.id for session in listed] == ["early", "middle", "late", "made"]
    assert [session.last_update_time for session in listed[:3]] == [60.5, 200.0, 300.0]


def test_padded_ids_are_stripped_everywhere(client: Client) -> None:
    session = client.create("  padded ")
    assert session.id == "padded"
    with pytest.raises(AlreadyExistsError):
        client.create("padded  ")
    session.id = " padded "
    client.append(session, said("hi"))
    assert len(client.get(" padded").events) == 1
    client.delete("padded ")
    assert client.get("padded") is None
    assert client.create("   ").id.strip()


def test_an_empty_user_id_is_nobodys(client: Client) -> None:
    client.create()
    assert client.list(user_id="") == []
    with pytest.raises(InvalidInput):
        client.create(user_id="")
    assert len(client.list(user_id=None)) == 1


def test_values_that_are_not_json_become_text(client: Client) -> None:
    class Thing:
        def __str__(self) -> str:
            return "a thing"

    odd = {"thing": Thing(), "nan": float("nan"), "set": {1}, "when": datetime(2026, 1, 2, tzinfo=UTC)}
    written = {"thing": "a thing", "nan": "NaN", "set": [1], "when": "2026-01-02T00:00:00Z"}
    session = client.create(state=dict(odd))
    assert client.get().state == written
    client.append(session, changing(more={"deep": [Thing(), float("inf")]}, user__thing=Thing()))
    found = client.get()
    assert found.state == {**written, "more": {"deep": ["a thing", "Infinity"]}, "user:thing": "a thing"}
    assert len(found.events) == 1


def test_bytes_and_lone_surrogates_become_text(client: Client) -> None:
    odd = {"bytes": b"\xff", "text": b"abc", "surrogate": "a\ud800", "pair": "\ud83d\ude00"}
    written = {"bytes": "_w==", "text": "abc", "surrogate": "a\ufffd", "pair": "\U0001f600"}
    session = client.create(state=dict(odd))
    assert client.get().state == written
    client.append(session, changing(more=dict(odd), nan=float("nan")))
    found = client.get()
    assert found.state["more"] == {**written, "text": "YWJj"}
    assert found.events[0].actions.state_delta["nan"] is None  # as in ADK's own services


def test_ids_belong_to_a_user_of_an_app(client: Client) -> None:
    client.create("s/x", user_id="a")
    client.create("x", user_id="a/s")
    client.create("y" * 300)
    with pytest.raises(AlreadyExistsError):
        client.create("x", user_id="a/s")
    assert client.get("x", user_id="a") is None
    assert client.get("x", user_id="a/s").id == "x"
    assert client.get("y" * 300).id == "y" * 300
    assert client.create(None).id != client.create(None).id


def test_a_deleted_session_is_gone_and_what_is_shared_stays(client: Client) -> None:
    session = client.create(state={"user:a": 1})
    client.delete()
    client.delete()
    assert client.get() is None
    with pytest.raises(SessionNotFoundError):
        client.append(session, said("hi"))
    assert client.create().state == {"user:a": 1}


def test_messages_of_others_are_events_too(client: Client, store: SessionStore) -> None:
    client.create()
    store.append_messages("app/ada/s", [{"role": "user", "content": "from the API"}])
    [event] = client.get().events
    assert (event.author, event.content.parts[0].text) == ("user", "from the API")
