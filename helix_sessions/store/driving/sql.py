"""The statements of a driver: what it knows of its session, and what the sessions below have used."""

from functools import cache

from helix_sessions.models import AgentRecord, Input, Run, Session, StateSnapshot
from helix_sessions.store.context import sql as context_sql
from helix_sessions.store.engine import spending
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.tables import table

_AGENT = ("label", "definition", "system_prompt", "model", "budget")


@cache
def knowledge(dialect: Dialect, most_steers: int) -> str:
    """What belongs to a session's row: rows of five texts and two numbers, each with a word for its kind."""
    empty = dialect.as_text("NULL")
    agent, state, run = (dialect.as_text(f"'{kind}'") for kind in ("agent", "state", "run"))
    texts = [f"{_texts(dialect, name)} AS {letter}" for name, letter in zip(_AGENT, "abcde", strict=True)]
    return (
        f'SELECT {agent} AS kind, "execution_count" AS one, 0 AS two, {", ".join(texts)}'  # noqa: S608
        f' FROM {table(AgentRecord).name} WHERE "session_id" = %s'
        f' UNION ALL SELECT {state}, "number", "base", {_texts(dialect, "document")},'
        f" {empty}, {empty}, {empty}, {empty} FROM {table(StateSnapshot).name}"
        ' WHERE "session_id" = %s AND "number" BETWEEN %s AND %s'
        f" UNION ALL {_inputs(dialect, 'steer', most_steers)} UNION ALL {_inputs(dialect, 'queue', 1)}"
        f' UNION ALL SELECT {run}, "step_count", "turn",'
        f" {_texts(dialect, 'run_id', 'status', 'metadata', 'error')}, {empty} FROM {table(Run).name}"
        ' WHERE "session_id" = %s AND "turn" = %s'
    )


@cache
def at_claim(dialect: Dialect, most_steers: int, limits: str) -> str:
    """The same, with the context of the model, which is seen for the first time, and the limits of spending,
    which the query `limits` finds. So a run begins with one statement beside its writes."""
    context, spend, empty = (dialect.as_text(word) for word in ("'context'", "'spend'", "NULL"))
    texts = ", ".join(
        dialect.as_text(f'c."{name}"') for name in ("owner_id", "text", "baseline_seq", "start", "same")
    )
    return (
        f"{knowledge(dialect, most_steers)}"  # noqa: S608
        f' UNION ALL SELECT {context}, c."place", c."number", {texts}'
        f" FROM ({context_sql.context(dialect)}) c"
        f" UNION ALL SELECT {spend}, 0, 0, {dialect.rows_as_json(limits, spending.COLUMNS)},"
        f" {empty}, {empty}, {empty}, {empty}"
    )


def _inputs(dialect: Dialect, delivery: str, most: int) -> str:
    kind, empty = dialect.as_text("'input'"), dialect.as_text("NULL")
    return (
        f'SELECT * FROM (SELECT {kind}, "admitted_seq", 0,'  # noqa: S608
        f" {_texts(dialect, 'input_id', 'delivery', 'prompt')}, {empty}, {empty} FROM {table(Input).name}"
        ' WHERE "session_id" = %s AND "promoted_seq" IS NULL AND "cancelled_seq" IS NULL'
        f' AND "delivery" = \'{delivery}\' ORDER BY "admitted_seq" LIMIT {most}) AS {delivery}s'
    )


def _texts(dialect: Dialect, *names: str) -> str:
    return ", ".join(dialect.as_text(f'"{name}"') for name in names)


USED_IN_TREE = ("session_id", "parent_session_id", "created_at", "step_count", "usage")


@cache
def used_in_tree(dialect: Dialect, named: int) -> str:
    """What the sessions of a tree have used that were created from a moment on, or are named."""
    sessions = table(Session)
    also = f' OR "session_id" IN ({", ".join(["%s"] * named)})' if named else ""
    return (
        f"SELECT {sessions.selection(dialect, USED_IN_TREE)}"  # noqa: S608
        f' FROM {sessions.name} WHERE "root_session_id" = %s AND ("created_at" >= %s{also})'
    )
