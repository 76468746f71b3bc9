"""What the owner of a session knows of it: its row, its document, its agent, and what waits in its inbox.

All of it is as of one write, which the row's mark names. A write that changes any of it changes the row.
As long as the row is the one that is known, nothing has to be read again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from helix_sessions.content import documents
from helix_sessions.models import AgentRecord, Input, Run
from helix_sessions.store.context import context_reads
from helix_sessions.store.driving import sql
from helix_sessions.store.engine import spending
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import dialect_of
from helix_sessions.store.engine.session_columns import ALL_COLUMNS, LIGHT_COLUMNS
from helix_sessions.store.engine.session_rows import SessionRow, read_row
from helix_sessions.store.engine.spending import Standings
from helix_sessions.store.engine.tables import table
from helix_sessions.store.engine.unit_of_work import UnitOfWork
from helix_sessions.store.state import agent_records, snapshots, state_rows
from helix_sessions.types import SessionState
from helix_sessions.values.agents import AgentDefinition, Budget, narrower

STEERS_READ = 64
"""So many steers are read at once."""

_HEAVY_COLUMNS = tuple(name for name in ALL_COLUMNS if name not in LIGHT_COLUMNS)


@dataclass(frozen=True, slots=True)
class PendingInput:
    """An input that is pending."""

    input_id: str
    delivery: str
    prompt: str
    """Its text."""
    admitted_seq: int


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run before, as far as the next one follows from it."""

    run_id: str
    status: str
    step_count: int
    metadata: dict[str, Any]
    error: Any


@dataclass(slots=True)
class Knowledge:
    """A session as its owner knows it."""

    row: SessionRow
    custom: dict[str, Any] = field(default_factory=dict)
    definition: AgentDefinition = field(default_factory=lambda: AgentDefinition(""))
    budget_is_given: bool = False
    """The budget is what a parent gave its sub-agent."""
    inputs: tuple[PendingInput, ...] = ()
    last_run: LastRun | None = None

    @property
    def state(self) -> SessionState:
        """The session as it is."""
        return state_rows.state_of(self.row, documents.load(documents.write(self.custom)))

    def defined(self, own: Budget | None) -> AgentDefinition:
        """The agent's definition; where it has no budget, the agent's `own` holds. Beside the budget that its
        parent gave a sub-agent, its own holds as well."""
        definition = self.definition
        if definition.budget is not None and not self.budget_is_given:
            return definition
        return replace(definition, budget=narrower(definition.budget, own))

    def is_current(self, row: SessionRow) -> bool:
        """Whether no other writer has written since."""
        return row.write_mark is not None and row.write_mark == self.row.write_mark

    def steers(self) -> list[PendingInput]:
        return [one for one in self.inputs if one.delivery == "steer"]

    def queued(self) -> list[PendingInput]:
        return [one for one in self.inputs if one.delivery == "queue"]

    def without(self, taken: Iterable[PendingInput]) -> None:
        """Forget inputs that were promoted."""
        gone = {one.input_id for one in taken}
        self.inputs = tuple(one for one in self.inputs if one.input_id not in gone)

    def copy(self, row: SessionRow) -> "Knowledge":
        return replace(self, row=row)


@dataclass(slots=True)
class Appended:
    """The messages that a driver has appended to the transcript since the context was last built."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    seq: int = 0
    """The number of the last of them."""
    others_wrote: bool = False
    """Whether the transcript has messages that are not among them."""


@dataclass(slots=True)
class Attempt:
    """A write that is being decided. One that finds the row changed is decided again, by another attempt."""

    message_count: int
    """Those of the transcript before it."""
    is_undisturbed: bool
    """No other writer has written since the driver's last write."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Those that it appends."""
    seq: int = 0
    """The number of the last of them."""


def complete(work: UnitOfWork, known: Knowledge) -> Knowledge:
    """What is known of the session that is about to be written: as it was, or read again if another writer
    has written meanwhile. The row is whole afterwards."""
    row = work.session
    if known.is_current(row):
        for name in _HEAVY_COLUMNS:
            row.__dict__.setdefault(name, known.row.__dict__.get(name))
        fresh = known.copy(row)
        if len(fresh.inputs) < row.pending_inputs and not (fresh.steers() and fresh.queued()):
            fresh.inputs = read(work.connection, row).inputs
        return fresh
    if any(name not in row.__dict__ for name in _HEAVY_COLUMNS):
        heavy = read_row(work.connection, row.session_id, _HEAVY_COLUMNS)
        row.__dict__.update(heavy.__dict__)
    return read(work.connection, row)


def read(connection: BaseDatabaseWrapper, row: SessionRow) -> Knowledge:
    """All that belongs to a row, in one query."""
    statement = sql.knowledge(dialect_of(connection), STEERS_READ)
    return _gathered(row, fetch(connection, statement, _parameters(row)))


class AtClaim(NamedTuple):
    """What a run begins with."""

    known: Knowledge
    context: list[tuple[Any, ...]]
    """The rows of the model's context; see `context_reads`."""
    spend: Standings


def read_at_claim(connection: BaseDatabaseWrapper, row: SessionRow) -> AtClaim:
    """The same, with the context of the model and the limits of spending, in one query."""
    dialect = dialect_of(connection)
    limits, limit_params = spending.question(dialect, row.owner_id, row.agent_type)
    place = context_reads.parameters(dialect, row.session_id, context_reads.NOWHERE)
    statement = sql.at_claim(dialect, STEERS_READ, limits)
    by_kind: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for found in fetch(connection, statement, [*_parameters(row), *place, *limit_params]):
        by_kind[found[0]].append(found)
    context = sorted((found[1:] for found in by_kind.pop("context", ())), key=itemgetter(0))
    for head in context[:1]:
        context[0] = (*head[:4], *map(int, head[4:]))
    [(_, _, _, limits, *_)] = by_kind.pop("spend")
    return AtClaim(
        _gathered(row, chain.from_iterable(by_kind.values())),
        context,
        spending.read_standings(json.loads(limits, parse_float=Decimal)),
    )


def _parameters(row: SessionRow) -> list[Any]:
    key = row.session_id
    return [key, key, row.state_base, row.state_number, key, key, key, row.turn_count]


def _gathered(row: SessionRow, rows: Iterable[Sequence[Any]]) -> Knowledge:
    key = row.session_id
    known = Knowledge(row, definition=AgentDefinition(row.agent_type))
    pieces: list[tuple[int, int, str]] = []
    waiting: list[PendingInput] = []
    for kind, one, two, *texts in rows:
        if kind == "state":
            pieces.append((one, two, texts[0]))
        elif kind == "input":
            prompt = table(Input).open_text("prompt", texts[2], key, texts[0])
            waiting.append(PendingInput(texts[0], texts[1], prompt, one))
        elif kind == "run":
            known.last_run = _run(key, one, texts)
        else:
            known.definition, known.budget_is_given = _definition(row.agent_type, key, texts)
    known.inputs = tuple(sorted(waiting, key=lambda each: each.admitted_seq))
    if row.state_number:
        *_, (_, known.custom) = snapshots.fold(key, sorted(pieces))
    return known


def _run(key: str, steps: int, texts: list[Any]) -> LastRun:
    run_id, status, metadata, error, _ = texts
    opened = [
        None if text is None else documents.load(table(Run).open_text(name, text, key, run_id))
        for name, text in (("metadata", metadata), ("error", error))
    ]
    return LastRun(run_id, status, steps, opened[0] or {}, opened[1])


def _definition(agent_type: str, key: str, texts: list[Any]) -> tuple[AgentDefinition, bool]:
    """The agent's definition as it stands now, and whether its budget was given by a parent."""
    names = ("label", "definition", "system_prompt", "model", "budget")
    record: dict[str, Any] = {
        name: text if text is None or name == "label" else table(AgentRecord).open_text(name, text, key)
        for name, text in zip(names, texts, strict=True)
    }
    defined, state = agent_records.read(agent_type, {**record, "execution": None, "execution_count": 0})
    now = replace(defined, system_prompt=state.system_prompt, model=state.model, budget=state.budget)
    return now, agent_records.is_given(defined, state)
