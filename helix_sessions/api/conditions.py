"""Conditional requests. The entity tag of a session is its version."""

import re

from django.utils.http import parse_etags
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from helix_sessions.store import SessionStore

_NEVER = 0
"""A version no session has."""

_VERSION = re.compile(r'"(\d{1,18})"')


def expected_version(request: Request, store: SessionStore, session_id: str) -> int | None:
    """The version of `If-Match`. Of several, the session's own is taken, if it is among them."""
    header = request.headers.get("If-Match")
    if header is None or header.strip() == "*":
        return None
    tags = parse_etags(header)
    if not tags or not all(tag.endswith('"') for tag in tags):
        raise ParseError('If-Match is the ETag of the session, in quotes: "12".')
    if any(tag.startswith("W/") for tag in tags):
        raise ParseError("If-Match takes no weak ETag: leave out the W/ that a proxy has added.")
    versions = [int(found[1]) if (found := _VERSION.fullmatch(tag)) else _NEVER for tag in tags]
    if len(versions) == 1:
        return versions[0]
    current = store.get_session_head(session_id).version
    return current if current in versions else versions[0]


def is_current(request: Request, tag: str) -> bool:
    """Whether the caller of a GET has the representation with this tag already (`If-None-Match`)."""
    tags = parse_etags(request.headers.get("If-None-Match", ""))
    return tags == ["*"] or tag in {other.removeprefix("W/") for other in tags}


def asks_not_modified(request: Request) -> bool:
    return "If-None-Match" in request.headers


def creates_only(request: Request) -> bool:
    """`If-None-Match: *` on a PUT: create, or do nothing."""
    return request.headers.get("If-None-Match", "").strip() == "*"
