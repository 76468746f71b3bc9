"""The stored form of an agent: its row, documents as text, and the words for a session's status."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from helix_sessions.content import documents
from helix_sessions.exceptions import InvalidDocument
from helix_sessions.models import AgentRecord
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import sql
from helix_sessions.values.agents import (
    AGENT_STATUSES,
    AgentDefinition,
    AgentSession,
    AgentSessionInfo,
    AgentState,
    Budget,
    Execution,
    optional,
    value_of,
)

SPAWNED = "spawned"
"""In the metadata of the definition of a sub-agent whose budget its parent gave it."""

_EVENTS = {"model": "model_changed", "budget": "budget_updated", "system_prompt": "system_prompt_changed"}


def stored_status(status: Any) -> str:
    """The status as the session's row has it. `interrupted` is not decided here, but may stay."""
    word = inputs.choice(status, (*AGENT_STATUSES, "interrupted"), "The status")
    return "paused" if word == "suspended" else word


def shown_status(status: str) -> str:
    """The status as the runtime calls it."""
    return "suspended" if status == "paused" else status


def written(session: AgentSession) -> dict[str, Any]:
    """The agent's row, checked."""
    definition, state = session.definition, session.state
    return {
        "label": _label(definition.label),
        "definition": documents.dump(
            {
                "system_prompt": _text(definition.system_prompt, "A system prompt") or "",
                "model": definition.model,
                "budget": written_budget(definition.budget),
                "metadata": _object(definition.metadata),
            }
        ),
        "system_prompt": documents.dump(_text(state.system_prompt, "A system prompt") or ""),
        "model": inputs.document(state.model),
        "budget": inputs.document(written_budget(state.budget)),
        "execution_count": inputs.integer(state.execution_count, "execution_count"),
        "execution": None if state.execution is None else documents.dump(_execution(state.execution)),
    }


def read(agent_type: str, record: Mapping[str, Any] | None) -> tuple[AgentDefinition, AgentState]:
    """Read a row. A session that the runtime did not create has none."""
    if record is None:
        return AgentDefinition(agent_type), AgentState()
    found: dict[str, Any] = {
        name: None if record[name] is None else documents.load(record[name])
        for name in ("definition", "system_prompt", "model", "budget", "execution")
    }
    definition = AgentDefinition(name=agent_type, label=record["label"], **found.pop("definition"))
    return definition, AgentState(execution_count=record["execution_count"], **found)


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that have changed."""
    if before is None:
        before = written_of_nothing(after)
    return {name: value for name, value in after.items() if before[name] != value}


def written_of_nothing(after: Mapping[str, Any]) -> dict[str, Any]:
    """An empty row, for a session that has none."""
    empty = dict.fromkeys(("model", "budget", "execution"))
    return {**after, **empty, "system_prompt": '""', "execution_count": 0}


def put(
    work: UnitOfWork, before: Mapping[str, Any] | None, after: Mapping[str, Any], changed: Mapping[str, Any]
) -> None:
    """Write the agent's row of a locked session, and log its changes."""
    if before is None:
        work.insert(AgentRecord, **after)
    elif changed:
        work.update(AgentRecord, {}, **changed)
    for name, kind in _EVENTS.items():
        if name in changed:
            value = None if changed[name] is None else documents.load(changed[name])
            work.event(kind, {name: value})
    if "execution" in changed or "execution_count" in changed:
        text = after["execution"]
        execution = None if text is None else documents.load(text)
        work.event("execution_changed", {"execution": execution, "execution_count": after["execution_count"]})


def labels(using: str, session_ids: Iterable[str]) -> dict[str, str | None]:
    """The labels of the agents of some sessions."""
    rows = AgentRecord.objects.using(using).filter(session__session_id__among=list(session_ids))
    return dict(rows.values_list("session_id", "label"))


def decoded(row: Sequence[Any]) -> dict[str, Any]:
    """A row of all columns, documents as text."""
    columns = table(AgentRecord).columns
    values = table(AgentRecord).opened(columns, table(AgentRecord).decoder(columns)(row))
    return dict(zip(columns, values, strict=True))


def give_budget(work: UnitOfWork, budget: Budget | None) -> None:
    """Say what a locked sub-agent may use from now on. A budget that was changed since its parent gave it one
    stands."""
    row = work.session
    before = None if work.new else stored(work, row.session_id)
    definition, state = read(row.agent_type, before)
    if budget == state.budget or definition.budget != state.budget:
        return
    metadata = {**definition.metadata, SPAWNED: True}
    definition = replace(definition, budget=budget, metadata=metadata)
    info = AgentSessionInfo(
        row.session_id, row.parent_session_id, "active", 0, row.agent_type, definition.label, None, None
    )
    after = written(AgentSession(info, definition, replace(state, budget=budget)))
    put(work, before, after, {} if work.new else changes(before, after))


def is_given(definition: AgentDefinition, state: AgentState) -> bool:
    """Whether the budget of a sub-agent is what its parent gave it."""
    return bool(definition.metadata.get(SPAWNED)) and definition.budget == state.budget


def stored(work: UnitOfWork, session_id: str) -> dict[str, Any] | None:
    """The agent's row of a session, documents as text."""
    return next(map(decoded, fetch(work.connection, sql.agent(work.dialect), [session_id])), None)


def give(work: UnitOfWork, source_id: str) -> None:
    """Copy the source's agent to a branch, without its executions."""
    record = stored(work, source_id)
    if record is not None:
        del record["session_id"]
        work.insert(AgentRecord, **{**record, "execution_count": 0, "execution": None})


def written_budget(value: Any) -> dict[str, Any] | None:
    """A budget as a document."""
    budget = optional(Budget, value)
    if budget is None:
        return None
    found = {name: limit for name, limit in asdict(budget).items() if limit is not None}
    if budget.deadline is not None:
        found["deadline"] = budget.deadline.isoformat()
    return found


def _execution(value: Any) -> dict[str, Any]:
    return asdict(value_of(Execution, value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidDocument(f"metadata must be an object, not {type(value).__name__}.")
    return dict(value)


def _label(value: Any) -> str | None:
    return None if value is None else inputs.text(value, "The label of an agent", limit=inputs.MAX_ID)


def _text(value: Any, what: str) -> str | None:
    text = inputs.string_document(value, what)
    return None if text is None else str(value)
