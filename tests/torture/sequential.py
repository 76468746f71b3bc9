"""A session as a sequential machine: what each call answers when nobody else is there."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.torture.linearizability import Operation

CALLS = ("t0", "t1", "t2", "t3")
"""The tool calls a suspended session waits for."""


@dataclass(frozen=True)
class Row:
    """As much of a session as the calls of a history read and write."""

    version: int
    status: str = "active"
    messages: int = 0
    done: tuple[int, ...] = ()
    flag: str | None = None
    run: str | None = None
    turns: int = 0
    resumes: int = 0
    answered: frozenset[str] = frozenset()
    suspended: bool = False
    commits: tuple[tuple[str, int, int], ...] = ()
    head: int = 0
    """The last event, where the calls of a history are such that each appends one."""
    inbox: tuple[tuple[str, "Input"], ...] = ()
    owner: str | None = None
    fence: int = 0
    steps: int = 0


class Input(NamedTuple):
    """An input of the inbox: how it was admitted, how it is to be delivered, and what became of it."""

    admitted: str
    seq: int
    delivery: str
    fate: str = "pending"
    promoted_seq: int | None = None


def step(row: Row, operation: Operation) -> Row | None:
    """The row after a call, if the call answers so when the row is like this."""
    after, result = _MEANINGS[operation.call](row, operation.arguments)
    return after if result == operation.result else None


Answer = tuple[Row, Any]


def _raised(row: Row, **changes: Any) -> Row:
    return replace(row, version=row.version + 1, **changes)


def _load(row: Row, given: dict[str, Any]) -> Answer:
    return row, (row.version, row.status, row.messages, row.done, row.resumes)


def _cas(row: Row, given: dict[str, Any]) -> Answer:
    if row.status not in given["expected"] or given["version"] not in (None, row.version):
        return row, ("mismatch", row.status, row.version)
    after = _raised(row, status=given["new"])
    return after, ("ok", after.version)


def _commit(row: Row, given: dict[str, Any]) -> Answer:
    for checkpoint_id, version, messages in row.commits:
        if checkpoint_id == given["checkpoint_id"]:
            return row, ("replayed", version, messages)
    if row.version != given["version"]:
        return row, ("StaleState", row.version, row.status)
    after = _raised(row, messages=row.messages + 1, done=(*row.done, given["n"]))
    made = (given["checkpoint_id"], after.version, after.messages)
    return replace(after, commits=(*row.commits, made)), ("ok", *made[1:])


def _append(row: Row, given: dict[str, Any]) -> Answer:
    after = _raised(row, messages=row.messages + given["count"])
    return after, (row.messages, after.messages, after.version)


def _merge(row: Row, given: dict[str, Any]) -> Answer:
    after = _raised(row, done=(*row.done, given["n"]))
    return after, (after.version, after.done)


def _set_flag(row: Row, given: dict[str, Any]) -> Answer:
    after = _raised(row, flag=given["reason"])
    return after, after.version


def _check_flag(row: Row, given: dict[str, Any]) -> Answer:
    return (row, None) if row.flag is None else (_raised(row, flag=None), row.flag)


def _create_run(row: Row, given: dict[str, Any]) -> Answer:
    if row.run is not None:
        return row, "RunInProgress"
    after = _raised(row, run=given["run_id"], turns=row.turns + 1)
    return after, ("ok", after.turns)


def _end_run(row: Row, given: dict[str, Any]) -> Answer:
    return _raised(row, run=None), "ok"


def _submit(row: Row, given: dict[str, Any]) -> Answer:
    if given["call"] in row.answered:
        return row, ("already_completed", len(CALLS) - len(row.answered))
    after = _raised(row, answered=row.answered | {given["call"]})
    return after, ("accepted", len(CALLS) - len(after.answered))


def _resume(row: Row, given: dict[str, Any]) -> Answer:
    if given["version"] not in (None, row.version):
        return row, ("StaleState", row.version, row.status)
    if row.run is not None:
        return row, "RunInProgress"
    if len(row.answered) < len(CALLS):
        return row, ("StillWaiting", len(CALLS) - len(row.answered))
    after = _raised(
        row,
        run=given["run_id"],
        turns=row.turns + 1,
        resumes=row.resumes + 1,
        messages=row.messages + len(CALLS),
        flag=None,
        suspended=False,
    )
    return after, ("ok", after.version, after.turns)


def _put(row: Row, name: str, value: Input, *, raised: int = 1) -> Row:
    inbox = tuple(sorted((dict(row.inbox) | {name: value}).items()))
    return replace(row, inbox=inbox, head=row.head + raised, version=row.version + raised)


def _admit(row: Row, given: dict[str, Any]) -> Answer:
    name, known = given["input_id"], dict(row.inbox).get(given["input_id"])
    if known is None:
        return _put(row, name, Input(given["delivery"], row.head + 1, given["delivery"])), (
            row.head + 1,
            None,
        )
    if known.admitted != given["delivery"] or known.fate == "cancelled":
        return row, "InputConflict"
    return row, (known.seq, known.promoted_seq)


def _cancel(row: Row, given: dict[str, Any]) -> Answer:
    known = dict(row.inbox).get(given["input_id"])
    if known is None:
        return row, "InputNotFound"
    if known.fate != "pending":
        return row, "InputConflict"
    return _put(row, given["input_id"], known._replace(fate="cancelled")), "ok"


def _set_delivery(row: Row, given: dict[str, Any]) -> Answer:
    known = dict(row.inbox).get(given["input_id"])
    if known is None:
        return row, "InputNotFound"
    if known.fate != "pending":
        return row, "InputConflict"
    changes = known.delivery != given["delivery"]
    return _put(row, given["input_id"], known._replace(delivery=given["delivery"]), raised=changes), "ok"


def _promote(row: Row, given: dict[str, Any]) -> Answer:
    """One of the inputs a call of `promote_inputs` made a message of."""
    known = dict(row.inbox).get(given["input_id"])
    if known is None or known.fate != "pending" or known.delivery != given["delivery"]:
        return row, "not promoted"
    after = known._replace(fate="promoted", promoted_seq=row.head + 1)
    return _put(row, given["input_id"], after), row.head + 1


def _acquire(row: Row, given: dict[str, Any]) -> Answer:
    if row.owner not in (None, given["owner"]):
        return row, ("LeaseHeld", row.owner)
    fence = row.fence + (row.owner is None)
    return replace(row, owner=given["owner"], fence=fence), ("ok", fence)


def _holds(row: Row, given: dict[str, Any]) -> bool:
    return row.owner is not None and row.fence == given["fence"]


def _renew(row: Row, given: dict[str, Any]) -> Answer:
    return row, ("ok", row.fence) if _holds(row, given) else "Fenced"


def _release(row: Row, given: dict[str, Any]) -> Answer:
    return (replace(row, owner=None), "ok") if _holds(row, given) else (row, "Fenced")


def _count_fenced(row: Row, given: dict[str, Any]) -> Answer:
    if not _holds(row, given):
        return row, "Fenced"
    after = _raised(row, steps=row.steps + 1)
    return after, ("ok", after.steps)


_MEANINGS = {
    "load_state": _load,
    "compare_and_set_status": _cas,
    "save_state_and_promote_staging": _commit,
    "append_messages": _append,
    "merge_custom_state": _merge,
    "set_interrupt_flag": _set_flag,
    "check_interrupt_flag": _check_flag,
    "create_run": _create_run,
    "update_run_status": _end_run,
    "submit_tool_result": _submit,
    "resume": _resume,
    "admit_input": _admit,
    "cancel_input": _cancel,
    "set_delivery": _set_delivery,
    "promote_inputs": _promote,
    "acquire_lease": _acquire,
    "renew_lease": _renew,
    "release_lease": _release,
    "increment_step_count": _count_fenced,
}
