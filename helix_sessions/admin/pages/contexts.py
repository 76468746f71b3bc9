"""The page of a model's context: what the model sees, its changes, and the compactions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Any

from django.utils.translation import gettext as _

from helix_sessions.admin.base import stored
from helix_sessions.admin.documents import CHARACTERS_SHOWN, Preview, masked, pretty, shown
from helix_sessions.models import Event, Session
from helix_sessions.store import SessionStore
from helix_sessions.types import Compaction, ModelContext

CHANGES_SHOWN = 50
COMPACTIONS_SHOWN = 50
LINES_SHOWN = 400

_TYPES = ("context_initialized", "context_updated", "context_replaced", "session_moved")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a difference: `add`, `drop`, `keep` or `place`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A change of the model's context."""

    seq: int
    label: str
    created_at: datetime
    parts: list[tuple[str, list[DiffLine]]]
    """By source, or for the baseline as a whole, what is different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A compaction, and the message it left."""

    compaction: Compaction
    message: Preview


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPage:
    """All of it."""

    context: ModelContext
    baseline: str
    snapshot: Preview | None
    baseline_seq: int | None
    history: list[Told]
    compactions: list[Replaced]


def context_page(store: SessionStore, session: Session) -> ContextPage:
    """What a session's page about its context shows."""
    epoch, context = store.get_context_epoch(session.session_id), store.get_context(session.session_id)
    compactions = store.list_compactions(session.session_id)[-COMPACTIONS_SHOWN:]
    limit = CHARACTERS_SHOWN
    cut = context.baseline[:limit] + ("…" if len(context.baseline) > limit else "")
    return ContextPage(
        context=context,
        baseline=cut,
        snapshot=None if epoch is None else shown(epoch.snapshot),
        baseline_seq=None if epoch is None else epoch.baseline_seq,
        history=list(reversed(list(_history(store, session)))),
        compactions=[
            Replaced(compaction=compaction, message=shown(compaction.message))
            for compaction in reversed(compactions)
        ],
    )


def _history(store: SessionStore, session: Session) -> Iterator[Told]:
    """The latest changes, oldest first; each baseline is compared with the one before it."""
    rows = stored(Event).filter(session_id=session.session_id, type__in=_TYPES).order_by("-seq")
    seqs = list(rows.values_list("seq", flat=True)[:CHANGES_SHOWN])
    baseline = ""
    for event in store.get_events(session.session_id, seqs[-1], types=_TYPES) if seqs else ():
        data = event.data
        parts: list[tuple[str, list[DiffLine]]] = []
        if event.type == "context_updated":
            parts = [(key, _difference(change)) for key, change in masked(data["changes"]).items()]
        elif "baseline" in data:
            parts = [(_("Baseline"), difference_of_texts(baseline, data["baseline"]))]
            baseline = data["baseline"]
        else:
            parts = [(_("Location"), _difference(masked(data)))]
            baseline = ""
        yield Told(seq=event.seq, label=_label(event.type), created_at=event.created_at, parts=parts)


def _label(kind: str) -> str:
    return {
        "context_initialized": _("First context"),
        "context_updated": _("Changes"),
        "context_replaced": _("Told afresh"),
        "session_moved": _("Moved; the context was reset"),
    }[kind]


def _difference(change: dict[str, Any]) -> list[DiffLine]:
    old, new = (_as_text(change[name]) if name in change else "" for name in ("from", "to"))
    return difference_of_texts(old, new)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value)


def difference_of_texts(old: str, new: str) -> list[DiffLine]:
    """The difference of two texts, line by line."""
    limit = CHARACTERS_SHOWN
    before, after = old[:limit].splitlines(), new[:limit].splitlines()
    kinds = {"+": "add", "-": "drop", "@": "place", " ": "keep"}
    found = [
        DiffLine(kind=kinds[line[0]], text=line if line[0] == "@" else line[1:])
        for line in unified_diff(before, after, lineterm="", n=3)
        if not line.startswith(("--- ", "+++ "))
    ]
    if before == after:
        return [DiffLine(kind="keep", text=_("The same."))]
    if not before or not after:
        found = [line for line in found if line.kind != "place"]
    return found[:LINES_SHOWN]
