"""The instructions of an agent type, and all their versions."""

from typing import Any

from django.db import IntegrityError
from django.db.models import Max
from django.utils import timezone

from helix_sessions import models
from helix_sessions.exceptions import InvalidInput, SessionBusy
from helix_sessions.store.engine import inputs
from helix_sessions.store.engine.connection import transaction_on
from helix_sessions.store.engine.store import Store
from helix_sessions.types import InstructionsRevision

MAX_CHARACTERS = 1_000_000


def get_instructions(store: Store, agent_type: str) -> str | None:
    """The instructions of this agent type; `None` if there are none."""
    kind = inputs.identifier(agent_type, "agent_type")
    rows = models.Instructions.objects.using(store.using).filter(agent_type=kind)
    return rows.values_list("text", flat=True).first()


def set_instructions(store: Store, agent_type: str, text: str | None) -> InstructionsRevision | None:
    """Set the instructions of this agent type, or with `None` withdraw them; return the revision, or
    `None` if nothing changed."""
    kind = inputs.identifier(agent_type, "agent_type")
    written = None if text is None else inputs.text(text, "The instructions")
    if written is not None and len(written) > MAX_CHARACTERS:
        raise InvalidInput(f"Instructions have at most {MAX_CHARACTERS:,} characters.")
    try:
        with transaction_on(store.using):
            return _write_revision(store, kind, written)
    except IntegrityError as error:  # another wrote the first ones of this type at the same moment
        raise SessionBusy("Another caller is writing the instructions.") from error


def list_instructions_revisions(store: Store, agent_type: str) -> list[InstructionsRevision]:
    """Every version of the instructions of this type, the newest first."""
    kind = inputs.identifier(agent_type, "agent_type")
    rows = models.InstructionsRevision.objects.using(store.using).filter(agent_type=kind)
    return [_value(row) for row in rows.order_by("-number")]


def _write_revision(store: Store, kind: str, text: str | None) -> InstructionsRevision | None:
    rows = models.Instructions.objects.using(store.using).filter(agent_type=kind)
    present = rows.select_for_update().first()
    if (None if present is None else present.text) == text:
        return None
    now = timezone.now()
    revisions = models.InstructionsRevision.objects.using(store.using)
    last = revisions.filter(agent_type=kind).aggregate(last=Max("number"))["last"]
    revision = models.InstructionsRevision(agent_type=kind, number=(last or 0) + 1, text=text, created_at=now)
    columns: dict[str, Any] = {"text": text, "number": revision.number, "updated_at": now}
    if text is None:
        rows.delete()
    elif present is None:
        models.Instructions.objects.using(store.using).create(agent_type=kind, **columns)
    else:
        rows.update(**columns)
    revision.save(using=store.using, force_insert=True)
    return _value(revision)


def _value(row: models.InstructionsRevision) -> InstructionsRevision:
    return InstructionsRevision(
        agent_type=row.agent_type, number=row.number, text=row.text, created_at=row.created_at
    )
