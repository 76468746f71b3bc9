"""The context of a model, read whole or continued from an earlier read, by one statement.

Between two compactions a context only grows at its end. So an owner that has read it needs the rows after
its last message, as long as the baseline, the latest compaction and that message are still the same; the
statement looks, and answers with the whole context where they are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from helix_sessions.conf import conf
from helix_sessions.content import documents
from helix_sessions.exceptions import SessionNotFound
from helix_sessions.messages import reasoning, tool_outputs
from helix_sessions.models import Compaction, ContextEpoch, Message, Session
from helix_sessions.store.context import sql
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import fetch
from helix_sessions.store.engine.dialect import Dialect
from helix_sessions.store.engine.session_rows import SessionRow, check_owner
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.engine.tables import table
from helix_sessions.types import ModelContext
from helix_sessions.values.context import context_characters


class Place(NamedTuple):
    """How far a context was read."""

    compaction: int
    """The number of the latest compaction; 0 without one."""
    baseline_seq: int
    """The number of the event that rendered the baseline; 0 without an epoch."""
    position: int
    """The position after the last message that was read."""
    seq: int
    """The number of that message; 0 if none was read."""


NOWHERE = Place(-1, -1, 0, 0)
"""Before anything was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """A context with the place from which a later read continues it."""

    context: ModelContext
    place: Place
    characters: int
    """Those of the context, from which its tokens are estimated."""
    model: str | None
    """Whom it is for."""

    def followed_by(self, messages: list[dict[str, Any]], seq: int) -> "ReadContext":
        """The context with messages that its owner has appended to the transcript, the last with the number
        `seq`: what reading them again would give."""
        place = self.place._replace(position=self.place.position + len(messages), seq=seq)
        return _grown(self, _cut(messages), place) if messages else self


def read_context(
    store: Store, session_id: str, seen: ReadContext | None = None, *, model: str | None = None
) -> ReadContext:
    """The context as it is now, for a model. With `seen`, an earlier read for the same model, only what came
    after it is read, unless a compaction, a new baseline or a truncation has changed what was seen."""
    key, dialect = session_key(session_id), store._dialect
    asking = inputs.optional_identifier(model, "The model")
    if seen is not None and seen.model != asking:
        seen = None
    place = NOWHERE if seen is None else seen.place
    rows = fetch(store._connection, sql.context(dialect), parameters(dialect, key, place))
    if not rows:
        raise SessionNotFound(session_id=session_id)
    decode = table(Session).decoder(("owner_id",))
    check_owner(key, SessionRow(("owner_id",), decode([rows[0][2]])), store._owner)
    return of_rows(key, rows, seen, asking)


def of_rows(
    key: str, rows: Sequence[Sequence[Any]], seen: ReadContext | None, asking: str | None
) -> ReadContext:
    """The context that the rows of the statement tell, after what was seen before."""
    (_, number, _, text, baseline_seq, start, same), *rest = rows
    messages = _messages([_opened(key, place, number, text) for place, number, _, text, *_ in rest])
    if seen is not None and same:
        last = [(row[0] + 1, row[1]) for row in rest[-1:]] or [(seen.place.position, seen.place.seq)]
        return _grown(seen, messages, Place(number, baseline_seq, *last[0]))
    baseline = "" if text is None else documents.load(table(ContextEpoch).open_text("baseline", text, key))
    last = [(row[0] + 1, row[1]) for row in rest[-1:] if row[0] >= start] or [(start, 0)]
    empty = ReadContext(
        context=ModelContext(baseline=baseline, messages=[]),
        place=NOWHERE,
        characters=len(baseline),
        model=asking,
    )
    return _grown(empty, messages, Place(number, baseline_seq, *last[0]))


def _grown(seen: ReadContext, messages: list[dict[str, Any]], place: Place) -> ReadContext:
    shown = reasoning.for_model(messages, seen.model)
    characters = seen.characters + context_characters(shown)
    context = replace(
        seen.context, messages=[*seen.context.messages, *shown], estimated_tokens=characters // 4
    )
    return replace(seen, context=context, place=place, characters=characters)


def _messages(texts: list[str]) -> list[dict[str, Any]]:
    messages = documents.load_all(texts)
    # A character has at most four bytes, so a short text is not measured.
    if any(len(text) * 4 > conf.MAX_TOOL_OUTPUT for text in texts):
        return _cut(messages)
    return messages


def _cut(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tool_outputs.cut_outputs(message, conf.MAX_TOOL_OUTPUT) for message in messages]


def _opened(session_id: str, place: int, number: int, text: str) -> str:
    if place < 0:
        return table(Compaction).open_text("content", text, session_id, number)
    return table(Message).open_text("content", text, session_id, place, number)


def parameters(dialect: Dialect, session_id: str, place: Place) -> list[Any]:
    """Those of `sql.context`."""
    return dialect.parameters([*place, *[session_id] * 3])
