"""Sub-sessions as their parent waits for them: awaited, settled, failed when it is suspended."""

from collections.abc import Iterable
from typing import Any

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store.calls import sub_sessions
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_rows import ALL_COLUMNS, LIGHT_COLUMNS, SessionRow, read_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import runs, statuses
from helix_sessions.store.state import child_waits
from helix_sessions.store.state.child_waits import Waits
from helix_sessions.types import JSON, TERMINAL_STATUSES, UNSET, SubSessionRef

PARENT_SUSPENDED = "parent_suspended"

_OUTCOME = ("status", "output", "error", "failure_reason")


def settle_child(
    store: Store,
    child_id: str,
    status: str,
    *,
    output: JSON = None,
    error: str | None = None,
    parent_session_id: str | None = None,
    expected_version: int | None = None,
) -> None:
    """End a sub-session, and tell its parent, whose wait for it is over. Twice is once.

    A child that has ended already keeps its status; what its parent does not know yet it is told.
    With a `parent_session_id`, a session that is no child of it is unknown. `expected_version` is the
    child's.
    """
    key = session_key(child_id)
    below = inputs.optional_identifier(parent_session_id, "parent_session_id")
    ending = inputs.choice(status, TERMINAL_STATUSES, "The status of a settled child")
    given = {"output": inputs.document(output), "error": inputs.string_document(error, "error")}
    version = inputs.expected_version(expected_version)
    with write_tree(store.using, store._lease) as tree:
        parent, child = lock_with_parent(tree, key, store._owner, below)
        check_version(child, version)
        ended_before = child.session.status in TERMINAL_STATUSES
        if not ended_before:
            columns = {name: text for name, text in given.items() if text is not None}
            statuses.enter(child, {"status": ending, **columns})
        if parent is not None:
            tell_parent(parent, outcome_of(child.session), anew=not ended_before)


def outcome_of(child: SessionRow) -> dict[str, Any]:
    """How a session, read whole, ended."""
    values = {name: getattr(child, name) for name in _OUTCOME}
    for name in ("output", "error"):
        values[name] = None if values[name] is None else documents.load(values[name])
    return {"sub_session_id": child.session_id, **values}


def born_settled(tree: Transaction, parent_id: str, awaited: Waits, owner: Any) -> Waits:
    """The waits, with the outcome of children that ended before their parent began to wait.

    The children are locked, below their parent, so that none ends unseen meanwhile.
    """
    found = {}
    for key in sorted(
        {wait["sub_session_id"] for wait in awaited.values() if not child_waits.is_settled(wait)}
    ):
        try:
            child = tree.lock(key, ALL_COLUMNS).session
        except SessionNotFound:
            continue
        if not _is_theirs(child, parent_id, owner):
            continue
        if child.status in TERMINAL_STATUSES and child.run_id is None:
            found[key] = outcome_of(child)
    return {call_id: {**wait, **found.get(wait["sub_session_id"], {})} for call_id, wait in awaited.items()}


def fail_running(tree: Transaction, parent: UnitOfWork, awaited: set[str], owner: Any) -> None:
    """Fail the running ephemeral children of a session that is suspended, and theirs, level by level."""
    spared = {parent.session.session_id, *awaited}
    level = [parent]
    while level:
        refs = [
            (ref, above)
            for above in level
            for ref in sub_sessions.stored(tree.connection.alias, above.session.session_id)
            if ref.mode == "ephemeral" and ref.location == "local" and ref.sub_session_id not in spared
        ]
        level = []
        for ref, above in sorted(refs, key=lambda pair: pair[0].sub_session_id):
            spared.add(ref.sub_session_id)
            if not _is_running(tree, ref.sub_session_id, above.session.session_id, owner):
                continue
            child = tree.lock(ref.sub_session_id)
            if child.session.run_id is not None:
                _fail(child, above)
                level.append(child)


def to_respawn(using: str, refs: Iterable[SubSessionRef]) -> list[SubSessionRef]:
    """Those of the references whose sessions were failed because their parent was suspended."""
    known = {ref.sub_session_id: ref for ref in refs if ref.mode == "ephemeral" and ref.status == "failed"}
    if not known:
        return []
    failed = models.Session.objects.using(using).filter(
        session_id__among=known, status="failed", failure_reason=PARENT_SUSPENDED
    )
    wanted = set(failed.values_list("session_id", flat=True))
    return [ref for key, ref in known.items() if key in wanted]


def lock_with_parent(
    tree: Transaction, child_id: str, owner: Any, below: str | None = None
) -> tuple[UnitOfWork | None, UnitOfWork]:
    """Lock a session, read whole, and before it its parent, if it has one that is stored.

    With `below`, a session that is no child of that one is unknown.
    """
    named = read_row(tree.connection, child_id, ("parent_session_id",), owner).parent_session_id
    if below not in (None, named):
        raise SessionNotFound(f"There is no session {child_id!r} below {below!r}.")
    parent = None
    if named not in (None, child_id):
        try:
            parent = tree.lock(named, (*LIGHT_COLUMNS, "suspended_awaiting_children"))
        except SessionNotFound:
            parent = None
    child = tree.lock(child_id, ALL_COLUMNS)
    return (parent if child.session.parent_session_id == named else None), child


def tell_parent(parent: UnitOfWork, outcome: dict[str, Any], *, anew: bool = False) -> None:
    """Let the locked parent know how its child ended, and wait for it no longer. What it knows it is not told
    again, unless the child ended `anew`."""
    key = outcome["sub_session_id"]
    known = {
        ref.sub_session_id: ref
        for ref in sub_sessions.stored(parent.connection.alias, parent.session.session_id)
    }
    ref = known.get(key)
    ended = child_waits.settle(parent, outcome)
    if not (anew or ended or (ref is not None and ref.status not in TERMINAL_STATUSES)):
        return
    result = outcome["output"] if outcome["status"] == "completed" else {"error": outcome["error"]}
    if ref is not None:
        parent.update(
            models.SubSessionRef,
            {"sub_session_id": key},
            status=outcome["status"],
            result=inputs.document(result),
            updated_at=parent.now,
        )
    call_id = ended[0] if ended else ref.parent_tool_call_id if ref is not None else None
    told = {**outcome, "parent_tool_call_id": call_id}
    parent.event("subagent_result", {name: value for name, value in told.items() if value is not None})


def _is_running(tree: Transaction, session_id: str, parent_id: str, owner: Any) -> bool:
    """Whether it is worth a lock. Who starts a run meanwhile starts it after the parent was suspended."""
    try:
        child = read_row(tree.connection, session_id, ("run_id", "owner_id", "parent_session_id"))
    except SessionNotFound:
        return False
    return child.run_id is not None and _is_theirs(child, parent_id, owner)


def _is_theirs(child: SessionRow, parent_id: str, owner: Any) -> bool:
    """Whether a session that another names as its child may be dealt with as one: anybody can name any."""
    return owner is UNSET or child.owner_id == owner or child.parent_session_id == parent_id


def _fail(child: UnitOfWork, parent: UnitOfWork) -> None:
    session = child.session
    run = runs.find(child.connection.alias, session.session_id, session.run_id)
    runs.advance(child, run, {"status": "failed"})
    statuses.enter(child, {"status": "failed", "failure_reason": PARENT_SUSPENDED})
    parent.update(
        models.SubSessionRef,
        {"sub_session_id": session.session_id},
        status="failed",
        updated_at=parent.now,
    )
    changes = {"status": "failed", "failure_reason": PARENT_SUSPENDED}
    parent.event("subagent_updated", {"sub_session_id": session.session_id, "changes": changes})
