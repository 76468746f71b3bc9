"""The inbox: admits prompts durably, and promotes them to messages, one transaction each."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from django.db import IntegrityError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Min, Q

from helix_sessions import models
from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import (
    HelixSessionsError,
    InboxFull,
    InputConflict,
    InputNotFound,
    InvalidDocument,
    SessionBusy,
)
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import execute
from helix_sessions.store.engine.cursors import Pager
from helix_sessions.store.engine.ids import new_id
from helix_sessions.store.engine.session_columns import LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import check_row_version
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import insert_sql, table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import runnable, runner_notices
from helix_sessions.store.state.summaries import summaries
from helix_sessions.types import (
    DELIVERIES,
    JSON,
    UNSET,
    Delivery,
    InputReceipt,
    Page,
    SessionSummary,
)

_ATTEMPTS = 5
_COLUMNS = (*LIGHT_COLUMNS, "pending_client_tool_calls", "suspended_awaiting_children")


def admit_input(
    store: Store,
    session_id: str,
    prompt: JSON,
    *,
    input_id: str | None = None,
    delivery: Delivery = "steer",
    resume: bool = True,
    priority: int | None = None,
    expected_version: int | None = None,
) -> InputReceipt:
    """Admit a prompt, a string or an object, durably; it becomes a message when it is promoted.

    An input id stands for one prompt in all sessions of an owner: repeating the call returns the same
    receipt, anything else under that id is `InputConflict`. Unless `resume` is false, the driver of the
    session is notified, also on a retry. `priority` (-10 to 10, by default the session's) says how urgent
    it is; that holds until the session comes to rest.
    """
    key = session_key(session_id)
    urgent = None if priority is None else inputs.priority(priority)
    given = input_id is not None
    name = inputs.identifier(input_id, "The input id") if given else new_id()
    text = checked_prompt(prompt, name)
    how = inputs.choice(delivery, DELIVERIES, "The delivery")
    wake = inputs.flag(resume, "resume")
    version = inputs.expected_version(expected_version)

    def admit_it(work: UnitOfWork) -> InputReceipt:
        runnable.hurry(work, urgent)
        receipt = admit(work, name, text, how, resume=wake)
        if wake:
            runnable.input_admitted(work)
            runner_notices.notify_runners(work)
        return receipt

    def known(owner_id: Any) -> InputReceipt | None:
        return _admitted_before(store, key, owner_id, name, text, how) if given else None

    receipt, is_new = _admit_once(store, key, admit_it, known, version)
    if wake and not is_new:
        _ask_again(store, key, receipt)
    return receipt


def admit(
    work: UnitOfWork, input_id: str, text: str, delivery: Delivery, *, resume: bool = True
) -> InputReceipt:
    """Take a prompt into the inbox of the locked session. That it is not to `resume` it is logged."""
    session = work.session
    if session.pending_inputs >= conf.INBOX_LIMIT:
        raise InboxFull(f"The session has {session.pending_inputs:,} pending inputs.")
    data: dict[str, Any] = {"input_id": input_id, "delivery": delivery}
    seq = work.event("input_admitted", data if resume else {**data, "resume": False})
    work.insert(models.InputClaim, input_id=input_id, owner_key=owner_key(session.owner_id))
    work.insert(
        models.Input,
        input_id=input_id,
        prompt=text,
        delivery=delivery,
        admitted_delivery=delivery,
        admitted_seq=seq,
        created_at=work.now,
    )
    work.change(pending_inputs=session.pending_inputs + 1)
    return InputReceipt(
        input_id=input_id,
        session_id=session.session_id,
        prompt=documents.load(text),
        delivery=delivery,
        admitted_seq=seq,
        promoted_seq=None,
        created_at=work.now,
    )


def _admit_once(
    store: Store,
    key: str,
    admit: Callable[[UnitOfWork], InputReceipt],
    known: Callable[[Any], InputReceipt | None],
    expected_version: int | None,
) -> tuple[InputReceipt, bool]:
    """Admit, and only when that is refused look for the same admission made before: most are new."""
    for _ in range(_ATTEMPTS):  # another caller claims the id, or deletes the session that had it
        try:
            _, receipt = store._decide(key, admit, expected_version, fenced=False)
            return receipt, True
        except (IntegrityError, HelixSessionsError) as refusal:
            before = known(store._read(key, ("owner_id",)).owner_id)
            if before is not None:
                return before, False
            if isinstance(refusal, HelixSessionsError):
                raise
    raise SessionBusy


def _ask_again(store: Store, key: str, receipt: InputReceipt) -> None:
    """An input that was admitted before: while it is pending, the session is to run, and runners are told."""

    def ask(work: UnitOfWork) -> None:
        work.versioned = False
        if receipt.promoted_seq is None and work.session.pending_inputs:
            runnable.input_admitted(work)

    work, _ = store._decide(key, ask, fenced=False)
    if not work.notices:
        runner_notices.notify_runners_after_commit(store._connection, key, work.session.agent_type)


def _admitted_before(
    store: Store, key: str, owner_id: Any, input_id: str, text: str, delivery: str
) -> InputReceipt | None:
    """The receipt of the same admission, or `None` if the id is new to the owner of the session."""
    claims = models.InputClaim.objects.using(store.using).filter(
        Q(owner_key=owner_key(owner_id)) | Q(session_id=key), input_id=input_id
    )
    claimed = set(claims.values_list("session_id", flat=True))
    row = models.Input.objects.using(store.using).filter(session_id=key, input_id=input_id).first()
    if not claimed and row is None:
        return None
    if (
        (claimed and key not in claimed)
        or row is None
        or row.cancelled_seq is not None
        or row.admitted_delivery != delivery
        or not _same(row.prompt, documents.load(text))
    ):
        raise InputConflict(f"The input id {input_id!r} stands for something else.")
    row.delivery = row.admitted_delivery
    return _receipt(row)


def owner_key(owner_id: Any) -> str:
    """The scope of input ids: the sessions of an owner, or those without one."""
    return "" if owner_id is None else str(owner_id)


def list_inputs(store: Store, session_id: str, *, pending: bool = True) -> list[InputReceipt]:
    """The pending inputs, or all inputs, in the order of their admission."""
    only_pending = inputs.flag(pending, "pending")
    store._read(session_id, ("session_id",))
    rows = models.Input.objects.using(store.using).filter(session_id=session_id).in_order()
    return [_receipt(row) for row in (rows.pending() if only_pending else rows)]


def page_of_inputs(
    store: Store, session_id: str, *, pending: bool = True, limit: int = 50, cursor: str | None = None
) -> Page[InputReceipt]:
    """A page of what `list_inputs` returns."""
    pager = Pager("inputs", "admitted_seq", limit=limit, cursor=cursor)
    rows = models.Input.objects.using(store.using).filter(session_id=session_key(session_id))
    if inputs.flag(pending, "pending"):
        rows = rows.pending()
    store._read(session_id, ("session_id",))
    return pager.page(rows, _receipt)


def count_inputs(store: Store, session_id: str, *, after: int = 0) -> dict[Delivery, int]:
    """How many inputs are pending by delivery; with `after`, those that later events admitted."""
    first = inputs.integer(after, "after")
    counts: dict[Any, int] = dict.fromkeys(DELIVERIES, 0)
    if store._read(session_id, ("pending_inputs",)).pending_inputs:
        rows = models.Input.objects.using(store.using).filter(session_id=session_id).pending()
        for delivery in rows.filter(admitted_seq__gt=first).values_list("delivery", flat=True):
            counts[delivery] += 1
    return counts


def list_unattended(
    store: Store, *, agent_types: Collection[str] | None = None, limit: int = 100
) -> list[SessionSummary]:
    """Deprecated: use `list_runnable`, which knows every cause.

    Sessions with inputs that can be promoted and no driver, the longest waiting first.
    """
    advice = "list_unattended() is deprecated, use list_runnable(), which knows every cause to run."
    warnings.warn(advice, DeprecationWarning, stacklevel=3)
    most = inputs.integer(limit, "limit", minimum=1)
    rows = models.Input.objects.using(store.using).unattended()
    if agent_types is not None:
        rows = rows.filter(session__agent_type__among=inputs.identifiers(agent_types, "agent_types"))
    if store._owner is not UNSET:
        rows = rows.filter(session__owner_id=store._owner)
    waiting = rows.values("session_id").annotate(since=Min("created_at")).order_by("since")
    found = [row["session_id"] for row in waiting[:most]]
    known = models.Session.objects.using(store.using).filter(session_id__among=found) if found else None
    places = {key: place for place, key in enumerate(found)}
    return sorted([] if known is None else summaries(known), key=lambda summary: places[summary.session_id])


def cancel_input(
    store: Store, session_id: str, input_id: str, *, expected_version: int | None = None
) -> InputReceipt:
    """Cancel a pending input; its id stays used."""
    name = inputs.identifier(input_id, "The input id")
    with store._write(session_id, expected_version, columns=_COLUMNS) as work:
        row = _pending(work, name)
        seq = work.event("input_cancelled", {"input_id": name})
        work.update(models.Input, {"input_id": name}, cancelled_seq=seq)
        work.change(pending_inputs=work.session.pending_inputs - 1)
        _follow(work)
    return _receipt(row)


def set_delivery(
    store: Store, session_id: str, input_id: str, delivery: Delivery, *, expected_version: int | None = None
) -> InputReceipt:
    """Deliver a pending input as `steer` or `queue` from now on. It keeps its place."""
    name = inputs.identifier(input_id, "The input id")
    how = inputs.choice(delivery, DELIVERIES, "The delivery")
    with store._write(session_id, expected_version) as work:
        row = _pending(work, name)
        if row.delivery != how:
            work.event("input_delivery_changed", {"input_id": name, "from": row.delivery, "to": how})
            work.update(models.Input, {"input_id": name}, delivery=how)
            row.delivery = how
    return _receipt(row)


def promote_inputs(
    store: Store, session_id: str, mode: Delivery, *, expected_version: int | None = None
) -> list[InputReceipt]:
    """Promote pending inputs to messages, each in a transaction of its own, in the order of their
    admission.

    `steer`: the steers that are there when the call begins. `queue`: the oldest queued input, if there is
    one, and then those steers. `expected_version` is checked before the first.
    """
    key = session_key(session_id)
    opening = inputs.choice(mode, DELIVERIES, "The mode") == "queue"
    version = inputs.expected_version(expected_version)
    row = store._read(key, ("version", "status", "pending_inputs"))
    check_row_version(row, version)
    if not row.pending_inputs:
        return []
    pending = models.Input.objects.using(store.using).filter(session_id=key).pending().in_order()
    found = list(pending.values_list("input_id", "delivery"))
    queued = [name for name, delivery in found if delivery == "queue"] if opening else []
    found_now: list[InputReceipt] = []
    for name in queued:
        receipt = _promote(store, key, name, "queue", version)
        if receipt is not None:
            found_now.append(receipt)
            version = None
            break
    for name in [name for name, delivery in found if delivery == "steer"]:
        receipt = _promote(store, key, name, "steer", version)
        if receipt is not None:
            found_now.append(receipt)
            version = None
    return found_now


def _promote(
    store: Store, key: str, input_id: str, delivery: str, expected_version: int | None
) -> InputReceipt | None:
    """Promote one input, unless it was promoted, cancelled or delayed meanwhile."""
    with store._write(key, expected_version, columns=_COLUMNS) as work:
        row = _find(work, input_id)
        if row is None or not _is_pending(row) or row.delivery != delivery:
            return None
        seq = work.message("user", documents.write(message_of(input_id, row.prompt)))
        promoted(work, input_id, seq)
        _follow(work)
        work.note_activity()
        row.promoted_seq = seq
    return _receipt(row)


def promoted(work: UnitOfWork, input_id: str, seq: int) -> None:
    """Note that an input of the locked session is a message now, with this number."""
    work.update(models.Input, {"input_id": input_id}, promoted_seq=seq)
    work.change(pending_inputs=work.session.pending_inputs - 1)


def _follow(work: UnitOfWork) -> None:
    """With the last input, the inbox of the locked session is no cause to run any more."""
    if not (work.session.pending_inputs or work.session.retry_attempt):
        runnable.follow(work)


def claim(connection: BaseDatabaseWrapper, owner_id: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """Claim the ids of imported inputs for the owner of their session, where they are free."""
    columns, scope = table(models.InputClaim).columns, {"owner_key": owner_key(owner_id)}
    taken = [{**row, **scope}[name] for row in rows for name in columns]
    sql = insert_sql(models.InputClaim, columns, len(taken) // len(columns), skipping=True)
    execute(connection, sql, taken, prepare=False)


def checked_prompt(value: Any, input_id: str) -> str:
    """The text of a prompt: a string, or an object that may say it is a user's message with this id."""
    if isinstance(value, str):
        return documents.dump(value)
    if not isinstance(value, Mapping):
        raise InvalidDocument(f"A prompt is a string or an object, not a {type(value).__name__}.")
    text = documents.dump(value if isinstance(value, dict) else dict(value))
    if value.get("role", "user") != "user":
        raise InvalidDocument("A prompt is said by a user; its role cannot be another.")
    if value.get("id", input_id) != input_id:
        raise InvalidDocument("A prompt cannot have another id than its input.")
    return text


def message_of(input_id: str, prompt: Any) -> dict[str, Any]:
    """The message that an input becomes."""
    said = {"content": prompt} if isinstance(prompt, str) else prompt
    return {"role": "user", "id": input_id, **said}


def _same(one: Any, other: Any) -> bool:
    """Whether two documents are equal as JSON, where 1 and true differ and the order of keys does not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _find(work: UnitOfWork, input_id: str) -> models.Input | None:
    rows = models.Input.objects.using(work.connection.alias)
    return rows.filter(session_id=work.session.session_id, input_id=input_id).first()


def _pending(work: UnitOfWork, input_id: str) -> models.Input:
    row = _find(work, input_id)
    if row is None:
        raise InputNotFound(f"Session {work.session.session_id!r} has no input {input_id!r}.")
    if not _is_pending(row):
        what = "cancelled" if row.promoted_seq is None else "promoted"
        raise InputConflict(f"The input {input_id!r} was {what}.")
    return row


def _is_pending(row: models.Input) -> bool:
    return row.promoted_seq is None and row.cancelled_seq is None


def _receipt(row: models.Input) -> InputReceipt:
    return InputReceipt(
        input_id=row.input_id,
        session_id=row.session_id,
        prompt=row.prompt,
        delivery=row.delivery,
        admitted_seq=row.admitted_seq,
        promoted_seq=row.promoted_seq,
        created_at=row.created_at,
    )
