"""What the search of the session list finds, and by which index.

`tag:vip`, `user:ann`, `agent:support`, `error:timeout`, `text:refund` and `plan=gold` say where to look. Any
other term is looked for in ids, users, agent types, tags, errors and transcripts.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from helix_sessions.admin.presentation import is_id
from helix_sessions.conf import conf
from helix_sessions.content import encryption
from helix_sessions.exceptions import InvalidInput
from helix_sessions.messages.words import words_of
from helix_sessions.store.engine import inputs

FOUND_BY_EACH = 500
"""A search shows the first rows found by each of its ways."""

IDS_READ = 200_000
"""A part of an id is looked for among so many of the newest sessions; the beginning of one among all."""

ERRORS_READ = 10_000
"""Errors are read of so many of the newest failures."""

LONGEST = 500
"""A longer term finds nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ids that a term finds, and whether there are more."""

    ids: set[str]
    is_cut: bool = False


def find(rows: Any, term: str) -> Found:
    """The ids of the sessions among `rows` that a term finds."""
    term = term.strip()
    if not term or len(term) > LONGEST or not _is_text(term):
        return Found(set())
    keys = rows.order_by("-created_at", "-session_id").values_list("session_id", flat=True)
    ways = [list(way[: FOUND_BY_EACH + 1]) for way in _ways(keys, term)]
    ids = {str(key) for way in ways for key in way[:FOUND_BY_EACH]}
    return Found(ids, is_cut=any(len(way) > FOUND_BY_EACH for way in ways))


def limits(*, is_cut: bool) -> list[str]:
    """What a search does not find, for the page to say."""
    said = []
    if is_cut:
        said.append(_("More was found: the newest %d of each way to search are shown.") % FOUND_BY_EACH)
    ring = encryption.keyring()
    if not conf.TRANSCRIPT_SEARCH:
        said.append(_("Transcripts are not searched: TRANSCRIPT_SEARCH is off."))
    elif ring is not None and ring.active is not None:
        said.append(_("Encrypted errors and transcripts are not searched: the database cannot read them."))
    return said


def _ways(keys: Any, term: str) -> Iterator[Any]:
    name, mark, wanted = term.partition(":")
    if mark and name in _NAMED and wanted.strip():
        yield from _NAMED[name](keys, wanted.strip())
        return
    key, equals, value = term.partition("=")
    if equals and key.strip() and _is_word(key):
        yield from _metadata(keys, key.strip(), value.strip())
    if is_id(term):
        yield from _id(keys, term)
        yield from _user(keys, term)
        yield from _agent(keys, term)
        yield from _tag(keys, term)
    yield from _error(keys, term)
    yield from _text(keys, term)


def _user(keys: Any, term: str) -> Iterator[Any]:
    if is_id(term):
        yield keys.filter(user_id=term)


def _agent(keys: Any, term: str) -> Iterator[Any]:
    if is_id(term):
        yield keys.filter(agent_type=term)


def _tag(keys: Any, term: str) -> Iterator[Any]:
    if is_id(term):
        yield keys.tagged(term)


def _id(keys: Any, term: str) -> Iterator[Any]:
    if is_id(term):
        yield keys.order_by("session_id").id_begins_with(term)
        yield keys.filter(session_id__in=keys.ids_with(term, among=IDS_READ, limit=FOUND_BY_EACH + 1))


def _metadata(keys: Any, key: str, value: str) -> Iterator[Any]:
    """As text, and as what the text is in JSON: `5`, `true`."""
    values: list[Any] = [value]
    try:
        read = json.loads(value)
    except ValueError:
        read = None
    if isinstance(read, bool | int | float):
        values.append(read)
    for each in values:
        try:
            items = inputs.metadata({key: each})
        except InvalidInput:
            continue
        yield keys.filter(metadata__has_items=json.loads(items))


def _error(keys: Any, term: str) -> Iterator[Any]:
    """The reasons and errors of failures, as they were given. Encrypted errors are not searched."""
    newest = keys.filter(status="failed")[:ERRORS_READ]
    texts = keys.filter(session_id__in=newest).alias(error_text=Cast("error", TextField()))
    yield texts.filter(Q(failure_reason__icontains=term) | Q(error_text__icontains=_as_json(term)))


def _text(keys: Any, term: str) -> Iterator[Any]:
    """The words of transcripts."""
    words = words_of(term)
    if conf.TRANSCRIPT_SEARCH and words:
        yield keys.filter(session_id__says=words)


_NAMED: dict[str, Callable[[Any, str], Iterator[Any]]] = {
    "id": _id,
    "user": _user,
    "agent": _agent,
    "tag": _tag,
    "error": _error,
    "text": _text,
}


def _as_json(term: str) -> str:
    """The term as a document has it between quotation marks."""
    return json.dumps(term, ensure_ascii=False)[1:-1]


def _is_text(term: str) -> bool:
    """Whether a database takes it: no null character, no half of a character."""
    return "\x00" not in term and term.encode("utf-8", "replace").decode() == term


def _is_word(key: str) -> bool:
    return not any(character.isspace() for character in key.strip())
