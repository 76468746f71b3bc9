"""Sub-sessions as their parent waits for them: awaited, settled, failed when it is suspended."""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from django.db.models import Max
from django.utils import timezone

from helix_sessions import models
from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.store.calls import sub_sessions
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.session_columns import ALL_COLUMNS, LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, read_row
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.transactions import Transaction, check_version, write_tree
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.runs import statuses
from helix_sessions.store.state import child_waits, runnable
from helix_sessions.store.state.child_waits import Waits
from helix_sessions.store.transcript import exchanges
from helix_sessions.types import (
    JSON,
    PRUNED_STATUSES,
    TERMINAL_STATUSES,
    TOMBSTONE,
    EndStatus,
    SubSessionRef,
)

PARENT_SUSPENDED = "parent_suspended"
INTERRUPTED_WITH_PARENT = "The sub-agent was interrupted with the agent that started it."
REMOVED = "The session of the sub-agent was deleted."
STOPS_CHILDREN = ("failed", "interrupted")
"""The statuses that a session enters together with its ephemeral children."""

_OUTCOME = ("status", "output", "error", "failure_reason")


def settle_child(
    store: Store,
    child_id: str,
    status: EndStatus,
    *,
    output: JSON = None,
    error: JSON = None,
    parent_session_id: str | None = None,
    expected_version: int | None = None,
) -> None:
    """End a sub-session, and tell its parent, whose wait for it is over. Twice is once.

    A child that has ended already keeps its status; its parent is updated if it has not been. With a
    `parent_session_id`, a session that is no child of it is unknown. `expected_version` is the child's.
    """
    key = session_key(child_id)
    below = inputs.optional_identifier(parent_session_id, "parent_session_id")
    ending = inputs.choice(status, TERMINAL_STATUSES, "The status of a settled child")
    columns = statuses.columns_of(ending, error)
    if output is not None:
        columns["output"] = inputs.document(output)
    version = inputs.expected_version(expected_version)
    with write_tree(store.using, store._lease) as tree:
        parent, child = lock_with_parent(tree, key, store._owner, below)
        store._check_head(child)
        check_version(child, version)
        if child.session.status in TERMINAL_STATUSES:
            if parent is not None:
                tell_parent(parent, outcome_of(child))
        else:
            enter(tree, parent, child, columns, stops_driver=not _reports_itself(child.session), anew=True)


def _reports_itself(child: SessionRow) -> bool:
    """Whether its process drives it without a lease: it reports the end itself, and then ends the run."""
    return child.lease_owner is None and not child.waits_for_retry


def enter(
    tree: Transaction,
    parent: UnitOfWork | None,
    work: UnitOfWork,
    columns: dict[str, Any],
    *,
    stops_driver: bool = True,
    anew: bool = False,
) -> None:
    """`statuses.enter`, for a session locked with its parent: one that fails or is interrupted takes its
    ephemeral children with it, and a parent that waits for one that ends, or refers to it, is told; `anew`,
    any parent. One that becomes active goes on, if its parent waits for it."""
    before, after = work.session.status, columns["status"]
    statuses.enter(work, columns, stops_driver=stops_driver)
    if parent is not None and after == "active" != before and _is_awaited(parent, work.session.session_id):
        _go_on(work)
    if after in STOPS_CHILDREN:
        interrupt_below(tree, work, f"parent_{after}")
    if parent is not None and after in PRUNED_STATUSES:
        tell_parent(parent, outcome_of(work), anew=anew)


def _is_awaited(parent: UnitOfWork, child_id: str) -> bool:
    return child_id in child_waits.waiting(child_waits.read(parent.session.suspended_awaiting_children))


def _go_on(child: UnitOfWork) -> None:
    """Ask for a run of the locked session, unless something else makes it run: its answers, or its inputs."""
    if _rests(child.session):
        runnable.request(child, timezone.now())
        child.event("run_requested", {})


def _rests(session: SessionRow) -> bool:
    """Whether nothing makes the session run but another call."""
    waits = session.awaiting_client or session.awaiting_children
    return session.run_id is None and session.runnable_at is None and not waits


def outcome_of(work: UnitOfWork) -> dict[str, Any]:
    """How a session that is locked whole ended: its output, or what it said last."""
    outcome = _outcome_in(work.session)
    if outcome["status"] == "completed" and outcome["output"] is None:
        key, unwritten = work.session.session_id, work.inserts.get(models.Message, ())
        asked = _asked_last(work) if work.session.pending_inputs else 0
        outcome["output"] = exchanges.last_words(work.connection, key, asked, unwritten)
    return outcome


def _asked_last(work: UnitOfWork) -> int:
    """The event of the admission of the last input that is pending."""
    rows = models.Input.objects.using(work.connection.alias).filter(session_id=work.session.session_id)
    return rows.pending().aggregate(last=Max("admitted_seq"))["last"] or 0


def _outcome_in(child: SessionRow) -> dict[str, Any]:
    values = {name: getattr(child, name) for name in _OUTCOME}
    for name in ("output", "error"):
        values[name] = None if values[name] is None else documents.load(values[name])
    if child.status == TOMBSTONE:
        values = {**values, "status": "failed", "output": None, "failure_reason": TOMBSTONE}
    return {"sub_session_id": child.session_id, **values}


def born_settled(
    tree: Transaction, parent: SessionRow, awaited: Waits, refs: Iterable[SubSessionRef] = ()
) -> Waits:
    """The waits, with the outcome of children that ended before their parent began to wait. One that was
    made active again since, and rests, has the outcome that is in its reference, if that is among `refs`.

    The children are locked, below their parent, so that none ends unseen meanwhile.
    """
    told = {
        ref.sub_session_id: sub_sessions.outcome_in(ref) for ref in refs if ref.status in TERMINAL_STATUSES
    }
    found = {}
    for key in sorted(
        {wait["sub_session_id"] for wait in awaited.values() if not child_waits.is_settled(wait)}
    ):
        try:
            work = tree.lock(key, ALL_COLUMNS)
        except SessionNotFound:
            continue
        child = work.session
        if not _is_theirs(child, parent):
            continue
        if child.status in TERMINAL_STATUSES:
            found[key] = outcome_of(work)
        elif key in told and child.status == "active" and _rests(child):
            found[key] = told[key]
    return {call_id: {**wait, **found.get(wait["sub_session_id"], {})} for call_id, wait in awaited.items()}


def fail_running(tree: Transaction, parent: UnitOfWork, awaited: set[str]) -> None:
    """Fail the running ephemeral children of a session that is suspended, and theirs."""

    def fail(child: UnitOfWork, above: UnitOfWork) -> bool:
        if child.session.run_id is None or child.session.status in TERMINAL_STATUSES:
            return False
        columns = {"status": "failed", "failure_reason": PARENT_SUSPENDED}
        statuses.enter(child, columns)
        _note_in_ref(above, child, columns)
        return True

    _walk(tree, parent, fail, spared=awaited, only_running=True)


def interrupt_below(tree: Transaction, parent: UnitOfWork, reason: str) -> None:
    """Interrupt the ephemeral children of a session that was stopped, and theirs. Who waits for one of them
    has an error for a result, so that no session waits for one that never runs."""

    def interrupt(child: UnitOfWork, above: UnitOfWork) -> bool:
        if child.session.status not in ("active", "paused"):
            return False
        columns = {"status": "interrupted", "failure_reason": reason}
        statuses.enter(child, columns)
        _note_in_ref(above, child, columns)
        outcome = {"status": "failed", "error": INTERRUPTED_WITH_PARENT, "failure_reason": reason}
        child_waits.settle(above, {"sub_session_id": child.session.session_id, **outcome})
        return True

    _walk(tree, parent, interrupt)


def _walk(
    tree: Transaction,
    top: UnitOfWork,
    act: Callable[[UnitOfWork, UnitOfWork], bool],
    *,
    spared: Iterable[str] = (),
    only_running: bool = False,
) -> None:
    """Lock the ephemeral children of a session and do something to each, level by level, below those for
    which it says so. One that is not worth a lock is passed over: a writer that changes it meanwhile does so
    after the parent was stopped."""
    met = {top.session.session_id, *spared}
    level = [top]
    while level:
        below = {
            key: above
            for above in level
            for key in sub_sessions.ephemeral(tree.connection.alias, above.session.session_id)
            if key not in met
        }
        level = []
        met.update(below)
        for key, above in sorted(below.items(), key=itemgetter(0)):
            if not _is_worth_a_lock(tree, key, above.session, only_running=only_running):
                continue
            child = tree.lock(key, ALL_COLUMNS)
            if act(child, above):
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


def respawn(tree: Transaction, parent: UnitOfWork) -> None:
    """Let the children of the locked session that were failed with its suspension run again, and theirs."""
    level = [parent]
    while level:
        using = tree.connection.alias
        below = {
            ref.sub_session_id: above
            for above in level
            for ref in to_respawn(using, sub_sessions.stored(using, above.session.session_id))
        }
        level = []
        for key, above in sorted(below.items(), key=itemgetter(0)):
            try:
                child = tree.lock(key, ALL_COLUMNS)
            except SessionNotFound:
                continue
            failed = (child.session.status, child.session.failure_reason) == ("failed", PARENT_SUSPENDED)
            if not failed or not _is_theirs(child.session, above.session):
                continue
            statuses.enter(child, {"status": "active"})
            runnable.request(child, timezone.now())
            child.event("run_requested", {})
            _note_in_ref(above, child, {"status": "active", "failure_reason": None})
            level.append(child)


def lock_with_parent(
    tree: Transaction,
    child_id: str,
    owner: Any,
    below: str | None = None,
    *,
    tombstones: bool = False,
    alone: bool = False,
) -> tuple[UnitOfWork | None, UnitOfWork]:
    """Lock a session, read whole, and before it its parent, if it has one that is stored.

    With `below`, a session that is no child of that one is unknown. `alone`: without its parent.
    """
    if alone:
        return None, tree.lock(child_id, ALL_COLUMNS, owner, tombstones=tombstones)
    columns = ("parent_session_id",)
    named = read_row(tree.connection, child_id, columns, owner, tombstones=tombstones).parent_session_id
    if below not in (None, named):
        raise SessionNotFound(f"There is no session {child_id!r} below {below!r}.")
    parent = None
    if named not in (None, child_id):
        try:
            parent = lock_parent(tree, named)
        except SessionNotFound:
            parent = None
    child = tree.lock(child_id, ALL_COLUMNS, tombstones=tombstones)
    return (parent if child.session.parent_session_id == named else None), child


def lock_parent(tree: Transaction, session_id: str) -> UnitOfWork:
    """Lock a session that is to be told how a child of it ended."""
    return tree.lock(session_id, (*LIGHT_COLUMNS, "suspended_awaiting_children"))


def tell_of_removal(parent: UnitOfWork, child_id: str) -> None:
    """Let the locked parent know that its locked child is about to be removed: how that had ended, or that it
    never will."""
    child = read_row(parent.connection, child_id, ALL_COLUMNS, tombstones=True)
    outcome = _outcome_in(child)
    if child.status not in PRUNED_STATUSES:
        outcome |= {"status": "failed", "output": None, "error": REMOVED, "failure_reason": TOMBSTONE}
    tell_parent(parent, outcome)


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
    if ended:
        runnable.follow(parent)
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
    data = {**outcome, "parent_tool_call_id": call_id}
    parent.event("subagent_result", {name: value for name, value in data.items() if value is not None})


def _is_worth_a_lock(tree: Transaction, session_id: str, parent: SessionRow, *, only_running: bool) -> bool:
    columns = ("run_id", "status", "owner_id", "parent_session_id")
    try:
        child = read_row(tree.connection, session_id, columns)
    except SessionNotFound:
        return False
    if only_running and child.run_id is None:
        return False
    return child.status not in PRUNED_STATUSES and _is_theirs(child, parent)


def _is_theirs(child: SessionRow, parent: SessionRow) -> bool:
    """Whether a session that another names as its child may be dealt with as one: anybody can name any."""
    return bool(child.parent_session_id == parent.session_id or child.owner_id == parent.owner_id)


def _note_in_ref(parent: UnitOfWork, child: UnitOfWork, columns: dict[str, Any]) -> None:
    key = child.session.session_id
    changes = {name: columns[name] for name in ("status", "failure_reason")}
    parent.update(
        models.SubSessionRef, {"sub_session_id": key}, status=columns["status"], updated_at=parent.now
    )
    parent.event("subagent_updated", {"sub_session_id": key, "changes": changes})
