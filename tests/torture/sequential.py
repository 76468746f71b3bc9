"""A session as a sequential machine: what each call answers when nobody else is there."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from tests.torture import sequential_inbox, sequential_leases
from tests.torture.linearizability import Operation, longest_order
from tests.torture.rows import Answer, Given, Row

CALLS = ("t0", "t1", "t2", "t3")
"""The tool calls a suspended session waits for."""


def explained(history: Iterable[Operation], initial: Row) -> tuple[list[Operation], list[Operation]]:
    """The longest order found in which the calls could have happened, and the calls it leaves out."""
    parts = [part for operation in history for part in sequential_inbox.parts(operation)]
    order = longest_order(parts, initial, step)
    taken = set(map(id, order))
    return order, [part for part in parts if id(part) not in taken]


def is_possible(history: Iterable[Operation], initial: Row) -> bool:
    """Whether all of it could have happened one call after the other."""
    return not explained(history, initial)[1]


def step(row: Row, operation: Operation) -> Row | None:
    """The row after a call, if the call answers so when the row is like this."""
    given = operation.arguments
    if row.fences(given.get("lease")):
        after, result = row, "Fenced"
    else:
        after, result = _MEANINGS[operation.call](row, given)
    return sequential_inbox.looked_on(after) if result == operation.result else None


def _load(row: Row, given: Given) -> Answer:
    return row, (row.version, row.seq, row.status, row.messages, row.done, row.resumes)


def _cas(row: Row, given: Given) -> Answer:
    if row.status not in given["expected"] or given["version"] not in (None, row.version):
        return row, ("mismatch", row.status, row.version)
    if given["new"] == "active":
        after = row.written(1, status="active")
    else:
        after = _revoked(row).written(1 + (row.run is not None), status=given["new"], run=None)
    return after, ("ok", after.version)


def _revoked(row: Row) -> Row:
    """A decision of somebody else takes the session away from who drives it."""
    if row.owner is None:
        return row
    return replace(row, fence=row.fence + 1, owner=None, expires_at=None)


def _commit(row: Row, given: Given) -> Answer:
    for checkpoint_id, version, messages in row.commits:
        if checkpoint_id == given["checkpoint_id"]:
            return row, ("replayed", version, messages)
    if row.version != given["version"]:
        return row, ("StaleState", row.version, row.status)
    made = (given["checkpoint_id"], row.version + 1, row.messages + 1)
    done = (*row.done, given["n"])
    after = row.written(3, messages=row.messages + 1, done=done, commits=(*row.commits, made))
    return after, ("ok", *made[1:])


def _append(row: Row, given: Given) -> Answer:
    after = row.written(given["count"], messages=row.messages + given["count"])
    return after, (row.messages, after.messages, after.version)


def _merge(row: Row, given: Given) -> Answer:
    after = row.written(1, done=(*row.done, given["n"]))
    return after, (after.version, after.done)


def _set_flag(row: Row, given: Given) -> Answer:
    after = row.written(1, flag=given["reason"])
    return after, after.version


def _check_flag(row: Row, given: Given) -> Answer:
    return (row, None) if row.flag is None else (row.written(1, flag=None), row.flag)


def _create_run(row: Row, given: Given) -> Answer:
    if row.run is not None:
        return row, "RunInProgress"
    after = row.written(1, run=given["run_id"], turns=row.turns + 1)
    return after, ("ok", after.turns)


def _end_run(row: Row, given: Given) -> Answer:
    if row.run != given["run_id"]:
        return row, "RunEnded"
    return _revoked(row).written(1, run=None), "ok"


def _submit(row: Row, given: Given) -> Answer:
    if given["call"] in row.answered:
        return row, ("already_completed", len(CALLS) - len(row.answered))
    after = row.written(1, answered=row.answered | {given["call"]})
    return after, ("accepted", len(CALLS) - len(after.answered))


def _resume(row: Row, given: Given) -> Answer:
    if given["version"] not in (None, row.version):
        return row, ("StaleState", row.version, row.status)
    if row.run is not None:
        return row, "RunInProgress"
    if len(row.answered) < len(CALLS):
        return row, ("StillWaiting", len(CALLS) - len(row.answered))
    after = row.written(
        3 + len(CALLS) + (row.flag is not None),  # resumed, calls completed, run started
        run=given["run_id"],
        turns=row.turns + 1,
        resumes=row.resumes + 1,
        messages=row.messages + len(CALLS),
        flag=None,
        suspended=False,
    )
    return after, ("ok", after.version, after.turns)


_MEANINGS: dict[str, Callable[[Row, Given], Answer]] = {
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
    **sequential_leases.MEANINGS,
    **sequential_inbox.MEANINGS,
}
