"""Moves sessions over from another session service of ADK, such as `DatabaseSessionService`."""

from collections.abc import Iterable
from typing import Any

from asgiref.sync import sync_to_async

from helix_sessions.exceptions import StaleState
from helix_sessions.integrations.extras import needed_from
from helix_sessions.integrations.google_adk import DjangoSessionService

with needed_from("google-adk"):
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.sessions import BaseSessionService, Session


async def import_sessions(
    source: BaseSessionService,
    target: DjangoSessionService,
    *,
    app_name: str,
    user_id: str | None = None,
    session_ids: Iterable[str] | None = None,
) -> list[str]:
    """Copy the sessions of an app, or of one user of it, with their events and their state in all scopes.

    A session that has gone on here, or is another one, is left alone; a copy that was interrupted is
    completed. Returns the ids of the sessions that were copied.
    """
    wanted = None if session_ids is None else {session_id.strip() for session_id in session_ids}
    listed = await source.list_sessions(app_name=app_name, user_id=user_id)
    copied = []
    for summary in sorted(listed.sessions, key=lambda each: (each.user_id, each.id)):
        if wanted is None or summary.id.strip() in wanted:
            found = await source.get_session(
                app_name=app_name, user_id=summary.user_id, session_id=summary.id
            )
            if found is not None and await _import(target, found):
                copied.append(found.id)
    return copied


async def _import(target: DjangoSessionService, found: Session) -> bool:
    names: Any = {"app_name": found.app_name, "user_id": found.user_id, "session_id": found.id}
    try:
        ours = await target.create_session(**names, state=found.state)
    except AlreadyExistsError:
        ours = await target.get_session(**names) or found
    known = [event.id for event in ours.events]
    ids = [event.id for event in found.events]
    if known != ids[: len(known)] or (known and known == ids):
        return False
    try:
        await sync_to_async(target.append_events)(ours, found.events[len(known) :])
    except StaleState:
        return False
    return True
