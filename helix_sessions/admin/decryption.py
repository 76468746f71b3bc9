"""Decrypts content for a page, or shows a note in its place."""

from collections.abc import Iterable
from typing import Any

from django.db import models

from helix_sessions.content import documents, encryption
from helix_sessions.exceptions import ContentUnreadable
from helix_sessions.models import Session
from helix_sessions.models.fields import key_of
from helix_sessions.store.engine.tables import table

_REASON = "_unreadable"


def settle(session: Session) -> Session:
    """Decrypt what was read of a session; what cannot be decrypted is absent, and `reason` says why."""
    deferred = session.get_deferred_fields()
    for name in table(Session).content:
        if name not in deferred:
            try:
                getattr(session, name)
            except ContentUnreadable as error:
                setattr(session, name, None)
                vars(session).setdefault(_REASON, error)
    return session


def reason(session: Session) -> ContentUnreadable | None:
    """Why a part of the session is absent."""
    found: ContentUnreadable | None = vars(session).get(_REASON)
    return found


def open_beginnings(
    model: type[models.Model],
    session_id: str,
    rows: Iterable[dict[str, Any]],
    column: str,
    characters: int,
    *,
    text: str = "text",
    size: str = "size",
) -> None:
    """Decrypt the texts of rows that were read in brief, in place: an encrypted text could not be cut."""
    for row in rows:
        sealed = row[text]
        if sealed is None or not sealed.startswith(encryption.SEALED):
            continue
        place = (model._meta.model_name, column, session_id, *(row[name] for name in key_of(model)[1:]))
        try:
            whole = encryption.open_text(place, sealed)
        except ContentUnreadable as error:
            whole = documents.write(note(error))
        row[text], row[size] = whole[:characters], len(whole)


def note(error: ContentUnreadable) -> dict[str, str]:
    """What is shown instead of a document."""
    return {"unreadable": str(error)}
