"""Create a session."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.exceptions import SessionExists, SessionNotFound
from helix_sessions.store.engine import inputs, tracing, transactions
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.session_columns import DEFAULTS
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.sessions import create
from helix_sessions.store.state import snapshots, state_rows, states
from helix_sessions.types import (
    JSON,
    MODES,
    UNSET,
    SessionMode,
    SessionState,
)


def create_session(
    store: Store,
    session_id: str | None,
    *,
    agent_type: str,
    custom_state: Mapping[str, JSON] | None = None,
    owner: Any = None,
    user_id: str | None = None,
    stream_id: str | None = None,
    tags: Iterable[str] = (),
    metadata: Mapping[str, JSON] | None = None,
    parent_session_id: str | None = None,
    root_session_id: str | None = None,
    mode: SessionMode = "standard",
    expires_at: datetime | None = None,
    tracing_context: JSON = None,
    workspace_ref: JSON = None,
    priority: int = 0,
) -> SessionState:
    """Create a session; of N callers with one id exactly one wins, the rest get `SessionExists`.

    Without an id it gets a UUIDv7. With a parent, the root is worked out from it. A store of one owner
    does not see a parent or root of another owner. Sessions of a higher `priority` (-10 to 10) run before
    others.
    """
    key = new_id() if session_id is None else session_key(session_id)
    store._refuse_to_recreate(key)
    state = {} if custom_state is None else custom_state
    text = inputs.mapping(state, "custom_state")
    columns = {
        "session_id": key,
        "agent_type": inputs.identifier(agent_type, "agent_type"),
        "owner_id": store._owner_key(owner),
        "user_id": inputs.optional_identifier(user_id, "user_id"),
        "stream_id": inputs.optional_identifier(stream_id, "stream_id"),
        "tags": documents.write(inputs.tags(tags)),
        "metadata": inputs.metadata({} if metadata is None else metadata),
        "parent_session_id": inputs.optional_identifier(parent_session_id, "parent_session_id"),
        "root_session_id": inputs.optional_identifier(root_session_id, "root_session_id"),
        "mode": inputs.choice(mode, MODES, "The mode"),
        "expires_at": inputs.optional_moment(expires_at, "expires_at"),
        "tracing_context": inputs.document(tracing.current() if tracing_context is None else tracing_context),
        "workspace_ref": inputs.document(workspace_ref),
        "base_priority": (rank := inputs.priority(priority)),
        "priority": rank,
    }

    def build(connection: BaseDatabaseWrapper) -> UnitOfWork:
        work = new_work(connection, columns)
        snapshots.record(work, dict(state), text)
        started = {"agent_type": agent_type, "parent_session_id": parent_session_id}
        work.event("session_started", {name: value for name, value in started.items() if value})
        return work

    if columns["parent_session_id"] is not None:
        with write_tree(store.using) as tree:
            parent = tree.lock(columns["parent_session_id"], owner=store._owner).session
            columns["root_session_id"] = parent.root_session_id or parent.session_id
            work = tree.add(build(tree.connection))
    else:
        if columns["root_session_id"] not in (None, key) and store._owner is not UNSET:
            store._read(columns["root_session_id"], ("session_id",))
        work = transactions.create(store.using, build)
    return state_rows.state_of(work.session, documents.load(text))


def session_exists(store: Store, session_id: str) -> bool:
    """Whether there is a session with this id."""
    try:
        store._read(session_id, ("session_id",))
    except SessionNotFound:
        return False
    return True


def new_work(connection: BaseDatabaseWrapper, columns: dict[str, Any]) -> UnitOfWork:
    """A session that the flush inserts, as `UnitOfWork`."""
    values = DEFAULTS | columns
    work = UnitOfWork(connection, SessionRow(values.keys(), values.values()), new=True)
    work.change(created_at=work.now, updated_at=work.now, status_since=work.now)
    return work


def ensure_session(
    store: Store, session_id: str | None = None, *, agent_type: str, **fields: Any
) -> SessionState:
    """The session with this id as it is now, with any fields; created with them when there is none.

    `fields` are those of `create_session`.
    """
    while session_id is not None:  # another caller may create or delete it in between
        try:
            return states.load_state(store, session_id)
        except SessionNotFound:
            pass
        try:
            return create.create_session(store, session_id, agent_type=agent_type, **fields)
        except SessionExists:
            store._refuse_if_taken(session_id)
    return create.create_session(store, None, agent_type=agent_type, **fields)


def attach(store: Store, session_id: str, *, agent_type: str = "agent") -> int:
    """The number of the session's last event; the session is created when there is none."""
    while True:  # another caller may create or delete it in between
        try:
            return int(store._read(session_id, ("head_seq",)).head_seq)
        except SessionNotFound:
            pass
        try:
            return create.create_session(store, session_id, agent_type=agent_type).head_seq
        except SessionExists:
            store._refuse_if_taken(session_id)
