"""References to sub-sessions."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidInput, SubSessionRefExists, SubSessionRefNotFound
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.state import child_waits, runnable
from helix_sessions.types import (
    REF_LOCATIONS,
    REF_MODES,
    SESSION_STATUSES,
    TERMINAL_STATUSES,
    Page,
    SubSessionRef,
)

_CHANGEABLE = ("agent_type", "parent_tool_call_id", "status", "mode", "location", "result")


def add_sub_session_refs(
    store: Store,
    session_id: str,
    refs: Iterable[SubSessionRef | Mapping[str, Any]],
    *,
    expected_version: int | None = None,
) -> int:
    """Add references to sub-sessions; returns the version. Idempotent for equal references."""
    if isinstance(refs, str | Mapping) or not isinstance(refs, Iterable):
        raise InvalidInput("References must be a list.")
    checked = [_checked(ref) for ref in refs]
    with store._write(session_id, expected_version) as work:
        known = {ref.sub_session_id: ref for ref in stored(store.using, work.session.session_id)}
        for ref in checked:
            before = known.get(ref.sub_session_id)
            if before is None:
                seq = work.event("subagent_spawned", _told(ref))
                columns = {"sub_session_id": ref.sub_session_id, **_columns(ref)}
                work.insert(
                    models.SubSessionRef, seq=seq, created_at=work.now, updated_at=work.now, **columns
                )
                known[ref.sub_session_id] = ref
            elif _content(before) != _content(ref):
                raise SubSessionRefExists(
                    f"There is another reference to sub-session {ref.sub_session_id!r} already."
                )
    return int(work.session.version)


def update_sub_session_ref(
    store: Store, session_id: str, sub_session_id: str, *, expected_version: int | None = None, **changes: Any
) -> SubSessionRef:
    """Change a reference to a sub-session. A wait for one that ended is settled."""
    key = inputs.identifier(sub_session_id, "The sub-session id")
    unknown = set(changes) - set(_CHANGEABLE)
    if unknown:
        raise InvalidInput(f"A reference has nothing to change named {', '.join(sorted(unknown))}.")
    columns_read = (*LIGHT_COLUMNS, "suspended_awaiting_children")
    with store._write(session_id, expected_version, columns=columns_read) as work:
        known = {ref.sub_session_id: ref for ref in stored(store.using, work.session.session_id)}
        if key not in known:
            raise SubSessionRefNotFound(f"There is no reference to sub-session {key!r}.")
        ref = known[key]
        if changes:
            ref = _checked(replace(ref, updated_at=work.now, **changes))
            columns = {name: value for name, value in _columns(ref).items() if name in changes}
            work.update(models.SubSessionRef, {"sub_session_id": key}, updated_at=work.now, **columns)
            work.event("subagent_updated", {"sub_session_id": key, "changes": changes})
            if ref.status in TERMINAL_STATUSES and child_waits.settle(work, outcome_in(ref)):
                runnable.follow(work)
    return ref


def list_sub_session_refs(
    store: Store, session_id: str, *, limit: int = 50, cursor: str | None = None
) -> Page[SubSessionRef]:
    """A page of the references, in the order they were added."""
    pager = Pager("sub_sessions", "seq", limit=limit, cursor=cursor)
    rows = models.SubSessionRef.objects.using(store.using).filter(session_id=session_key(session_id))
    store._read(session_id, ("session_id",))
    return pager.page(rows, _value)


def get_sub_session_refs(store: Store, session_id: str) -> list[SubSessionRef]:
    """The references, in the order they were added."""
    store._read(session_id, ("session_id",))
    return stored(store.using, session_id)


def stored(using: str, session_id: str) -> list[SubSessionRef]:
    """The references of an existing session, in the order they were added."""
    rows = models.SubSessionRef.objects.using(using).filter(session_id=session_id).order_by("seq")
    return [_value(row) for row in rows]


def ephemeral(using: str, session_id: str) -> list[str]:
    """The ids of the sub-sessions that live and stop with a session, without their documents."""
    rows = models.SubSessionRef.objects.using(using).filter(session_id=session_id)
    return list(rows.filter(mode="ephemeral", location="local").values_list("sub_session_id", flat=True))


def _value(row: models.SubSessionRef) -> SubSessionRef:
    return SubSessionRef(**{field.name: getattr(row, field.name) for field in fields(SubSessionRef)})


def _checked(ref: SubSessionRef | Mapping[str, Any]) -> SubSessionRef:
    if isinstance(ref, Mapping):
        unknown = set(ref) - {field.name for field in fields(SubSessionRef)}
        if unknown or not {"sub_session_id", "agent_type"} <= set(ref):
            raise InvalidInput("A reference has a sub_session_id, an agent_type, and no unknown keys.")
        ref = SubSessionRef(**ref)
    if not isinstance(ref, SubSessionRef):
        raise InvalidInput("A reference is a SubSessionRef or a dict with its keys.")
    result = inputs.document(ref.result)
    return replace(
        ref,
        sub_session_id=inputs.identifier(ref.sub_session_id, "The sub-session id"),
        agent_type=inputs.identifier(ref.agent_type, "agent_type"),
        parent_tool_call_id=inputs.optional_identifier(ref.parent_tool_call_id, "parent_tool_call_id"),
        status=inputs.choice(ref.status, SESSION_STATUSES, "The status of a reference"),
        mode=inputs.choice(ref.mode, REF_MODES, "The mode of a reference"),
        location=inputs.choice(ref.location, REF_LOCATIONS, "The location of a reference"),
        result=None if result is None else documents.load(result),
    )


def outcome_in(ref: SubSessionRef) -> dict[str, Any]:
    """The outcome of a sub-session, which may be remote."""
    if ref.status == "completed":
        return {"sub_session_id": ref.sub_session_id, "status": ref.status, "output": ref.result}
    said = ref.result.get("error") if isinstance(ref.result, dict) else ref.result
    error = said if isinstance(said, str) else None
    return {"sub_session_id": ref.sub_session_id, "status": ref.status, "error": error}


def _content(ref: SubSessionRef) -> tuple[Any, ...]:
    return tuple(getattr(ref, name) for name in _CHANGEABLE)


def _columns(ref: SubSessionRef) -> dict[str, Any]:
    return {**{name: getattr(ref, name) for name in _CHANGEABLE}, "result": inputs.document(ref.result)}


def _told(ref: SubSessionRef) -> dict[str, Any]:
    return {
        "sub_session_id": ref.sub_session_id,
        "agent_type": ref.agent_type,
        "parent_tool_call_id": ref.parent_tool_call_id,
    }
