"""Links: a signed token that lets its holder answer one tool call, for a time, and do nothing else.

A link is for a person who has no account here: the approval in a mail, the form on a page. It names the
session, the call, and the moment it was asked for, so a call that comes again under an old id is another one.
Nothing is stored for it, and it is used once because a call is answered once.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.core import signing

from helix_sessions.conf import conf
from helix_sessions.exceptions import (
    AnswerForbidden,
    InvalidAnswerLink,
    InvalidInput,
    SessionNotFound,
    UnknownToolCall,
)
from helix_sessions.store.calls import submissions
from helix_sessions.store.engine import inputs, session_rows
from helix_sessions.store.engine.session_rows import SessionRow
from helix_sessions.store.engine.store import Store, session_key
from helix_sessions.store.state import pending_calls
from helix_sessions.types import JSON, UNSET, AnswerLink, AskedCall, Submission, Unset

MAX_TOKEN = 4096
SALT = "helix_sessions.answer_links"
"""Of every database, because a session may move to another one."""

_COLUMNS = ("session_id", "root_session_id", "pending_client_tool_calls")


class _Grant(NamedTuple):
    """What a token allows: to answer this call of the session with this row."""

    row: SessionRow
    tool_call_id: str
    requested_at: str | None
    until: int
    may_edit: bool


def create_answer_link(
    store: Store,
    session_id: str,
    tool_call_id: str,
    *,
    lifetime: timedelta | None = None,
    may_edit: bool = False,
) -> AnswerLink:
    """A link to answer a pending call of the session, or of any session of the tree whose root it is.

    It is good for `lifetime`, at most and by default for `HELIX_SESSIONS["ANSWER_LINK_SECONDS"]`. With
    `may_edit` its holder may approve the call with other arguments.
    """
    key, call_id = session_key(session_id), submissions.short_id(tool_call_id, "tool_call_id")
    seconds = _seconds(lifetime)
    edits = inputs.flag(may_edit, "may_edit")
    root_id, owner_id, _ = submissions.find(store, key, call_id)
    try:
        row = session_rows.read_row(store._connection, owner_id, _COLUMNS)
    except SessionNotFound as error:
        store._explain_absence(error)
        raise UnknownToolCall(f"The session of tool call {call_id!r} is gone.") from None
    entry = pending_calls.read(row.pending_client_tool_calls).get(call_id)
    if root_id not in (owner_id, row.root_session_id) or not isinstance(entry, dict):
        raise UnknownToolCall(f"No tool call {call_id!r} is pending.")
    until = int(time.time()) + seconds
    grant = [owner_id, call_id, pending_calls.requested_at(entry), until, edits]
    token = signing.dumps(grant, salt=SALT, compress=True)
    return AnswerLink(token=token, expires_at=datetime.fromtimestamp(until, UTC))


def read_answer_link(store: Store, token: str) -> AskedCall:
    """What the holder of a link is asked, for as long as the session has not gone on."""
    grant = _grant(store, token)
    entry = pending_calls.read(grant.row.pending_client_tool_calls).get(grant.tool_call_id)
    if not isinstance(entry, dict) or pending_calls.requested_at(entry) != grant.requested_at:
        raise InvalidAnswerLink
    return AskedCall(
        tool_name=entry.get("tool_name", ""),
        arguments=entry.get("arguments"),
        kind=entry.get("kind", "client_tool"),
        requested_at=pending_calls.moment(grant.requested_at),
        deadline=pending_calls.moment(entry.get("deadline")),
        is_answered=bool(entry.get("submitted_at")) and not pending_calls.is_expired(entry),
        expires_at=datetime.fromtimestamp(grant.until, UTC),
        arguments_digest=pending_calls.arguments_digest(entry),
        response_schema=entry.get("response_schema"),
        may_edit=grant.may_edit,
    )


def submit_by_answer_link(
    store: Store,
    token: str,
    *,
    result: JSON | Unset = UNSET,
    error: str | None = None,
    approved: bool | None = None,
    reason: str | None = None,
    arguments: Mapping[str, JSON] | None = None,
    arguments_digest: str | None = None,
) -> Submission:
    """Answer the call of a link, as `submit_tool_result` does. Other `arguments` take a link that allows
    them.

    A link that was tampered with, is too old, or is about what is not there any more is refused as
    `InvalidAnswerLink`, in the same words.
    """
    grant = _grant(store, token)
    if arguments is not None and not grant.may_edit:
        raise AnswerForbidden("This link does not allow other arguments.")
    answer = submissions.checked_answer(result, error, approved, reason, arguments)
    row = grant.row
    entry = pending_calls.read(row.pending_client_tool_calls).get(grant.tool_call_id)
    try:
        return submissions.submit(
            store,
            submissions.Found(row.root_session_id or row.session_id, row.session_id, entry),
            grant.tool_call_id,
            answer,
            by=submissions.LINK,
            arguments_digest=arguments_digest,
            requested_at=grant.requested_at,
        )
    except SessionNotFound as error:
        store._explain_absence(error)
        raise InvalidAnswerLink from None
    except UnknownToolCall:
        raise InvalidAnswerLink from None


def _signed(store: Store, token: str) -> Any:
    """What a token says. One of an earlier release is of one database."""
    longest = conf.ANSWER_LINK_SECONDS
    try:
        return signing.loads(token, salt=SALT, max_age=longest)
    except signing.BadSignature:
        return signing.loads(token, salt=f"{SALT}.{store.using}", max_age=longest)


def _grant(store: Store, token: Any) -> _Grant:
    """What a token allows now, with the session's row. A lower setting cuts older links short."""
    if not isinstance(token, str) or len(token) > MAX_TOKEN:
        raise InvalidAnswerLink
    try:
        session_id, call_id, requested_at, until, *rest = _signed(store, token)
        row = store._read(session_id, _COLUMNS)
    except SessionNotFound as error:
        store._explain_absence(error)
        raise InvalidAnswerLink from None
    except (signing.BadSignature, ValueError):
        raise InvalidAnswerLink from None
    if until <= time.time():
        raise InvalidAnswerLink
    return _Grant(row, call_id, requested_at, until, bool(rest and rest[0]))


def _seconds(lifetime: timedelta | None) -> int:
    longest = conf.ANSWER_LINK_SECONDS
    if lifetime is None:
        return longest
    seconds = int(inputs.period(lifetime, "lifetime").total_seconds())
    if not 1 <= seconds <= longest:
        raise InvalidInput(f"A link is good for at least a second and at most {longest:,}.")
    return seconds
