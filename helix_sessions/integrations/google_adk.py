"""The sessions of Google's Agent Development Kit: `Runner(..., session_service=DjangoSessionService())`.

Each event is a message of the transcript, and the state of the session is its custom state. What an app or a
user shares between sessions is the custom state of a session of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from asgiref.sync import sync_to_async

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionExists, SessionNotFound, StaleState
from helix_sessions.integrations import forms
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.google_adk_artifacts import DjangoArtifactService as DjangoArtifactService
from helix_sessions.integrations.google_adk_memory import DjangoMemoryService as DjangoMemoryService
from helix_sessions.integrations.google_adk_values import to_json
from helix_sessions.store import SessionStore
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.state.shared_states import share
from helix_sessions.types import JSON, SessionState, SessionSummary

with needed_from("google-adk"):
    from google.adk.errors._stale_session_error import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event
    from google.adk.sessions import BaseSessionService, Session, State
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from google.genai.types import Content, FunctionCall, FunctionResponse, Part

AGENT_TYPE = "google_adk"
SCOPE_TYPE = "google_adk_state"
_LONGEST = 255
_REPEATED = 100
"""Of so many of the newest events one is known that is appended again."""

T = TypeVar("T")


class DjangoSessionService(BaseSessionService):
    """ADK's sessions, by app, user and id. `fields` are more of those of `create_session`.

    What another agent said is read as events, text, calls and results; other forms are refused as
    `FrameworkMismatch`.
    """

    def __init__(
        self, *, store: SessionStore | None = None, agent_type: str = AGENT_TYPE, **fields: Any
    ) -> None:
        self._store = SessionStore() if store is None else store
        self._agent_type = agent_type
        self._fields = fields
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; a used id raises `AlreadyExistsError`."""
        return await sync_to_async(self._create)(app_name, user_id, state or {}, session_id)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with its events, or the latest of them, and its state in all three scopes."""
        return await sync_to_async(self._get)(app_name, user_id, session_id.strip(), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of an app, or of one user of it, without events; in the order of their last events'
        timestamps, the latest last."""
        return await sync_to_async(self._list)(app_name, user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session. What its app and user share stays."""
        await sync_to_async(self._store.delete_session)(_key(app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What the user's sessions share, without the prefix."""
        return await sync_to_async(self._scope)(_user_key(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event with the state it changes.

        Raises `StaleSessionError` when the session was written by anybody else since it was read. The event
        and its changes in all three scopes are one transaction.
        """
        if event.partial:
            return event
        async with self._in_turn(_key(session.app_name, session.user_id, session.id.strip())):
            if any(known.id == event.id and known == event for known in session.events[-_REPEATED:]):
                return event
            self._apply_temp_state(session, event)
            event = self._trim_temp_delta_state(event)
            version = await sync_to_async(self._append)(session, event)
            session._storage_update_marker = str(version)
            session.last_update_time = event.timestamp
            _apply(session, event)
            return event

    def append_events(self, session: Session, events: Sequence[Event]) -> None:
        """Store events whose changes are in the state already, as an import has them."""
        if events:
            key = _key(session.app_name, session.user_id, session.id.strip())
            expected = int(session._storage_update_marker or 0)
            said = [_message(event) for event in events]
            self._store.append_messages(key, said, expected_version=expected)

    @asynccontextmanager
    async def _in_turn(self, key: str) -> AsyncIterator[None]:
        """Branches that run side by side share one session object, and append to it one after the other."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)

    def _create(self, app: str, user: str, state: dict[str, Any], session_id: str | None) -> Session:
        name = session_id.strip() if session_id and session_id.strip() else new_id()
        own, of_user, of_app = _scopes(state)
        fields = {
            "agent_type": self._agent_type,
            "user_id": user,
            **self._fields,
            "custom_state": own,
            "tags": [*self._fields.get("tags", ()), _tag(app)],
            "metadata": {**self._fields.get("metadata", {}), "app_name": app, "adk_session_id": name},
        }
        try:
            made = self._share(
                app,
                user,
                of_user,
                of_app,
                partial(self._store.create_session, _key(app, user, name), **fields),
            )
        except SessionExists:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from None
        return self._session(app, user, name, made, updated=_updated(made, []))

    def _get(self, app: str, user: str, name: str, config: GetSessionConfig | None) -> Session | None:
        key = _key(app, user, name)
        try:
            while True:
                state = self._store.load_state(key)
                events, version = self._events(key, config)
                last = events or self._events(key, GetSessionConfig(num_recent_events=1))[0]
                if version == state.version:
                    return self._session(app, user, name, state, events, _updated(state, last))
        except SessionNotFound:
            return None

    def _events(self, key: str, config: GetSessionConfig | None) -> tuple[list[Event], int]:
        limit = None if config is None else config.num_recent_events
        page = self._store.get_message_texts(key, limit=limit, newest_first=limit is not None)
        texts = page.texts if limit is None else page.texts[::-1]
        messages = documents.load_all(texts)
        forms.refuse_others(key, messages, AGENT_TYPE)
        events = [_event(message) for message in messages]
        if config is not None and config.after_timestamp is not None:
            events = [event for event in events if event.timestamp >= config.after_timestamp]
        return events, page.version

    def _list(self, app: str, user: str | None) -> ListSessionsResponse:
        sessions = []
        for summary in self._summaries(app, user):
            try:
                state = self._store.load_state(summary.session_id)
                last = self._events(summary.session_id, GetSessionConfig(num_recent_events=1))[0]
            except SessionNotFound:
                continue  # deleted meanwhile
            name = str(state.metadata.get("adk_session_id", summary.session_id))
            updated = _updated(state, last)
            sessions.append(self._session(app, state.user_id or "", name, state, updated=updated))
        return ListSessionsResponse(
            sessions=sorted(sessions, key=lambda each: (each.last_update_time, each.user_id, each.id))
        )

    def _summaries(self, app: str, user: str | None) -> Iterator[SessionSummary]:
        cursor = None
        while user != "":
            page = self._store.list_sessions(
                agent_type=self._agent_type, user_id=user, tag=_tag(app), limit=200, cursor=cursor
            )
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _append(self, session: Session, event: Event) -> int:
        key = _key(session.app_name, session.user_id, session.id.strip())
        marker = session._storage_update_marker
        delta = event.actions.state_delta if event.actions else None
        own, of_user, of_app = _scopes(delta or {})
        try:
            expected = None if marker is None else int(marker)
            write = partial(self._write, key, _message(event), own, expected)
            return self._share(session.app_name, session.user_id, of_user, of_app, write)
        except SessionNotFound:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        except StaleState as error:
            raise StaleSessionError(
                "The session was modified in storage by another writer since it was read; get it again."
            ) from error

    def _write(self, key: str, said: dict[str, JSON], own: dict[str, JSON], expected: int | None) -> int:
        if not own:
            return self._store.append_messages(key, [said], expected_version=expected).version
        state = self._store.load_state(key)
        return self._store.save_state_and_promote_staging(
            key,
            replace(state, custom_state={**state.custom_state, **own}),
            [said],
            expected_version=state.version if expected is None else expected,
        ).version

    def _share(
        self, app: str, user: str, of_user: dict[str, JSON], of_app: dict[str, JSON], write: Callable[[], T]
    ) -> T:
        """What is written to a session and what it shares, as one transaction."""
        scopes = {_user_key(app, user): (user, of_user), _app_key(app): (None, of_app)}
        changed = {key: shared for key, (_, shared) in scopes.items() if shared}
        for key in changed:
            if not self._store.session_exists(key):
                self._create_scope(key, app, scopes[key][0])
        return share(self._store, write, changed)

    def _create_scope(self, key: str, app: str, user: str | None) -> None:
        try:
            self._store.create_session(
                key, agent_type=SCOPE_TYPE, user_id=user, mode="persistent", metadata={"app_name": app}
            )
        except SessionExists:
            self._store.get_session_head(key)  # raises if it is another owner's

    def _scope(self, key: str) -> dict[str, JSON]:
        try:
            return self._store.load_state(key).custom_state
        except SessionNotFound:
            return {}

    def _session(
        self,
        app: str,
        user: str,
        name: str,
        state: SessionState,
        events: Sequence[Event] = (),
        updated: float = 0.0,
    ) -> Session:
        shared = {State.APP_PREFIX: _app_key(app), State.USER_PREFIX: _user_key(app, user)}
        merged = dict(state.custom_state)
        for prefix, key in shared.items():
            merged.update({f"{prefix}{field}": value for field, value in self._scope(key).items()})
        session = Session(
            id=name,
            app_name=app,
            user_id=user,
            state=merged,
            events=list(events),
            last_update_time=updated,
        )
        session._storage_update_marker = str(state.version)
        return session


def _apply(session: Session, event: Event) -> None:
    """Let a session object have an event that is stored."""
    delta = event.actions.state_delta if event.actions else {}
    session.state.update(
        {name: each for name, each in delta.items() if not name.startswith(State.TEMP_PREFIX)}
    )
    session.events.append(event)


def _key(*parts: str) -> str:
    """One id out of several names, readable unless that is too long."""
    key = "/".join(quote(part, safe="") for part in parts)
    return key if len(key) <= _LONGEST else f"{key[:200]}/{documents.digest(key)}"


def _app_key(app: str) -> str:
    return _key(app)


def _user_key(app: str, user: str) -> str:
    return _key(app, user)


def _tag(app: str) -> str:
    return _key(f"app:{app}")


def _scopes(delta: dict[str, Any]) -> tuple[dict[str, JSON], dict[str, JSON], dict[str, JSON]]:
    """A change of the state by scope: the session's, the user's, the app's. What is temporary is left out."""
    own: dict[str, JSON] = {}
    of_user: dict[str, JSON] = {}
    of_app: dict[str, JSON] = {}
    for name, value in delta.items():
        written = to_json(value)
        if name.startswith(State.APP_PREFIX):
            of_app[name.removeprefix(State.APP_PREFIX)] = written
        elif name.startswith(State.USER_PREFIX):
            of_user[name.removeprefix(State.USER_PREFIX)] = written
        elif not name.startswith(State.TEMP_PREFIX):
            own[name] = written
    return own, of_user, of_app


def _message(event: Event) -> dict[str, JSON]:
    """A message of the transcript: what ADK writes of the event, under a role."""
    role = "user" if event.author == "user" else "assistant"
    if event.get_function_responses():
        role = "tool"
    return {"role": role, "event": to_json(event, exclude_none=True)}


def _updated(state: SessionState, events: Sequence[Event]) -> float:
    """When a session was used last: the time of its last event, or of its creation."""
    if events and events[-1].timestamp:
        return float(events[-1].timestamp)
    return state.updated_at.timestamp() if state.updated_at else 0.0


def _event(message: dict[str, JSON]) -> Event:
    """The event of a message; what another agent said is made into one."""
    if "content" not in message and isinstance(message.get("event"), dict):
        return Event.model_validate(message["event"])
    said = forms.shared(message) or {}
    role = said["role"]
    if role == "tool":
        parts = [Part(function_response=_response(said))]
    else:
        calls = [
            FunctionCall(id=call["id"], name=call["name"], args=_object(call["arguments"], "value"))
            for call in said["tool_calls"]
        ]
        texts = [Part(text=said["content"])] if said["content"] or not calls else []
        parts = [*texts, *(Part(function_call=call) for call in calls)]
    return Event(
        author=role if role in ("user", "system") else "assistant",
        content=Content(role="user" if role in ("user", "tool") else "model", parts=parts),
        timestamp=0.0,
    )


def _response(said: dict[str, JSON]) -> FunctionResponse:
    result = _object(said["content"], "error" if said["is_error"] else "result")
    return FunctionResponse(id=said["tool_call_id"], name=said["tool_name"], response=result)


def _object(value: JSON, name: str) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {name: value}
