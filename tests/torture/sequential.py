"""A session as a sequential machine: what each call answers when nobody else is there."""

from dataclasses import dataclass, replace
from typing import Any

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
}
